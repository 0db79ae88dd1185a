"""What a host says of shared files that another host is to remove."""

from dataclasses import replace
from uuid import NAMESPACE_DNS, uuid5

import pytest
from saltvirt.libvirt import departedvms
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import fileusers, policies, trash, vmvolumes, writeguard
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from usagekit import VM, disk_image

LINK = """<volume><name>link.qcow2</name><capacity>1048576</capacity>
<target><format type='qcow2'/></target></volume>"""
POOL = """<pool type='dir'><name>links</name><target><path>{}</path></target></pool>"""


@pytest.fixture
def base(host):
    """A file on storage that other hosts see."""
    path = disk_image(host.root / "shared/base.qcow2")
    host.settings = replace(host.settings, shared_paths=[str(path.parent)], trash_days=7)
    return path


def asked(host, path, uuid=None):
    """Return what needs a file."""
    return fileusers.file_users(host.conn, host.settings, [str(path)], uuid)[str(path)].used_by


def test_a_disk_in_the_trash_of_a_host_needs_its_shared_base(host, base):
    above = disk_image(host.root / "own/db1.qcow2", base)
    with trash.fill_trash(host.settings, "db1", reason="a test") as put:
        put(Verdict(path=str(above), policy=policies.DELETE))

    assert "a disk in the trash" in asked(host, base)[0]


def test_the_disk_of_an_undefined_vm_needs_its_shared_base(host, base):
    above = disk_image(host.images / "db1_system.qcow2", base)

    assert f"{above} is based on it, a file that no VM here has" in asked(host, base)[0]


def test_a_disk_of_the_asking_host_on_shared_storage_is_no_file_without_a_vm(host, base):
    disk_image(base.parent / "db1_system.qcow2", base)

    assert asked(host, base) == []


def test_a_vm_of_the_same_uuid_under_another_name_needs_its_shared_disk(host, base):
    host.define("db1", base)
    uuid = str(uuid5(NAMESPACE_DNS, "db1"))

    assert "VM 'db1' has it as a disk" in asked(host, base, uuid)[0]

    lifecycle.mark_moved(host.conn, "db1", "hyper2")
    assert asked(host, base, uuid) == []


def test_no_volume_is_written_over_that_is_a_hard_link_of_a_file_below_a_disk(host):
    folder = host.root / "links"
    folder.mkdir()
    (folder / "link.qcow2").hardlink_to(host.file)
    host.define("db1", disk_image(host.root / "disks/db1.qcow2", host.file))
    pool = host.conn.storagePoolCreateXML(POOL.format(folder))
    try:
        pool.createXML(LINK)
        given = (host.conn, host.settings, "links")
        (written,) = vmvolumes.judge_resize(*given, "link.qcow2", OtherHostsUsage(), True)
        (deleted,) = vmvolumes.judge_deletion(*given, ["link.qcow2"])
    finally:
        pool.destroy()

    assert "it is a hard link of" in written.reason and deleted.is_free


@pytest.mark.parametrize("why", ["a kept definition", "a cached image"])
def test_salt_cloud_leaves_what_a_purge_leaves(host, why):
    path = host.file
    if why == "a cached image":
        path = disk_image(host.images / "base" / f"{'a' * 64}.qcow2")
    else:
        uuid = uuid5(NAMESPACE_DNS, "db0")
        source = f"file='{path}'"
        given = {"name": "db0", "uuid": uuid, "kind": "file", "format": "qcow2", "boot": ""}
        departedvms.keep_definition(host.settings, "db0", VM.format(source=source, **given))
    host.define("db1", path)

    assert writeguard.find_needed(host.conn, host.settings, "db1", [str(path)]) == {str(path)}


def test_a_disk_of_no_vm_counts_though_the_asking_host_sees_another_one(host, base):
    # By its name it comes first.
    disk_image(base.parent / "db0_system.qcow2", base)
    host.settings = replace(host.settings, images=str(base.parent))
    folder = host.root / "shown_after_it"
    above = disk_image(folder / "db1_system.qcow2", base)
    pool = host.conn.storagePoolCreateXML(POOL.format(folder))
    try:
        found = asked(host, base)
    finally:
        pool.destroy()

    assert f"{above} is based on it" in "".join(found)


def test_a_disk_in_another_shared_folder_counts_as_the_asking_host_may_not_look_there(host, base):
    folder = host.root / "more"
    above = disk_image(folder / "db1_system.qcow2", base)
    shared = [*host.settings.shared_paths, str(folder)]
    host.settings = replace(host.settings, shared_paths=shared, images=str(folder))

    assert f"{above} is based on it" in "".join(asked(host, base))


def test_a_definition_that_was_kept_after_a_move_does_not_keep_the_disk_of_a_purged_vm(host, base):
    uuid = str(uuid5(NAMESPACE_DNS, "db1"))
    given = {"uuid": uuid, "kind": "file", "format": "qcow2", "boot": ""}
    departedvms.keep_definition(
        host.settings, "db1", VM.format(name="db1", source=f"file='{base}'", **given)
    )

    for other in (None, str(uuid5(NAMESPACE_DNS, "db2"))):
        assert "that this host kept after a move" in asked(host, base, other)[0]
    assert asked(host, base, uuid) == []
