"""A clone has copies of another VM's disks, and a definition of its own."""

import shutil
import subprocess
from pathlib import Path

import pytest
from clonekit import (
    FILES,
    change,
    cloned,
    definition,
    disk,
    given,
    has,
    info,
    nothing_of_it,
    write,
)
from saltvirt.core.errors import (
    BadArgument,
    LibvirtRefused,
    NameTaken,
    SeedError,
    StorageError,
    VirtError,
)
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage.images import clone, tool
from saltvirt.vm.clone.host import cloning
from saltvirt.vm.purge.host import purge
from saltvirt.xml import parse

pytestmark = pytest.mark.slow


def test_a_clone_has_copies_of_its_own_and_the_source_stays(hypervisor, stopped):
    before = lifecycle.secure_xml(stopped, "web1")

    assert cloned(hypervisor) is True

    assert stopped.lookupByName("db1").isActive() and not stopped.lookupByName("web1").isActive()
    assert lifecycle.secure_xml(stopped, "web1") == before and hypervisor.open_records() == []
    assert [one for one in hypervisor.files() if one.startswith("db1")] == FILES
    for name in ("system", "data"):
        path = disk(hypervisor, f"db1_{name}.qcow2")
        # Of an overlay, too, all is copied.
        assert has(path, 7) and "backing-filename" not in info(path)
        assert oct(path.stat().st_mode)[-3:] == "600"
    root = definition(hypervisor, "db1")
    assert root.findtext("uuid") != parse(before).findtext("uuid")
    sources = [one.get("file") for one in root.findall("devices/disk/source")]
    assert sorted(Path(one).name for one in sources) == FILES
    purge.purge(stopped, hypervisor.settings, "db1")
    assert nothing_of_it(hypervisor) and len(hypervisor.files()) == 3


@pytest.mark.parametrize(("more", "starts"), [({}, set()), ({"autostart": True}, {"db1"})])
def test_a_clone_starts_with_the_host_if_it_is_to_whatever_its_source_does(
    hypervisor, stopped, more, starts
):
    lifecycle.set_autostart(stopped, "web1", "on")

    cloned(hypervisor, start=False, **more)

    assert lifecycle.list_autostarted_domains(stopped) - {"web1"} == starts


def test_snapshots_within_a_disk_are_not_copied(hypervisor, stopped):
    path = disk(hypervisor, "web1_data.qcow2")
    subprocess.run(["qemu-img", "snapshot", "-c", "old", path], check=True)
    write(path, 9)
    snapshot = "<domainsnapshot><name>old</name></domainsnapshot>"
    stopped.lookupByName("web1").snapshotCreateXML(snapshot, 0)

    said = cloned(hypervisor, start=False)

    assert "snapshots of 'web1' are not copied" in said["warnings"][0]
    path = disk(hypervisor, "db1_data.qcow2")
    assert has(path, 9) and "snapshots" not in info(path)
    assert not stopped.lookupByName("db1").isActive()


def test_all_that_a_snapshot_has_left_below_a_disk_is_copied(hypervisor, stopped):
    old, new = disk(hypervisor, "web1_data.qcow2"), disk(hypervisor, "web1_data.snap1")
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", old, new]
    subprocess.run(argv, check=True)
    change(stopped, "web1", lambda xml: xml.replace(str(old), str(new)))

    cloned(hypervisor)

    path = disk(hypervisor, "db1_data.qcow2")
    assert has(path, 7) and "backing-filename" not in info(path)


def test_a_raw_disk_is_copied_as_it_is(hypervisor, stopped):
    """Whatever its guest has written: it looks like another format here."""
    old, raw = disk(hypervisor, "web1_data.qcow2"), disk(hypervisor, "web1_data.raw")
    old.rename(raw)
    head = f"<source file='{old}'/>"
    change(stopped, "web1", lambda xml: _as_raw(xml, head, raw))

    cloned(hypervisor)

    assert disk(hypervisor, "db1_data.raw").read_bytes() == raw.read_bytes()


def _as_raw(xml, head, raw):
    before, _, after = xml.partition(head)
    start, _, driver = before.rpartition("type='qcow2'")
    return f"{start}type='raw'{driver}<source file='{raw}'/>{after}"


def give_firmware(stopped, variables):
    """Have web1 started by firmware with these variables."""
    variables.write_bytes(b"boot order")
    loader = "<loader readonly='yes' type='pflash'>/fw/code.fd</loader>"
    change(
        stopped, "web1", lambda x: x.replace("</os>", f"{loader}<nvram>{variables}</nvram></os>")
    )


def test_the_firmwares_variables_are_copied(hypervisor, stopped):
    variables = hypervisor.root / "web1_VARS.fd"
    give_firmware(stopped, variables)

    cloned(hypervisor)

    own = definition(hypervisor, "db1").findtext("os/nvram")
    assert own == str(hypervisor.root / "db1_VARS.fd")
    assert Path(own).read_bytes() == b"boot order"


