"""A VM stays for what it has of its host, and in a state that is neither running nor off."""

import struct
from os import chown

import pytest
from saltvirt.core.errors import NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import query
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml.edit import readdomain

TEST = HostSettings(uri="test:///default")
QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
NVME = (
    "<disk type='nvme' device='disk'><source type='pci' managed='yes' namespace='1'>"
    "<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>"
    "<target dev='vda' bus='virtio'/></disk>"
)
NBD = (
    "<disk type='network'><source protocol='nbd' name='a'>"
    "<host transport='unix' socket='/run/a'/></source><target dev='vda'/></disk>"
)
FOLDER = (
    "<filesystem type='mount'><driver type='virtiofs'/><source dir='{}'/><target dir='a'/>"
    "</filesystem>"
)
MEMORY = (
    "<memory model='nvdimm'><source><path>{}</path></source>"
    "<target><size unit='KiB'>1</size></target></memory>"
)


def obstacles(devices="", more="", settings=TEST, is_running=False):
    """Return the obstacles of a VM with these devices."""
    root = readdomain.domain(
        f"<domain {QEMU}><name>m1</name>{more}<devices>{devices}</devices></domain>"
    )
    return list(migrationinfo.host_obstacles(settings, root, is_running=is_running))


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (NVME, "its disk vda is an NVMe device of this host, which cannot move; detach it first"),
        (NBD, "its disk vda is behind a socket of this host, which cannot move; detach it first"),
        (
            "<tpm model='tpm-tis'><backend type='passthrough'/></tpm>",
            "it has a device of this host, which cannot move; detach it first",
        ),
    ],
)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_device_of_this_host_stays(devices, reason, is_running):
    assert obstacles(devices, is_running=is_running) == [reason]


def test_a_disk_that_is_no_device_of_this_host_moves():
    drive = "<disk type='file' device='cdrom'><target dev='sda'/></disk>"
    ceph = NBD.replace("transport='unix' socket='/run/a'", "name='mon1'")
    assert obstacles(drive + ceph + "<tpm model='tpm-tis'><backend type='emulator'/></tpm>") == []


def test_a_folder_that_its_guest_shares_moves_only_where_every_host_has_it(tmp_path):
    shared = HostSettings(uri=TEST.uri, shared_paths=(str(tmp_path),))
    devices = FOLDER.format(tmp_path / "a")

    (reason,) = obstacles(devices)

    assert reason.startswith(f"its guest shares {tmp_path}/a with this host, which does not move; ")
    assert obstacles(devices, settings=shared) == obstacles("<filesystem type='ram'/>") == []


def test_a_disk_behind_libvirts_back_moves_only_where_every_host_has_it(tmp_path):
    shared = HostSettings(uri=TEST.uri, shared_paths=(str(tmp_path),))
    command_line = (
        "<qemu:commandline><qemu:arg value='-drive'/>"
        f"<qemu:arg value='file={tmp_path}/a.raw,if=none'/></qemu:commandline>"
    )

    (reason,) = obstacles(more=command_line)

    assert reason.startswith(
        f"QEMU is given {tmp_path}/a.raw by <qemu:commandline>, which does not "
    )
    assert (
        obstacles(more=command_line, settings=shared)
        == obstacles(more=command_line.replace("-drive", "-device"))
        == []
    )


def test_the_persistent_memory_of_a_stopped_vm_is_not_lost(tmp_path):
    path = tmp_path / "memory"
    assert obstacles(MEMORY.format(path)) == [], "QEMU makes it when the VM is first started"
    path.touch()

    (reason,) = obstacles(MEMORY.format(path))

    assert reason.startswith(
        f"its persistent memory is in {path} on this host, which does not move;"
    )
    # QEMU sends the memory of a running VM.
    assert obstacles(MEMORY.format(path), is_running=True) == []


def test_variables_of_its_firmware_on_a_device_are_not_left_out(tmp_path):
    os = f"<os firmware='efi'><nvram>{tmp_path}</nvram></os>"

    (reason,) = obstacles(more=os)

    assert reason.startswith(f"its firmware's variables are in {tmp_path}, a device of this host; ")
    assert obstacles(more=os.replace("</nvram>", "/none</nvram>")) == []


def test_variables_of_its_firmware_behind_a_planted_link_do_not_move(tmp_path):
    """QEMU's user may write to that folder; root would send what the link leads to."""
    secret, path = tmp_path / "shadow", tmp_path / "m1_VARS.fd"
    secret.touch()
    path.symlink_to(secret)
    os = f"<os firmware='efi'><nvram>{path}</nvram></os>"
    assert obstacles(more=os) == []
    chown(path, 64055, 64055, follow_symlinks=False)

    (reason,) = obstacles(more=os)

    assert reason.startswith(
        f"its firmware's variables are in {path}, a link that root has not made"
    )


def test_a_disk_with_its_content_in_another_file_is_not_sent_without_that(tmp_path):
    path = tmp_path / "a.qcow2"
    header = struct.pack(">4sIQIIQI", b"QFI\xfb", 3, 0, 0, 16, 2**20, 0)
    path.write_bytes(
        header.ljust(72, b"\0") + struct.pack(">Q", 4) + bytes(20) + bytes([0, 0, 0, 104])
    )
    disk = {"target": "vda", "device": "disk", "type": "file", "path": str(path)}
    disk |= {"format": "qcow2", "backing": None, "is_readonly": False}

    facts = migrationinfo._disk(TEST, disk, False, {})
    (reason,) = migrationinfo._disk_obstacles([facts])

    assert facts.how == "split"
    assert reason.startswith(
        f"its disk {path} has its content in a data file of its own, which does"
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (6, "it has crashed, and its QEMU is still there; stop it first (virt.stop m1)"),
        (4, "it is being shut down at this moment; try again when it is off"),
        (3, None),
        (7, None),
    ],
)
def test_a_vm_that_neither_runs_nor_is_off_stays(monkeypatch, state, reason):
    """Libvirt would send its definition, while QEMU still has the disks open here."""
    xml = (
        "<domain type='test'><name>m1</name><memory>1024</memory>"
        "<os><type>hvm</type></os></domain>"
    )
    real_read_statistics = query.read_statistics

    def read_statistics(conn, name, kinds, read, flags=0):
        return real_read_statistics(
            conn,
            name,
            kinds,
            lambda vm, values: read(vm, {**values, "state.state": state}),
            flags,
        )

    monkeypatch.setattr(query, "read_statistics", read_statistics)
    with connect.open_connection(TEST, readonly=False) as conn:
        vm = conn.createXML(xml, 0)
        try:
            facts = migrationinfo.gather(conn, TEST, "m1")["m1"]
        finally:
            vm.destroy()

    assert facts.obstacles == ([reason] if reason else [])


def test_a_vm_that_vanishes_while_it_is_read_is_no_such_vm(monkeypatch):
    monkeypatch.setattr(query, "definitions", lambda *_args, **_options: [])
    with (
        connect.open_connection(TEST, readonly=False) as conn,
        pytest.raises(NoSuchVm, match="'test'"),
    ):
        migrationinfo.gather(conn, TEST, "test")
