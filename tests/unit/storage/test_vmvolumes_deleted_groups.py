"""No volume group goes of which anybody needs a volume, or nobody can tell."""

import dataclasses

import faces
import onrecord
import pytest
import verdicts
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.storage import policies, references, trash
from saltvirt.storage.verdict import Reference
from test_unreadablechains import VM, overlay

GROUP = """<pool type='logical'><name>{0}</name><source><name>vg1</name></source>
<target><path>/dev/vg1</path></target></pool>"""


@pytest.fixture
def host(hypervisor):
    """A host with a trash and two pools of one volume group, none of which runs."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    with hypervisor.libvirt() as conn:
        made = [conn.storagePoolDefineXML(GROUP.format(name)) for name in ("vg1", "other")]
        hypervisor.conn = conn
        yield hypervisor
        for one in made:
            if one.name() in conn.listDefinedStoragePools():
                one.undefine()


def delete(host, pool="vg1"):
    """Delete a pool by virt.pool_delete."""
    opts = {"state_dir": host.settings.state_dir}
    return faces.load("modules", "virt_pool", opts).pool_delete(pool)


@pytest.mark.parametrize("source", [policies.BACKING, policies.SNAPSHOT, policies.TRASH])
def test_a_group_stays_of_which_a_disk_needs_a_volume(host, monkeypatch, source):
    # Mocked: without LVM nothing is based on a volume of a group.
    reference = Reference(source=source, owner="deep", reason="VM 'deep' needs it")
    found = {**references.PROVIDERS, source: lambda _host: iter([("/dev/vg1/base", reference)])}
    monkeypatch.setattr(references, "PROVIDERS", found)

    why = "'vg1' stays, as /dev/vg1/base would go with it: VM 'deep' needs it"
    with pytest.raises(StorageError, match=why):
        delete(host)


@pytest.mark.parametrize("disk", ["/dev/mapper/vg1-web1_system", "other/web1_system"])
def test_a_group_stays_in_which_a_disk_is_made(host, disk):
    says = onrecord.build(paths=[disk])
    with records.hold_record(reservations.folder(host.settings), "build", "web1") as held:
        held.begin("t1", moveprotocol.MAKING, **says)
        why = f"'vg1' stays, as {disk} would go with it: it is to be a disk of VM 'web1', which is"

        with pytest.raises(StorageError, match=why):
            delete(host)
        held.end()

    assert delete(host) is True


def test_a_group_stays_while_nobody_can_tell_what_a_vm_is_based_on(host, tmp_path):
    middle = overlay(tmp_path / "middle.qcow2")
    top = overlay(tmp_path / "top.qcow2", middle)
    middle.unlink()
    vm = host.conn.defineXML(VM.format("file", f"file='{top}'"))
    why = "pool 'vg1' stays: a VM may be based on it: .*middle.qcow2 of VM 'deep' is"

    with pytest.raises(StorageError, match=why):
        delete(host)

    vm.undefine()
    assert delete(host) is True


def test_a_group_stays_while_nobody_can_tell_what_the_trash_is_based_on(host, tmp_path):
    with trash.fill_trash(host.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(overlay(tmp_path / "disks/top.qcow2")))
    (tmp_path / "disks").rename(tmp_path / "away")

    with pytest.raises(
        StorageError, match="pool 'vg1' stays: entry .* of the trash may be based on it: "
    ):
        delete(host)


def test_a_folder_that_goes_is_empty_whatever_a_vm_is_based_on(host, tmp_path):
    host.conn.defineXML(VM.format("file", f"file='{tmp_path}/gone.qcow2'"))
    folder = tmp_path / "empty"
    folder.mkdir()
    host.conn.storagePoolDefineXML(
        f"<pool type='dir'><name>p1</name><target><path>{folder}</path></target></pool>"
    )

    assert delete(host, "p1") is True


@pytest.mark.parametrize("shared", ["/dev/vg1", "/dev", "/dev/vg1/db1", "/dev/mapper/vg1-db1"])
def test_a_group_stays_that_other_hosts_see(host, shared):
    opts = {"state_dir": host.settings.state_dir, "shared_paths": [shared]}

    with pytest.raises(StorageError, match="'vg1' stays: its group is on storage that other hosts"):
        faces.load("modules", "virt_pool", opts).pool_delete("vg1")
