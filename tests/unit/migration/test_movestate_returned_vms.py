"""A source that is leaving on record looks again: the VM may be back, or lost by its target."""

import time

import pytest
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import departure, movestate


@pytest.fixture
def paths(end, conn):
    """The disks of a VM whose departure died right after it had noted *leaving*."""
    made = end.make(conn)
    end.begin()
    end.send()
    end.hypervisor.dies(lambda: end.step(moveprotocol.FINISH), "departure.leaving")
    assert end.phase("departure") == moveprotocol.LEAVING
    return made


def _is_kept(end, conn, paths):
    is_defined = lifecycle.is_defined(conn, "web1")
    return is_defined and all(path.exists() for path in paths)


def test_a_vm_that_was_moved_back_by_hand_stays(end, conn, paths):
    """By virsh migrate --undefinesource from the target; the guest works here and is shut down."""
    (end.folder / "defined").unlink()
    for path in paths:
        path.write_bytes(b"newest data" * 1000)

    source = moveprotocol.Source(**end.state(conn)["source"])
    assert moveprotocol.next_step(source, moveprotocol.Target()) == moveprotocol.KEEP
    with pytest.raises(MigrationFailed, match="it is not defined there"):
        end.step(moveprotocol.FINISH)
    assert _is_kept(end, conn, paths) and end.phase("departure") == moveprotocol.LEAVING


def test_the_disks_of_a_vm_whose_target_was_reinstalled_stay(end, conn, paths):
    (end.folder / "defined").unlink()

    with pytest.raises(MigrationFailed, match="it is not defined there"):
        end.step(moveprotocol.FINISH)
    assert _is_kept(end, conn, paths)

    # Its definition alone was removed when the target was reinstalled.
    conn.lookupByName("web1").undefine()
    assert end.state(conn)["source"]["has_files"]
    with pytest.raises(MigrationFailed, match="it is not defined there"):
        end.step(moveprotocol.FINISH)
    assert all(path.exists() for path in paths)


def test_a_vm_that_was_started_here_and_has_stopped_again_stays(end, conn, paths):
    paths[1].write_bytes(b"what the guest wrote")

    with pytest.raises(MigrationFailed, match="web1_1.raw was written to after it was sent"):
        end.step(moveprotocol.FINISH)
    assert _is_kept(end, conn, paths)


def test_what_a_running_vm_leaves_is_noted_when_it_has_been_handed_over(end, conn):
    paths = end.make(conn)
    conn.lookupByName("web1").create()
    end.begin()
    end.moving = lambda: conn.lookupByName("web1").destroy()
    end.send()
    paths[0].write_bytes(b"somebody started it here once more")

    with pytest.raises(MigrationFailed, match="web1_0.raw was written to after it was sent"):
        end.step(moveprotocol.FINISH)
    assert _is_kept(end, conn, paths) and end.phase("departure") == moveprotocol.HANDING


def test_a_job_that_stood_still_after_its_look_looks_once_more(end, conn, monkeypatch):
    paths = end.make(conn)
    end.begin()
    end.send()
    seconds = iter(range(0, 1000, 60))
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    undefine = departure.Departure.undefine

    def moved_back(hands):
        (end.folder / "defined").unlink()
        undefine(hands)

    monkeypatch.setattr(departure.Departure, "undefine", moved_back)
    with pytest.raises(MigrationFailed, match="it is not defined there"):
        end.step(moveprotocol.FINISH)
    assert _is_kept(end, conn, paths)


def test_a_vm_that_is_whole_on_its_target_leaves(end, conn, paths):
    end.step(moveprotocol.FINISH)

    assert not lifecycle.is_defined(conn, "web1") and not any(path.exists() for path in paths)
    assert end.record("departure") is None


def test_a_target_tells_whether_it_has_the_disks_that_the_source_has_noted(end, conn):
    paths = end.make(conn)
    end.begin()
    disks = end.state(conn)["disks"]
    assert disks == [str(path) for path in paths]

    def has_disks(paths):
        return movestate.read_state(conn, end.settings, "other", "t2", None, paths).target.has_disks

    assert has_disks(disks) and has_disks(None)
    assert not has_disks([*disks, str(end.images / "gone.raw")])
