"""A source with *leaving* on record looks again: the VM may be back, or its target lost it."""

import time

import pytest
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import departure, movestate


@pytest.fixture
def paths(end, conn):
    """The disks of a VM. Its departure died right after it had noted *leaving*."""
    disk_paths = end.make(conn)
    end.begin()
    end.send()
    end.hypervisor.dies(lambda: end.step(moveprotocol.FINISH), "departure.leaving")
    assert end.phase("departure") == moveprotocol.LEAVING
    return disk_paths


def _is_kept(end, conn, paths):
    is_defined = lifecycle.is_defined(conn, "web1")
    return is_defined and all(path.exists() for path in paths)


def test_a_vm_that_was_moved_back_by_hand_stays(end, conn, paths):
    """It came by virsh migrate --undefinesource; the guest worked here and is shut down."""
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

    # Only its definition is missing when the target is reinstalled.
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


def test_the_files_of_a_running_vm_are_noted_after_the_hand_over(end, conn):
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
    real_undefine = departure.Departure.undefine

    def move_back_and_undefine(vm_departure):
        (end.folder / "defined").unlink()
        real_undefine(vm_departure)

    monkeypatch.setattr(departure.Departure, "undefine", move_back_and_undefine)
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
