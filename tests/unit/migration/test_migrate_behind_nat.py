"""A VM behind NAT is moved, with one line on what that means for its network."""

import pytest
from playedhosts import HOW, clouds
from saltvirt.migration.master import evacuate, migrate

LINE = (
    "behind NAT (default): its connections break, its address may change, and it is reached "
    "through {} from then on; its minion may be silent for some 5 minutes, until it finds its "
    "connection broken"
)


@pytest.fixture
def three(monkeypatch):
    """Three hosts; of the VMs on the third, one is behind NAT."""
    monkeypatch.setattr(evacuate.time, "sleep", lambda _s: None)
    cloud = clouds(monkeypatch)(3)
    cloud.put("web1", "h3", nat=["default"])
    cloud.put("web2", "h3")
    return cloud


def test_a_move_and_its_dry_run_warn_of_nat(three, run):
    plan = run(migrate.dry_run, three, "web1", "h1", {})
    result = run(migrate.migrate, three, "web1", "h1", {})

    assert plan["warning"] == result["warning"] == LINE.format("h1")
    assert three.where("web1") == ["h1"]


def test_a_vm_on_a_bridge_moves_without_a_warning(three, run):
    assert "warning" not in run(migrate.dry_run, three, "web2", "h1", {})
    assert "warning" not in run(migrate.migrate, three, "web2", "h1", {})


def test_a_warning_about_autostart_is_kept_beside_that_of_nat(three, run):
    three.put("web1", "h3", nat=["default"], autostart=True)
    three.no_autostart |= {"h1", "h2"}

    result = run(migrate.migrate, three, "web1", "h1", {})

    first, second = result["warning"].split("; ", 1)
    assert first == "it does not start with its new host: no" and second == LINE.format("h1")


def test_an_evacuation_names_those_behind_nat(three, run):
    plan = run(evacuate.dry_run, three, "h3", True)
    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert plan["warnings"] == {"web1": LINE.format(plan["moves"]["web1"])}
    assert result["warnings"] == {"web1": LINE.format(result["moved"]["web1"])}
    assert set(result["moved"]) == {"web1", "web2"} and result["failed"] == {}