def test_firmwares_variables_that_begin_like_the_name_of_another_vm_take_none_of_its_names(
    hypervisor, stopped
):
    # Of a VM that was called web10 before virsh domrename.
    variables = hypervisor.root / "web10_VARS.fd"
    give_firmware(stopped, variables)

    cloned(hypervisor)

    own = definition(hypervisor, "db1").findtext("os/nvram")
    assert own == str(hypervisor.root / "db1_VARS.fd"), "db10_VARS.fd is what db10 will have"


def test_without_a_seed_the_guest_is_its_sources(hypervisor, stopped):
    keys = {"pub_key": None, "priv_key": None, "seed_method": None}

    said = cloned(hypervisor, seed=False, **keys)

    assert "has the identity of 'web1' in it" in said["warnings"][-1]
    assert [one for one in hypervisor.files() if one.startswith("db1")] == [FILES[0], FILES[2]]
    sources = [one.get("file") for one in definition(hypervisor, "db1").iter("source")]
    assert not any("seed" in Path(one).name for one in sources if one)


def test_the_seed_takes_away_what_the_disk_has_of_the_source(hypervisor, stopped):
    cloned(hypervisor)

    seed = disk(hypervisor, "db1_seed.iso.qcow2").read_bytes()
    assert b"rm -f $pki/minion.pem $pki/minion.pub /etc/machine-id" in seed
    assert b"rm -f $pki/minion.pem $pki" not in disk(hypervisor, "web1_seed.iso.qcow2").read_bytes()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(hypervisor, stopped):
    before = hypervisor.files()

    said = cloning.show(hypervisor.context, "web1", "db1", given())

    assert (said["source"], said["name"]) == ("web1", "db1")
    assert [one["made"] for one in said["disks"]] == ["copy", "copy"]
    assert [Path(one).name for one in said["files"]] == [FILES[2], FILES[0], FILES[1]]
    assert "db1_data.qcow2" in said["xml"] and said["seed"]["method"] == "nocloud"
    assert hypervisor.files() == before and nothing_of_it(hypervisor)


def test_a_dry_run_shows_no_password_and_the_clone_has_it(hypervisor, stopped):
    """What a dry run returns is in the job cache, and on the bus of the master."""
    display = "<graphics type='vnc' port='-1' passwd='Xmarkedpw'><listen type='none'/></graphics>"
    change(stopped, "web1", lambda xml: xml.replace("</devices>", f"{display}</devices>"))

    said = cloning.show(hypervisor.context, "web1", "db1", given())

    assert "<graphics" in said["xml"] and "Xmarkedpw" not in str(said)
    assert cloned(hypervisor) is True
    assert "passwd='Xmarkedpw'" in lifecycle.secure_xml(stopped, "db1")


CANNOT = {
    "<tpm model='tpm-tis'><backend type='emulator' version='2.0'/></tpm>": "has a TPM",
    "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0' bus='6'"
    " slot='0' function='0'/></source></hostdev>": "has a device of this host",
    "<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/sdz'/>"
    "<target dev='vdz' bus='virtio'/></disk>": "vdz .* is in no storage pool of this host",
    "<disk type='file' device='disk'><driver name='qemu' type='vdi'/><source file='/srv/x.vdi'/>"
    "<target dev='vdz' bus='virtio'/></disk>": "format 'vdi' is not copied",
    "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/srv/x.raw'/>"
    "<target dev='vdz' bus='virtio'/></disk>": "/srv/x.raw.* is missing",
}


@pytest.mark.parametrize(("device", "why"), CANNOT.items(), ids=lambda text: text[:12])
def test_what_only_one_vm_can_have_is_refused_with_the_reason(hypervisor, stopped, device, why):
    change(stopped, "web1", lambda xml: xml.replace("</devices>", f"{device}</devices>"))

    for work in (cloning.create, cloning.show):
        with pytest.raises(VirtError, match=why):
            work(hypervisor.context, "web1", "db1", given())

    assert nothing_of_it(hypervisor)


def test_a_shareable_disk_is_the_sources_and_this_is_said(hypervisor, stopped):
    both = hypervisor.root / "both.raw"
    both.write_bytes(b"x" * 4096)
    device = (
        f"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{both}'/>"
        "<target dev='vdz' bus='virtio'/><shareable/></disk>"
    )
    change(stopped, "web1", lambda xml: xml.replace("</devices>", f"{device}</devices>"))

    said = cloned(hypervisor)

    assert "disk vdz" in said["warnings"][0] and "which is shareable, is not copied" in str(said)
    sources = [one.get("file") for one in definition(hypervisor, "db1").iter("source")]
    assert str(both) in sources
    purge.purge(stopped, hypervisor.settings, "db1")
    assert both.exists()


def test_a_vm_that_runs_or_has_a_saved_state_is_refused(hypervisor, stopped):
    stopped.lookupByName("web1").create()
    with pytest.raises(LibvirtRefused, match=r"'web1' runs.*virt.shutdown web1"):
        cloned(hypervisor)

    stopped.lookupByName("web1").managedSave(0)
    with pytest.raises(LibvirtRefused, match=r"has a saved state.*managedsave-remove web1"):
        cloned(hypervisor)

    assert nothing_of_it(hypervisor)


