"""What a host says of VMs that are to move, and what keeps them: on libvirt's test driver."""

from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.migration.host import arrivalchecks
from saltvirt.placement.answers import DiskFacts, FileFacts
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml.domain import tpm
from saltvirt.xml.edit import readdomain

DATA = Path(__file__).resolve().parents[2] / "data"
TEST = HostSettings(uri="test:///default")
VM = """<domain type='test'><name>m1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>
<memory>1024</memory><os><type arch='i686' machine='{machine}'>hvm</type>{os}</os>{inside}
<devices>{devices}</devices></domain>"""
VOLUME = "<disk type='volume'><source pool='{pool}' volume='{name}'/><target dev='vda'/></disk>"
POOL = """<pool type='{kind}'><name>{name}</name><source><name>{name}</name></source>
<target><path>{folder}</path></target></pool>"""
PARTS = {"machine": "pc", "os": "", "inside": "", "devices": ""}


@pytest.fixture
def moving():
    """A function that defines a VM, m1, and returns what its host says of it."""
    with connect.open_connection(TEST, readonly=False) as conn:

        def define(*, settings=TEST, state="stopped", **parts):
            dom = conn.defineXML(VM.format_map({**PARTS, **parts}))
            change = lifecycle.destroy if state == "stopped" else lifecycle.start
            change(conn, "m1")
            if state == "saved":
                dom.managedSave(0)
            return migrationinfo.gather(conn, settings, "m1")["m1"]

        yield define
        lifecycle.destroy(conn, "m1")
        # The test driver does not know all flags that lifecycle.undefine takes.
        connect.domain(conn, "m1").undefineFlags(connect.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)


def test_a_saved_state_stays_behind_so_its_vm_does_not_move(moving):
    assert moving().obstacles == []

    (why,) = moving(state="saved").obstacles

    assert why.startswith("it has a saved state, which libvirt does not move; start it, or")
    assert "virsh managedsave-remove m1" in why


@pytest.fixture
def pool():
    """A function that defines a pool of the test driver; it goes with the test."""
    with connect.open_connection(TEST, readonly=False) as conn:
        made = []

        def define(kind, name, folder):
            xml = POOL.format(kind=kind, name=name, folder=folder)
            made.append(conn.storagePoolDefineXML(xml))
            made[-1].create()
            return conn

        yield define
        for one in made:
            if one.isActive():
                one.destroy()
            one.undefine()


def test_a_volume_moves_where_every_host_has_it_and_is_named_where_not(moving, pool):
    pool("logical", "vg1", "/dev/vg1")
    volume = VOLUME.format(pool="vg1", name="lv1")
    ceph = (
        "<disk type='network'><source protocol='rbd' name='vms/a'><host name='m'/></source>"
        "<target dev='vda'/></disk>"
    )
    shared = HostSettings(uri="test:///default", shared_paths=("/dev/vg1",))

    (why,) = moving(devices=volume).obstacles

    assert why.startswith("its disk vg1/lv1 is a device of this host, or a volume of a pool; ")
    for there in (moving(devices=volume, settings=shared), moving(devices=ceph)):
        assert (there.obstacles, [one.how for one in there.disks]) == ([], ["shared"])


@pytest.mark.parametrize(("state", "how"), [("stopped", "push"), ("running", "copy")])
def test_a_volume_that_is_a_file_moves_as_one(moving, pool, tmp_path, state, how):
    conn = pool("dir", "vms", tmp_path)
    volume = VOLUME.format(pool="vms", name="m1_system")
    shared = HostSettings(uri="test:///default", shared_paths=(str(tmp_path),))
    (why,) = moving(devices=volume).obstacles
    assert why == f"its disk {tmp_path}/m1_system is missing or cannot be read"
    (tmp_path / "m1_system").write_bytes(bytes(8192))

    there = moving(devices=volume, state=state)

    (disk,) = there.disks
    assert (disk.path, disk.how, disk.pool) == (f"{tmp_path}/m1_system", how, "vms")
    assert (disk.size_bytes, there.obstacles) == (8192, [])
    # Whoever settles the move looks whether they are there.
    assert lifecycle.file_paths(conn, "m1") == [f"{tmp_path}/m1_system"]
    # Where all hosts have it, it stays what the definition calls it.
    (disk,) = moving(devices=volume, settings=shared).disks
    assert (disk.path, disk.how, disk.pool) == ("vms/m1_system", "shared", None)


