"""A host is emptied that is slow, or after a command that was cut off: played."""

import threading
from types import SimpleNamespace

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.migration.master import evacuate, recovery, restore


def test_looking_counts_as_waiting(monkeypatch, run):
    three, now = clouds(monkeypatch)(3), [0.0]
    three.building["h3"] = ["web2"]
    clock = SimpleNamespace(sleep=lambda _s: None, monotonic=lambda: now[0])
    monkeypatch.setattr(evacuate, "time", clock)
    three.before["h3", "virt.host_info"] = lambda: now.__setitem__(0, now[0] + 60)

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, three, "h3", **{**HOW, "wait_s": 100})

    assert table(caught)["stays"]["web2"].startswith("still on its way in after 120 s; when")


def test_a_move_that_was_cut_off_is_settled_before_it_is_planned_anew(monkeypatch, run):
    """The only other host awaits the VM until then, and so has no place for it."""
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    usual = two._host_info

    def host_info(host, **given):
        coming = [name for at, name in two.arrivals if at == host]
        return {**usual(host, **given), "building": coming}

    monkeypatch.setattr(two, "_host_info", host_info)
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved, match="h1 still has web1"):
        run(evacuate.evacuate, two, "h1", **HOW)
    assert not two.is_settled()
    two.silent.clear()

    done = run(evacuate.evacuate, two, "h1", **HOW)

    assert done["moved"] == {"web1": "h2"} and done["stays"] == {}
    assert two.is_settled() and two.noted("h1") == {"web1": ["h2"]}


def test_a_move_home_that_was_cut_off_is_settled_before_it_is_looked_where_vms_are(
    monkeypatch, run
):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    run(evacuate.evacuate, two, "h1", **HOW)
    two.silent |= {("h2", "virt.migrate"), ("h2", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(restore.restore, two, "h1", max_parallel=2)
    two.silent.clear()
    # It is still being sent, so both have it.
    two.put("web1", "h1", state="paused")

    done = run(restore.restore, two, "h1", max_parallel=2)

    assert done["failed"] == {} and two.where("web1") == ["h1"] and two.is_settled()


def test_a_definition_that_was_only_kept_is_named_and_keeps_no_host_from_being_empty(
    monkeypatch, run
):
    two = clouds(monkeypatch)(2)
    host_info = two._host_info
    kept = lambda host, **given: {**host_info(host, **given), "kept": {"web1": "h2"}}  # noqa: E731
    monkeypatch.setattr(two, "_host_info", kept)

    done = run(evacuate.evacuate, two, "h1", **HOW)

    assert done["stays"] == done["failed"] == {}
    assert "salt h1 virt.undefine web1 removes that" in done["warnings"]["web1"]


def full(*_args):
    """Stand for a full disk of the master."""
    raise OSError(28, "No space left on device")


def test_what_has_moved_is_said_though_the_masters_disk_is_full(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    for name in ("web1", "web2"):
        two.put(name, "h1")
    two.before["h1", "virt.migrate"] = lambda: two.refuses.update(h2={"web2": ["no"]})
    monkeypatch.setattr(evacuate.evacuationnotes, "forget", full)

    with pytest.raises(evacuate.NotAllMoved, match="No space left") as caught:
        run(evacuate.evacuate, two, "h1", **{**HOW, "max_parallel": 1})

    assert list(table(caught)["moved"]) == ["web1"]


def test_what_cannot_be_settled_on_a_full_disk_is_said_and_ends_nothing(monkeypatch, run, said):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, two, "h1", **HOW)
    two.silent.clear()
    monkeypatch.setattr(recovery, "settle_order", full)

    with pytest.raises(evacuate.NotAllMoved, match="h1 still has web1") as caught:
        run(evacuate.evacuate, two, "h1", **HOW)

    assert list(table(caught)["failed"]) == ["web1"]
    assert any("Settling" in one and "No space left" in one for one in said)


def test_moves_that_were_cut_off_are_settled_at_once(monkeypatch, run):
    """A host that is silent is waited for by all of them together."""
    two = clouds(monkeypatch)(2)
    for name in ("web1", "web2", "web3"):
        two.put(name, "h1")
    two.silent |= {("h1", "virt.migrate"), ("h1", "virt.migrate_step cancel")}
    with pytest.raises(evacuate.NotAllMoved):
        run(evacuate.evacuate, two, "h1", **HOW)
    two.silent.clear()
    settle, together = recovery.settle_order, threading.Barrier(3, timeout=10)

    def waiting(cloud, held):
        together.wait()
        settle(cloud, held)

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "settle_order", waiting)
        run(recovery.settle_left, two, "h1")

    assert two.is_settled() and not together.broken


def test_what_came_home_is_said_though_the_masters_disk_is_full(monkeypatch, run):
    two = clouds(monkeypatch)(2)
    two.put("web1", "h1")
    run(evacuate.evacuate, two, "h1", **HOW)
    monkeypatch.setattr(restore.evacuationnotes, "renew", full)

    done = run(restore.restore, two, "h1", max_parallel=2)

    assert done["moved"] == {"web1": "h1"}