def test_names_and_arguments_are_checked_as_by_init(hypervisor, stopped):
    with pytest.raises(NameTaken, match="a VM called 'web2' exists"):
        hypervisor.init("web2")
        cloned(hypervisor, name="web2")
    for source, name, more, why in (
        ("web1", "web1", {}, "needs a name of its own"),
        ("web1", "../x", {}, "name"),
        ("gone", "db1", {}, "no VM called 'gone'"),
        ("web1", "db1", {"colour": "red"}, "colour"),
        ("web1", "db1", {"seed_cmd": "x.y"}, "seed_cmd"),
        ("web1", "db1", {"seed_method": "credentials"}, "take nothing away of what the disk has"),
    ):
        with pytest.raises(VirtError, match=why):
            cloned(hypervisor, source, name, **more)
    assert nothing_of_it(hypervisor)


def test_a_file_of_that_name_is_nobodys_to_write_over(hypervisor, stopped):
    disk(hypervisor, "db1_data.qcow2").write_bytes(b"somebody's")

    with pytest.raises(StorageError, match="db1_data.qcow2 is there already"):
        cloned(hypervisor)

    assert disk(hypervisor, "db1_data.qcow2").read_bytes() == b"somebody's"
    assert [one for one in hypervisor.files() if one.startswith("db1")] == ["db1_data.qcow2"]


def test_keys_need_something_to_be_seeded(hypervisor, stopped):
    with pytest.raises(BadArgument, match="nothing to seed"):
        cloned(hypervisor, seed=False)
    with pytest.raises(SeedError, match="whether image .* has a salt-minion cannot be seen"):
        cloned(hypervisor, seed_method="auto")
    assert nothing_of_it(hypervisor)


def test_a_volume_of_a_pool_is_copied_by_libvirt(hypervisor, stopped):
    folder = hypervisor.root / "dev"
    pool = stopped.storagePoolDefineXML(
        "<pool type='rbd'><name>p</name><source><host name='mon'/><name>vms</name></source>"
        "</pool>"
    )
    pool.create()
    pool.createXML("<volume><name>web1_big</name><capacity>8388608</capacity></volume>")
    device = (
        "<disk type='network' device='disk'><driver name='qemu' type='raw'/>"
        "<source protocol='rbd' name='vms/web1_big'><host name='mon'/></source>"
        "<target dev='vdz' bus='virtio'/></disk>"
    )
    change(stopped, "web1", lambda xml: xml.replace("</devices>", f"{device}</devices>"))
    try:
        cloned(hypervisor)
        made = {one.name() for one in pool.listAllVolumes()}
        source = definition(hypervisor, "db1").find("devices/disk[target]/source[@name]")
        assert made == {"web1_big", "db1_big"} and source.get("name") == "vms/db1_big"
        assert not folder.exists()
        purge.purge(stopped, hypervisor.settings, "db1")
        assert {one.name() for one in pool.listAllVolumes()} == {"web1_big"}
    finally:
        pool.destroy()
        pool.undefine()


@pytest.fixture
def in_pools(hypervisor, stopped):
    """A VM of whose disk one of two pools that have one folder is said to have it."""
    folder = hypervisor.root / "vms"
    folder.mkdir()
    made = []
    for name, path in (("p", folder), ("other", hypervisor.root / "link")):
        if not path.exists():
            path.symlink_to(folder)
        xml = f"<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"
        made.append(stopped.storagePoolCreateXML(xml))
    shutil.copy(disk(hypervisor, "web1_data.qcow2"), folder / "web1_data.qcow2")
    old = disk(hypervisor, "web1_data.qcow2")

    def in_pool(xml):
        start, _, end = xml.partition(f"<source file='{old}'")
        before, _, kind = start.rpartition("type='file'")
        return f"{before}type='volume'{kind}<source pool='p' volume='web1_data.qcow2'{end}"

    change(stopped, "web1", in_pool)
    yield folder
    for pool in made:
        pool.destroy()


def test_a_volume_is_made_known_to_the_pool_that_its_source_names(
    hypervisor, in_pools, monkeypatch
):
    told = []
    monkeypatch.setattr(hostfacts, "refresh_pool", lambda _conn, name: told.append(name))

    cloned(hypervisor)

    assert (in_pools / "db1_data.qcow2").exists() and set(told) == {"p"}


def test_a_volume_that_was_written_to_meanwhile_is_worth_nothing(hypervisor, in_pools, monkeypatch):
    convert = tool.convert

    def meanwhile(*args):
        convert(*args)
        write(in_pools / "web1_data.qcow2", 9)

    monkeypatch.setattr(clone.tool, "convert", meanwhile)

    with pytest.raises(LibvirtRefused, match="was used while it was copied"):
        cloned(hypervisor)

    assert nothing_of_it(hypervisor)
