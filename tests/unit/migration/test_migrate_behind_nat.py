"""A VM behind NAT is moved, and it is said in one line what that means for its network."""

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
    made = clouds(monkeypatch)(3)
    made.put("web1", "h3", nat=["default"])
    made.put("web2", "h3")
    return made


def test_a_move_says_so_and_so_does_what_it_would_do(three, run):
    would = run(migrate.dry_run, three, "web1", "h1", {})
    done = run(migrate.migrate, three, "web1", "h1", {})

    assert would["warning"] == done["warning"] == LINE.format("h1")
    assert three.where("web1") == ["h1"]


def test_a_vm_on_a_bridge_moves_without_a_word(three, run):
    assert "warning" not in run(migrate.dry_run, three, "web2", "h1", {})
    assert "warning" not in run(migrate.migrate, three, "web2", "h1", {})


def test_what_went_wrong_beside_the_move_is_said_too(three, run):
    three.put("web1", "h3", nat=["default"], autostart=True)
    three.no_autostart |= {"h1", "h2"}

    done = run(migrate.migrate, three, "web1", "h1", {})

    first, second = done["warning"].split("; ", 1)
    assert first == "it does not start with its new host: no" and second == LINE.format("h1")


def test_an_evacuation_names_those_behind_nat(three, run):
    would = run(evacuate.dry_run, three, "h3", True)
    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert would["warnings"] == {"web1": LINE.format(would["moves"]["web1"])}
    assert done["warnings"] == {"web1": LINE.format(done["moved"]["web1"])}
    assert set(done["moved"]) == {"web1", "web2"} and done["failed"] == {}
