"""A VM that somebody changes while its files are sent stays where it is, untouched."""

import pytest
from endkit import is_untouched
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed


def snapshot(dom):
    dom.snapshotCreateXML("<domainsnapshot><name>s1</name></domainsnapshot>", 0)


def checkpoint(dom):
    dom.checkpointCreateXML("<domaincheckpoint><name>c1</name></domaincheckpoint>", 0)


def save(dom):
    if not dom.isActive():
        dom.create()
    dom.managedSave(0)


def pause(dom):
    dom.create()
    dom.suspend()


STATES = {"stopped": lambda _dom: None, "running": lambda dom: dom.create(), "paused": pause}


@pytest.mark.parametrize(
    ("before", "deed", "why"),
    [
        ("stopped", lambda dom: dom.create(), "it is running now: its state was changed meanwhile"),
        ("stopped", snapshot, "it has other snapshots now"),
        ("stopped", save, "it has a saved state"),
        ("running", lambda dom: dom.suspend(), "it is paused now: its state was changed meanwhile"),
        (
            "running",
            lambda dom: dom.destroy(),
            "it is shutdown now: its state was changed meanwhile",
        ),
        ("running", snapshot, "it has snapshots"),
        ("running", checkpoint, "it has checkpoints"),
        ("running", save, "it is shutdown now: .*it has a saved state"),
        ("paused", lambda dom: dom.resume(), "it is running now: its state was changed meanwhile"),
    ],
)
def test_a_vm_that_is_changed_while_it_is_sent_stays(end, conn, before, deed, why):
    paths = end.make(conn)
    # Of a running one what it only reads is sent.
    iso = end.images / "web1.iso"
    iso.write_bytes(b"medium")
    medium = f"<disk type='file' device='cdrom'><source file='{iso}'/><target dev='hda'/></disk>"
    xml = conn.lookupByName("web1").XMLDesc(0)
    lifecycle.define(conn, xml.replace("</devices>", f"{medium}</devices>"))
    STATES[before](conn.lookupByName("web1"))
    end.begin()
    deeds = [deed]
    end.meanwhile = lambda: deeds and deeds.pop()(conn.lookupByName("web1"))

    with pytest.raises(MigrationFailed, match=f"stays where it is: {why}"):
        end.send()
    assert end.phase("departure") == "cancelled" and is_untouched(end, paths)
    assert not (end.folder / "defined").exists()


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        (snapshot, "it has snapshots, which libvirt does not move"),
        (checkpoint, "it has checkpoints, which libvirt does not move"),
        (save, "it has a saved state, which libvirt does not move"),
    ],
)
def test_a_saved_state_a_snapshot_and_a_checkpoint_are_named(end, conn, deed, why):
    end.make(conn)
    lifecycle.start(conn, "web1")
    deed(conn.lookupByName("web1"))

    with pytest.raises(MigrationFailed, match=why):
        end.begin()
    assert end.record("departure") is None
