"""The migration info of a host's VMs, and their obstacles: on libvirt's test driver."""

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
    """A function that defines a VM, m1, and returns its migration info."""
    with connect.open_connection(TEST, readonly=False) as conn:

        def define(*, settings=TEST, state="stopped", **parts):
            vm = conn.defineXML(VM.format_map({**PARTS, **parts}))
            change = lifecycle.destroy if state == "stopped" else lifecycle.start
            change(conn, "m1")
            if state == "saved":
                vm.managedSave(0)
            return migrationinfo.gather(conn, settings, "m1")["m1"]

        yield define
        lifecycle.destroy(conn, "m1")
        # The test driver does not know all flags that lifecycle.undefine takes.
        connect.domain(conn, "m1").undefineFlags(connect.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)


def test_a_saved_state_stays_behind_so_its_vm_does_not_move(moving):
    assert moving().obstacles == []

    (reason,) = moving(state="saved").obstacles

    assert reason.startswith("it has a saved state, which libvirt does not move; start it, or")
    assert "virsh managedsave-remove m1" in reason


@pytest.fixture
def pool():
    """A function that defines a pool of the test driver; it goes with the test."""
    with connect.open_connection(TEST, readonly=False) as conn:
        new_pools = []

        def define(kind, name, folder):
            xml = POOL.format(kind=kind, name=name, folder=folder)
            new_pools.append(conn.storagePoolDefineXML(xml))
            new_pools[-1].create()
            return conn

        yield define
        for new_pool in new_pools:
            if new_pool.isActive():
                new_pool.destroy()
            new_pool.undefine()


def test_a_volume_moves_where_every_host_has_it_and_is_named_where_not(moving, pool):
    pool("logical", "vg1", "/dev/vg1")
    volume = VOLUME.format(pool="vg1", name="lv1")
    ceph = (
        "<disk type='network'><source protocol='rbd' name='vms/a'><host name='m'/></source>"
        "<target dev='vda'/></disk>"
    )
    shared = HostSettings(uri="test:///default", shared_paths=("/dev/vg1",))

    (reason,) = moving(devices=volume).obstacles

    assert reason.startswith("its disk vg1/lv1 is a device of this host, or a volume of a pool; ")
    for info in (moving(devices=volume, settings=shared), moving(devices=ceph)):
        assert (info.obstacles, [disk.how for disk in info.disks]) == ([], ["shared"])


@pytest.mark.parametrize(("state", "how"), [("stopped", "push"), ("running", "copy")])
def test_a_volume_that_is_a_file_moves_as_one(moving, pool, tmp_path, state, how):
    conn = pool("dir", "vms", tmp_path)
    volume = VOLUME.format(pool="vms", name="m1_system")
    shared = HostSettings(uri="test:///default", shared_paths=(str(tmp_path),))
    (reason,) = moving(devices=volume).obstacles
    assert reason == f"its disk {tmp_path}/m1_system is missing or cannot be read"
    (tmp_path / "m1_system").write_bytes(bytes(8192))

    info = moving(devices=volume, state=state)

    (disk,) = info.disks
    assert (disk.path, disk.how, disk.pool) == (f"{tmp_path}/m1_system", how, "vms")
    assert (disk.size_bytes, info.obstacles) == (8192, [])
    # Settling a move checks whether these files exist.
    assert lifecycle.file_paths(conn, "m1") == [f"{tmp_path}/m1_system"]
    # On storage of all hosts it keeps the name that the definition has.
    (disk,) = moving(devices=volume, settings=shared).disks
    assert (disk.path, disk.how, disk.pool) == ("vms/m1_system", "shared", None)


def test_a_host_takes_such_a_volume_only_into_the_same_pool(moving, pool, tmp_path):
    conn = pool("dir", "vms", tmp_path)
    (tmp_path / "m1_system").write_bytes(bytes(8192))
    info = moving(devices=VOLUME.format(pool="vms", name="m1_system"))
    pool("dir", "other", "/elsewhere")

    def pool_reasons(name):
        disks = [replace(info.disks[0], pool=name)]
        return list(arrivalchecks._pool_reasons(conn, replace(info, disks=disks)))

    assert pool_reasons("vms") == pool_reasons(None) == []
    assert pool_reasons("none") == ["there is no pool none there, or it does not run"]
    assert pool_reasons("other") == [
        f"its pool other has the folder /elsewhere there, not {tmp_path}"
    ]
    conn.storagePoolLookupByName("vms").destroy()
    assert pool_reasons("vms") == ["there is no pool vms there, or it does not run"]


def test_a_host_takes_a_volume_only_where_it_has_it():
    shared = HostSettings(uri="test:///default", shared_paths=("/default-pool",))
    disk_facts = {"target": "vda", "format": "raw", "device": "disk", "base": None, "image": None}

    def volume_reasons(settings, path, how="shared"):
        disk = DiskFacts(path=path, how=how, **disk_facts)
        return list(arrivalchecks._volume_reasons(conn, settings, disk))

    with connect.open_connection(TEST, readonly=False) as conn:
        pool = conn.storagePoolLookupByName("default-pool")
        assert volume_reasons(shared, "default-pool/lv1")[0].startswith(
            "there is no volume lv1 in pool def"
        )
        volume = pool.createXML("<volume><name>lv1</name><capacity>512</capacity></volume>")
        assert volume_reasons(shared, "default-pool/lv1") == []
        assert (
            "virt:shared_paths there does not have it"
            in volume_reasons(TEST, "default-pool/lv1")[0]
        )
        volume.delete()
        assert volume_reasons(shared, "none/lv1") == [
            "there is no pool none there, or it does not run"
        ]
        for path, how in (("/srv/a", "shared"), ("rbd:vms/a", "shared"), ("a/b", "device")):
            assert volume_reasons(shared, path, how) == []


