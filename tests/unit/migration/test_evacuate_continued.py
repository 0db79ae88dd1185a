"""Evacuation of a slow host, and after an interrupted command, with replaced hosts."""

import threading
from types import SimpleNamespace

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.migration.master import evacuate, recovery, restore


def test_looking_counts_as_waiting(monkeypatch, run):
    hosts, clock_s = clouds(monkeypatch)(3), [0.0]
    hosts.building["h3"] = ["web2"]
    clock = SimpleNamespace(sleep=lambda _s: None, monotonic=lambda: clock_s[0])
    monkeypatch.setattr(evacuate, "time", clock)
    hosts.before["h3", "virt.host_info"] = lambda: clock_s.__setitem__(0, clock_s[0] + 60)

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(evacuate.evacuate, hosts, "h3", **{**HOW, "wait_s": 100})

    assert table(excinfo)["stays"]["web2"].startswith("still on its way in after 120 s; when")


def test_a_move_that_was_cut_off_is_settled_before_it_is_planned_anew(monkeypatch, run):
    """Until then the only other host has the VM on record as arriving, and has no room for it."""
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    real_host_info = two._host_info

    def host_info(host, **options):
        coming = [name for target, name in two.arrivals if target == host]
        return {**real_host_info(host, **options), "building": coming}

    monkeypatch.setattr(two, "_host_info", host_info)
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved, match="h1 still has web1"):
        run(evacuate.evacuate, two, "h1", **HOW)
    assert not two.is_settled()
    two.silent.clear()

    result = run(evacuate.evacuate, two, "h1", **HOW)

    assert result["moved"] == {"web1": "h2"} and result["stays"] == {}
    assert two.is_settled() and two.noted("h1") == {"web1": ["h2"]}


def test_a_move_home_that_was_cut_off_is_settled_before_its_vm_is_looked_for(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    run(evacuate.evacuate, two, "h1", **HOW)
    two.silent |= {("h2", "virt.migrate"), ("h2", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(restore.restore, two, "h1", max_parallel=2)
    two.silent.clear()
    # The VM is still being sent, so both hosts have it.
    two.put("web1", "h1", state="paused")

    result = run(restore.restore, two, "h1", max_parallel=2)

    assert result["failed"] == {} and two.where("web1") == ["h1"] and two.is_settled()


def test_a_kept_definition_is_named_and_its_host_counts_as_empty(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    host_info = two._host_info
    host_info_with_kept = lambda host, **options: {  # noqa: E731
        **host_info(host, **options),
        "kept": {"web1": "h2"},
    }
    monkeypatch.setattr(two, "_host_info", host_info_with_kept)

    result = run(evacuate.evacuate, two, "h1", **HOW)

    assert result["stays"] == result["failed"] == {}
    assert "salt h1 virt.undefine web1 removes that" in result["warnings"]["web1"]


def fail_with_full_disk(*_args):
    """Stand for a full disk of the master."""
    raise OSError(28, "No space left on device")


def test_the_moved_vms_are_reported_though_the_masters_disk_is_full(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    for name in ("web1", "web2"):
        two.put(name, "h1")
    two.before["h1", "virt.migrate"] = lambda: two.refuses.update(h2={"web2": ["no"]})
    monkeypatch.setattr(evacuate.evacuationnotes, "forget", fail_with_full_disk)

    with pytest.raises(evacuate.NotAllMoved, match="No space left") as excinfo:
        run(evacuate.evacuate, two, "h1", **{**HOW, "max_parallel": 1})

    assert list(table(excinfo)["moved"]) == ["web1"]


def test_a_move_that_cannot_be_settled_on_a_full_disk_is_reported_and_ends_nothing(
    monkeypatch, run, said
):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, two, "h1", **HOW)
    two.silent.clear()
    monkeypatch.setattr(recovery, "settle_order", fail_with_full_disk)

    with pytest.raises(evacuate.NotAllMoved, match="h1 still has web1") as excinfo:
        run(evacuate.evacuate, two, "h1", **HOW)

    assert list(table(excinfo)["failed"]) == ["web1"]
    assert any("Settling" in line and "No space left" in line for line in said)


def test_moves_that_were_cut_off_are_settled_at_once(monkeypatch, run):
    """All moves together wait for a silent host, not one after another."""
    two = clouds(monkeypatch)(2)
    for name in ("web1", "web2", "web3"):
        two.put(name, "h1")
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, two, "h1", **HOW)
    two.silent.clear()
    real_settle, all_waiting = recovery.settle_order, threading.Barrier(3, timeout=10)

    def waiting(cloud, record):
        all_waiting.wait()
        real_settle(cloud, record)

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "settle_order", waiting)
        run(recovery.settle_left, two, "h1")

    assert two.is_settled() and not all_waiting.broken


def test_the_returned_vms_are_reported_though_the_masters_disk_is_full(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    run(evacuate.evacuate, two, "h1", **HOW)
    monkeypatch.setattr(restore.evacuationnotes, "renew", fail_with_full_disk)

    result = run(restore.restore, two, "h1", max_parallel=2)

    assert result["moved"] == {"web1": "h1"}
