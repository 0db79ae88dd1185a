"""A VM that is changed while its files are sent stays where it is, untouched."""

import pytest
from endkit import is_untouched
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed


def snapshot(vm):
    vm.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>", 0)


def checkpoint(vm):
    vm.checkpointCreateXML("<domaincheckpoint><name>c1</name></domaincheckpoint>", 0)


def save(vm):
    if not vm.isActive():
        vm.create()
    vm.managedSave(0)


def pause(vm):
    vm.create()
    vm.suspend()


STATES = {"stopped": lambda _dom: None, "running": lambda dom: dom.create(), "paused": pause}


@pytest.mark.parametrize(
    ("state", "change", "reason"),
    [
        ("stopped", lambda vm: vm.create(), "it is running now: its state was changed meanwhile"),
        ("stopped", snapshot, "it has other snapshots now"),
        ("stopped", save, "it has a saved state"),
        ("running", lambda vm: vm.suspend(), "it is paused now: its state was changed meanwhile"),
        (
            "running",
            lambda vm: vm.destroy(),
            "it is shutdown now: its state was changed meanwhile",
        ),
        ("running", snapshot, "it has snapshots"),
        ("running", checkpoint, "it has checkpoints"),
        ("running", save, "it is shutdown now: .*it has a saved state"),
        ("paused", lambda vm: vm.resume(), "it is running now: its state was changed meanwhile"),
    ],
)
def test_a_vm_that_is_changed_while_it_is_sent_stays(end, conn, state, change, reason):
    paths = end.make(conn)
    # Of a running VM the read-only media are sent.
    iso = end.images / "web1.iso"
    iso.write_bytes(b"medium")
    medium = f"<disk type='file' device='cdrom'><source file='{iso}'/><target dev='hda'/></disk>"
    xml = conn.lookupByName("web1").XMLDesc(0)
    lifecycle.define(conn, xml.replace("</devices>", f"{medium}</devices>"))
    STATES[state](conn.lookupByName("web1"))
    end.begin()
    changes = [change]
    end.meanwhile = lambda: changes and changes.pop()(conn.lookupByName("web1"))

    with pytest.raises(MigrationFailed, match=f"stays where it is: {reason}"):
        end.send()
    assert end.phase("departure") == "cancelled" and is_untouched(end, paths)
    assert not (end.folder / "defined").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (snapshot, "it has snapshots, which libvirt does not move"),
        (checkpoint, "it has checkpoints, which libvirt does not move"),
        (save, "it has a saved state, which libvirt does not move"),
    ],
)
def test_a_saved_state_a_snapshot_and_a_checkpoint_are_named(end, conn, change, reason):
    end.make(conn)
    lifecycle.start(conn, "web1")
    change(conn.lookupByName("web1"))

    with pytest.raises(MigrationFailed, match=reason):
        end.begin()
    assert end.record("departure") is None