@pytest.mark.parametrize(
    "nvram", ["<nvram>{}</nvram>", "<nvram type='file'><source file='{}'/></nvram>"]
)
def test_the_variables_of_its_firmware_move_with_a_stopped_vm(moving, tmp_path, nvram):
    path = tmp_path / "m1_VARS.fd"
    os = "<loader readonly='yes' type='pflash'>/usr/share/fw.fd</loader>" + nvram.format(path)
    shared = HostSettings(uri="test:///default", shared_paths=(str(tmp_path),))
    assert moving(os=os).nvram == [], "it was never started"
    path.write_bytes(bytes(8192))

    (file,) = moving(os=os).nvram

    assert file == FileFacts(path=str(path), how="push", size_bytes=8192, actual_bytes=8192)
    assert moving(os=os, settings=shared).nvram == []
    # QEMU sends the variables of a running VM.
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

    (reason,) = moving(devices=element.format("emulator")).obstacles

    assert reason.startswith(
        "its emulated TPM has its state on this host, which does not move; start"
    )
    assert moving(devices=element.format("emulator"), state="running").obstacles == []


def test_the_persistent_definition_is_checked_too(moving, tmp_path):
    first = {"machine": "pc-q35-7.2", "os": f"<kernel>{tmp_path}/old</kernel>"}
    second = {"machine": "pc-q35-10.0", "os": f"<kernel>{tmp_path}/new</kernel>"}
    first_info = moving(**first, state="running")

    second_info = moving(**second, state="running")

    assert (first_info.machine, first_info.next_machine) == ("pc-q35-7.2", None)
    assert (second_info.machine, second_info.next_machine) == ("pc-q35-7.2", "pc-q35-10.0")
    assert second_info.files == [f"{tmp_path}/old", f"{tmp_path}/new"]
    stopped_info = moving(**second)
    assert (stopped_info.machine, stopped_info.next_machine) == ("pc-q35-10.0", None)


def test_an_element_of_a_newer_libvirt_counts_in_the_definition_alone():
    # As 11.3 shows it; the libvirt of these tests may be older, and leave it out.
    xml = (DATA / "generations" / "running13.xml").read_text()
    plain = xml.replace("<poll max='123'/>", "")
    root = readdomain.domain(plain)
    tags = dict.fromkeys(("checkpoints", "saved", "active", "autostart"), set())
    tags |= {"snapshots": {}, "host_cpu": None, "qemu": "10", "pools": {}}

    for definition, versions in ((plain, []), (xml, ["9.4"])):
        vm = query.Definition("m1", "running", root, readdomain.domain(definition))
        facts = migrationinfo._facts(TEST, vm, tags)
        assert [version for _feature, version in facts.newer] == versions


@pytest.mark.parametrize(
    ("device", "shared", "expected", "files"),
    [
        ("disk", (), ["its definition has the disk /srv/a.raw, without which it runs"], []),
        ("disk", ("/srv",), [], ["/srv/a.raw"]),
        ("cdrom", (), [], ["/srv/a.raw"]),
    ],
)
def test_a_disk_of_the_definition_alone_does_not_stay_behind(
    moving, device, shared, expected, files
):
    settings = HostSettings(uri="test:///default", shared_paths=shared)
    assert moving(settings=settings, state="running").obstacles == []
    disk = (
        f"<disk type='file' device='{device}'><source file='/srv/a.raw'/>"
        "<target dev='sda' bus='scsi'/></disk>"
    )

    info = moving(settings=settings, state="running", devices=disk)

    assert [reason.split(";")[0] for reason in info.obstacles] == expected
    assert info.files == files


def test_the_nat_networks_of_a_vm_are_in_its_info(moving):
    nic = "<interface type='network'><source network='{}'/></interface>"

    info = moving(devices=nic.format("default"))

    # The test driver's network forwards with NAT.
    assert (info.networks, info.nat) == (["default"], ["default"])
    bridge = "<interface type='bridge'><source bridge='br0'/></interface>"
    assert moving(devices=bridge).nat == []


@pytest.mark.parametrize(("state", "files"), [("stopped", ["/c"]), ("running", ["/c", "/t.qcow2"])])
def test_the_template_of_firmware_variables_is_needed_while_a_vm_runs(moving, state, files):
    # libvirt makes the file anew on the target; of a stopped VM the file itself is sent.
    nvram = "<nvram template='/t.qcow2'>/none/m1_VARS.fd</nvram>"
    info = moving(state=state, os=f"<loader type='pflash'>/c</loader>{nvram}")

    assert info.files == files