def test_a_host_takes_such_a_volume_only_into_the_same_pool(moving, pool, tmp_path):
    conn = pool("dir", "vms", tmp_path)
    (tmp_path / "m1_system").write_bytes(bytes(8192))
    there = moving(devices=VOLUME.format(pool="vms", name="m1_system"))
    pool("dir", "other", "/elsewhere")

    def why(name):
        disks = [replace(there.disks[0], pool=name)]
        return list(arrivalchecks._pool_reasons(conn, replace(there, disks=disks)))

    assert why("vms") == why(None) == []
    assert why("none") == ["there is no pool none there, or it does not run"]
    assert why("other") == [f"its pool other has the folder /elsewhere there, not {tmp_path}"]
    conn.storagePoolLookupByName("vms").destroy()
    assert why("vms") == ["there is no pool vms there, or it does not run"]


def test_a_host_takes_a_volume_only_where_it_has_it():
    shared = HostSettings(uri="test:///default", shared_paths=("/default-pool",))
    usual = {"target": "vda", "format": "raw", "device": "disk", "base": None, "image": None}

    def why(settings, path, how="shared"):
        disk = DiskFacts(path=path, how=how, **usual)
        return list(arrivalchecks._volume_reasons(conn, settings, disk))

    with connect.open_connection(TEST, readonly=False) as conn:
        pool = conn.storagePoolLookupByName("default-pool")
        assert why(shared, "default-pool/lv1")[0].startswith("there is no volume lv1 in pool def")
        made = pool.createXML("<volume><name>lv1</name><capacity>512</capacity></volume>")
        assert why(shared, "default-pool/lv1") == []
        assert "virt:shared_paths there does not have it" in why(TEST, "default-pool/lv1")[0]
        made.delete()
        assert why(shared, "none/lv1") == ["there is no pool none there, or it does not run"]
        for path, how in (("/srv/a", "shared"), ("rbd:vms/a", "shared"), ("a/b", "device")):
            assert why(shared, path, how) == []


@pytest.mark.parametrize(
    "nvram", ["<nvram>{}</nvram>", "<nvram type='file'><source file='{}'/></nvram>"]
)
def test_what_its_firmware_noted_travels_with_a_stopped_vm(moving, tmp_path, nvram):
    path = tmp_path / "m1_VARS.fd"
    os = "<loader readonly='yes' type='pflash'>/usr/share/fw.fd</loader>" + nvram.format(path)
    shared = HostSettings(uri="test:///default", shared_paths=(str(tmp_path),))
    assert moving(os=os).nvram == [], "it was never started"
    path.write_bytes(bytes(8192))

    (file,) = moving(os=os).nvram

    assert file == FileFacts(path=str(path), how="push", size_bytes=8192, actual_bytes=8192)
    assert moving(os=os, settings=shared).nvram == []
    # Of a running one QEMU sends them.
    assert moving(os=os, state="running").nvram[0].how == "copy"


@pytest.mark.parametrize(
    ("inside", "path"),
    [
        ("", "/var/lib/libvirt/qemu/nvram/m1_VARS.fd"),
        ("<nvram template='/usr/share/vars.fd'/>", "/var/lib/libvirt/qemu/nvram/m1_VARS.fd"),
        ("<loader stateless='yes'/>", None),
        ("<nvram type='network'><source protocol='rbd' name='a/b'/></nvram>", None),
        ("<nvram type='block'><source dev='/dev/vg/vars'/></nvram>", "/dev/vg/vars"),
    ],
)
def test_firmware_that_libvirt_chooses_has_its_variables_where_libvirt_puts_them(inside, path):
    root = readdomain.domain(f"<domain><name>m1</name><os firmware='efi'>{inside}</os></domain>")

    assert readdomain.firmware_variables(root) == path
    assert readdomain.firmware_variables(readdomain.domain("<domain><os/></domain>")) is None


