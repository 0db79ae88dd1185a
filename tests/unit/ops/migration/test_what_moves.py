"""What a host says of VMs that are to move, and what keeps them: on libvirt's test driver."""

from pathlib import Path

import pytest
from saltvirt.config import HostSettings
from saltvirt.kvm import connect, lifecycle
from saltvirt.ops.migration import migrationinfo
from saltvirt.placement.answers import FileFacts
from saltvirt.xml import read, tpm

DATA = Path(__file__).resolve().parents[3] / "data"
TEST = HostSettings(uri="test:///default")
VM = """<domain type='test'><name>m1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>
<memory>1024</memory><os><type arch='i686' machine='{machine}'>hvm</type>{os}</os>{inside}
<devices>{devices}</devices></domain>"""
PARTS = {"machine": "pc", "os": "", "inside": "", "devices": ""}


@pytest.fixture
def moving():
    """A function that defines a VM, m1, and returns what its host says of it."""
    with connect.opened(TEST, readonly=False) as conn:

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
    root = read.domain(f"<domain><name>m1</name><os firmware='efi'>{inside}</os></domain>")

    assert read.firmware_variables(root) == path
    assert read.firmware_variables(read.domain("<domain><os/></domain>")) is None


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
    row = {"name": "m1", "state": "running", "max_vcpus": 1, "max_memory_kib": 1024, "xml": plain}
    tags = dict.fromkeys(("checkpoints", "saved", "autostart"), set())
    tags |= {"snapshots": {}, "host_cpu": None, "qemu": "10"}

    for later, since in ((plain, []), (xml, ["9.4"])):
        found = migrationinfo._facts(TEST, {**row, "next_xml": later}, tags)
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
