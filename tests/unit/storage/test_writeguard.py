"""Nothing is written into a disk by this host that a VM, a snapshot or the trash needs as it is."""

import os
import shutil

import faces
import libvirt
import onrecord
import pytest
import verdicts
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, reservations
from saltvirt.seeding import existing, write
from saltvirt.seeding.seedmodel import Identity
from saltvirt.storage import diskpaths, trash, writeguard
from snapshotxml import DISK, SNAPSHOT, VM
from test_unreadablechains import overlay

UNDEFINE = libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE


@pytest.fixture
def disk(tmp_path):
    """A disk."""
    return overlay(tmp_path / "disk.qcow2")


@pytest.fixture
def vm(settings):
    """Return what defines a VM with a disk, or without one."""
    with connect.open_connection(settings, readonly=False) as conn:
        yield lambda path=None: conn.defineXML(VM.format(DISK.format(path) if path else ""))
        conn.lookupByName("web1").undefineFlags(UNDEFINE)


def opened(settings, disk):
    """Open a disk by a link, to be written to."""
    link = disk.with_name("link")
    link.unlink(missing_ok=True)
    link.symlink_to(disk)
    return [writeguard.opened_format(settings, path) for path in (str(disk), str(link))]


def test_the_own_disk_of_a_vm_that_is_off_is_written_to(settings, disk, vm):
    vm(disk)

    assert opened(settings, disk) == ["qcow2", "qcow2"]


def test_not_what_a_disk_of_a_vm_that_is_off_is_based_on(settings, disk, vm, tmp_path):
    vm(overlay(tmp_path / "disk.s1", disk))

    with pytest.raises(StorageError, match="written to: a disk of VM 'web1' is based on it"):
        opened(settings, disk)
    # To look into it spoils nothing.
    assert diskpaths.opened_format(settings, disk) == "qcow2"


def test_not_by_a_hard_link_of_what_a_disk_is_based_on(settings, disk, vm, tmp_path):
    vm(overlay(tmp_path / "disk.s1", disk))
    other = tmp_path / "other"
    os.link(disk, other)

    with pytest.raises(StorageError, match=f"other is not written to: .* hard link of {disk}"):
        opened(settings, other)


def test_a_file_that_goes_while_it_is_looked_at_is_no_hard_link(disk, tmp_path, monkeypatch):
    other = tmp_path / "other"
    os.link(disk, other)
    look = os.stat

    def went(path, **options):
        found = look(path, **options)
        if path == str(other):
            other.unlink()
        return found

    monkeypatch.setattr(os, "stat", went)

    assert diskpaths.find_hard_link(str(disk), [str(other), str(tmp_path / "third")]) in (
        None,
        str(other),
    )


def test_not_what_an_external_snapshot_goes_back_to(settings, disk, vm, tmp_path):
    text = SNAPSHOT.format(tmp_path / "disk.s1", vm(disk).XMLDesc())
    vm().snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)

    with pytest.raises(StorageError, match="written to: a snapshot of VM 'web1' needs it"):
        opened(settings, disk)


def test_not_what_a_saved_state_belongs_together_with(settings, disk, vm):
    web1 = vm(disk)
    web1.create()
    web1.managedSave()

    with pytest.raises(StorageError, match="written to: VM 'web1' has a saved state .*go on over"):
        opened(settings, disk)

    web1.managedSaveRemove()
    assert opened(settings, disk) == ["qcow2", "qcow2"]


def test_not_what_a_disk_in_the_trash_is_based_on(settings, disk, tmp_path):
    with trash.fill_trash(settings, "web2", reason="a test") as drop:
        drop(verdicts.free(overlay(tmp_path / "top.qcow2", disk)))

    with pytest.raises(StorageError, match=r"entry web2-\w+. is based on it"):
        opened(settings, disk)


@pytest.mark.parametrize("purpose", ["build", "purge"])
def test_not_what_is_made_or_removed(settings, disk, purpose):
    says = getattr(onrecord, purpose)(paths=[str(disk)])
    phase = moveprotocol.MAKING if purpose == "build" else "removing"
    with records.hold_record(reservations.folder(settings), purpose, "web1") as held:
        held.begin("t1", phase, **says)

    with pytest.raises(
        StorageError, match="disk.qcow2 is not written to: it is .* of VM 'web1', which is being"
    ):
        opened(settings, disk)


def test_the_function_that_seeds_a_disk_that_is_being_made_may_mount_it(settings, disk):
    with records.hold_record(reservations.folder(settings), "build", "web1") as held:
        held.begin("t1", moveprotocol.MAKING, **onrecord.build(paths=[str(disk)]))
    seen = []

    def seed(path, **_more):
        seen.append(opened(settings, disk))
        with pytest.raises(StorageError, match="other.qcow2 is not written to: .* of VM 'web2'"):
            writeguard.opened_format(settings, other)

    other = str(overlay(disk.with_name("other.qcow2")))
    with records.hold_record(reservations.folder(settings), "build", "web2") as held:
        held.begin("t1", moveprotocol.MAKING, **onrecord.build(paths=[other]))
    context = Context(settings=settings, opts={}, functions={"my.seed": seed})
    who = Identity(id="web1", config={}, public_key=None, private_key=None)

    write.run_command(context, "my.seed", who, str(disk), install=None)

    assert seen == [["qcow2", "qcow2"]]
    with pytest.raises(StorageError, match="to be a disk of VM 'web1'"):
        opened(settings, disk)


def apply(settings, path):
    """Write an identity into a disk."""
    context = Context(settings=settings, opts={"id": "h1", "master": "10.0.0.1"})
    given = {"approve_key": False, "install": False, "prep_install": False}
    existing.apply(context, path, "web9", None, (None, None), **given)


def mount(settings, path):
    """Mount a disk to be written to."""
    opts = {"images": settings.images, "state_dir": settings.state_dir}
    faces.load("modules", "guestfs", opts).mount(str(path))


def attach(settings, path):
    """Attach a disk as a device."""
    seed = {"allow_host_mount": True}
    given = {"images": settings.images, "state_dir": settings.state_dir, "seed": seed}
    faces.load("modules", "qemu_nbd", given).connect(str(path))


@pytest.mark.parametrize("write", [apply, mount, attach])
@pytest.mark.parametrize("is_golden", [False, True])
def test_no_cached_image(settings, disk, tmp_path, write, is_golden):
    base = tmp_path / "images/base" / f"{'0' * 64}.qcow2"
    base.parent.mkdir(parents=True)
    shutil.move(disk, base)
    if is_golden:
        os.link(base, disk)

    with pytest.raises(StorageError, match="is not written to: it is a (cached|golden) image"):
        write(settings, disk if is_golden else base)