def test_a_stopped_vm_does_not_lose_the_secrets_of_its_tpm(moving, tmp_path, monkeypatch):
    element = "<tpm model='tpm-crb'><backend type='{}' version='2.0'/></tpm>"
    monkeypatch.setattr(tpm, "_STATES", str(tmp_path))
    assert moving(devices=element.format("emulator")).obstacles == [], "it was never started"
    (tmp_path / "4dea22b3-1d52-d8f3-2516-782e98ab3fa0").mkdir()

    (why,) = moving(devices=element.format("emulator")).obstacles

    assert why.startswith("its emulated TPM has its state on this host, which does not move; start")
    assert moving(devices=element.format("emulator"), state="running").obstacles == []


def test_the_definition_that_goes_along_is_checked_too(moving, tmp_path):
    first = {"machine": "pc-q35-7.2", "os": f"<kernel>{tmp_path}/old</kernel>"}
    second = {"machine": "pc-q35-10.0", "os": f"<kernel>{tmp_path}/new</kernel>"}
    alone = moving(**first, state="running")

    both = moving(**second, state="running")

    assert (alone.machine, alone.next_machine) == ("pc-q35-7.2", None)
    assert (both.machine, both.next_machine) == ("pc-q35-7.2", "pc-q35-10.0")
    assert both.files == [f"{tmp_path}/old", f"{tmp_path}/new"]
    stopped = moving(**second)
    assert (stopped.machine, stopped.next_machine) == ("pc-q35-10.0", None)


def test_what_only_the_definition_has_of_a_newer_libvirt_counts():
    # As 11.3 shows it; the libvirt of these tests may be older, and leave it out.
    xml = (DATA / "generations" / "running13.xml").read_text()
    plain = xml.replace("<poll max='123'/>", "")
    root = readdomain.domain(plain)
    tags = dict.fromkeys(("checkpoints", "saved", "active", "autostart"), set())
    tags |= {"snapshots": {}, "host_cpu": None, "qemu": "10", "pools": {}}

    for later, since in ((plain, []), (xml, ["9.4"])):
        vm = query.Definition("m1", "running", root, readdomain.domain(later))
        found = migrationinfo._facts(TEST, vm, tags)
        assert [version for _what, version in found.newer] == since


@pytest.mark.parametrize(
    ("device", "shared", "why", "files"),
    [
        ("disk", (), ["its definition has the disk /srv/a.raw, without which it runs"], []),
        ("disk", ("/srv",), [], ["/srv/a.raw"]),
        ("cdrom", (), [], ["/srv/a.raw"]),
    ],
)
def test_a_disk_of_the_definition_alone_does_not_stay_behind(moving, device, shared, why, files):
    settings = HostSettings(uri="test:///default", shared_paths=shared)
    assert moving(settings=settings, state="running").obstacles == []
    disk = (
        f"<disk type='file' device='{device}'><source file='/srv/a.raw'/>"
        "<target dev='sda' bus='scsi'/></disk>"
    )

    found = moving(settings=settings, state="running", devices=disk)

    assert [one.split(";")[0] for one in found.obstacles] == why
    assert found.files == files


def test_behind_whose_nat_a_vm_is_travels_with_it(moving):
    nic = "<interface type='network'><source network='{}'/></interface>"

    about = moving(devices=nic.format("default"))

    # The test driver's network forwards with NAT.
    assert (about.networks, about.nat) == (["default"], ["default"])
    bridged = "<interface type='bridge'><source bridge='br0'/></interface>"
    assert moving(devices=bridged).nat == []


@pytest.mark.parametrize(("state", "files"), [("stopped", ["/c"]), ("running", ["/c", "/t.qcow2"])])
def test_the_template_of_firmware_variables_is_needed_while_a_vm_runs(moving, state, files):
    # libvirt makes the file anew on the target; of a stopped VM the file itself is sent.
    nvram = "<nvram template='/t.qcow2'>/none/m1_VARS.fd</nvram>"
    found = moving(state=state, os=f"<loader type='pflash'>/c</loader>{nvram}")

    assert found.files == files
