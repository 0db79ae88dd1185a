"""What the content of a disk is in, an external data file, stays as long as the disk does."""

import struct
import subprocess
from pathlib import Path

import pytest
import verdicts
from saltvirt.checks.doctor.host import unusedfiles
from saltvirt.core.errors import StorageError
from saltvirt.core.model import Disk
from saltvirt.storage import diskpaths, ownermark, policies, trash, usage
from saltvirt.storage.images import qcow2
from saltvirt.vm.create.host import existing
from saltvirt.vm.purge.host import removed
from test_unreadablechains import VM
from test_vmvolumes_deleted_bases import DETACHED, by_call, delete, host, stays

__all__ = ["delete", "host"]


def split(path, data, *below):
    """Make a disk whose content is in another file, over another one if that is given."""
    path.parent.mkdir(exist_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={data}"]
    argv += ["-F", "qcow2", "-b", below[0]] if below else []
    subprocess.run([*argv, path, "8M"], check=True, cwd=path.parent)
    return path


@pytest.fixture
def disk(host, tmp_path):
    """A disk whose content is in a volume of a pool."""
    return split(tmp_path / "disks/top.qcow2", host.base)


def defined(host, disk, name="deep"):
    """Define a VM that is off."""
    text = VM.format("file", f"file='{disk}'").replace("deep", name)
    return host.conn.defineXML(text)


def test_that_of_a_disk_of_a_vm_that_is_off_stays(host, disk, delete):
    vm = defined(host, disk)

    stays(host, delete, f"volume p1/base.qcow2 stays: a {DETACHED}")

    vm.undefine()
    delete()


def test_that_of_what_a_disk_is_based_on_stays(host, disk, tmp_path, delete):
    own = tmp_path / "disks/own.raw"
    defined(host, split(tmp_path / "disks/above.qcow2", own, disk))

    stays(host, delete, f"volume p1/base.qcow2 stays: a {DETACHED}")

    known = usage.index(host.conn, host.settings).references(policies.VOLUME)
    assert {str(own), str(disk)} <= set(known)


def test_that_of_a_disk_in_the_trash_stays(host, disk, delete):
    with trash.fill_trash(host.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(disk))

    stays(host, delete, r"base.qcow2 stays: a disk in the trash .entry web2-\w+. is based on it")


def test_a_vm_that_has_that_of_anothers_disk_as_its_own_leaves_it(host, disk):
    defined(host, disk)
    vm = defined(host, host.base, "other")

    assert removed.find_own_files(host.conn, host.settings, "other", removables=False) == []

    vm.undefine()


def test_nobody_is_given_it_as_a_disk(host, disk):
    defined(host, disk)
    given = [Disk(name="system", target="vda")]

    with pytest.raises(
        StorageError, match="base.qcow2 would be written to .*a disk of VM 'deep' is base"
    ):
        existing.refuse_base(host.conn, host.settings, given, [str(host.base)])


def test_it_is_not_left_over(host, tmp_path):
    images = Path(host.settings.images)
    data = images / "data.raw"
    split(images / "disk.qcow2", data)
    ownermark.mark(data, "gone", "6f0a7a0c-0000-4000-8000-000000000000")

    assert str(data) not in [one.path for one in unusedfiles.unused_files(host.conn, host.settings)]


def test_it_is_seen_from_where_the_disk_is(host, tmp_path):
    disk = split(tmp_path / "disks/top.qcow2", "data.raw")
    subprocess.run(["qemu-img", "info", disk], check=True, capture_output=True, cwd="/")

    assert list(diskpaths.chain(str(disk))) == [str(disk), str(tmp_path / "disks/data.raw")]


def test_a_header_within_it_is_its_guests(host, tmp_path):
    disk = split(tmp_path / "disks/top.qcow2", "data.raw")
    data = disk.with_name("data.raw")
    subprocess.run(
        ["qemu-img", "create", "-f", "qcow2", "-F", "qcow2", "-b", host.base, data],
        check=True,
        capture_output=True,
    )
    defined(host, disk)

    by_call(host)


@pytest.mark.parametrize("size", [0, 4097, 2**31, 2**32 - 1])
def test_a_name_that_is_none_leads_nowhere(tmp_path, size):
    disk = split(tmp_path / "top.qcow2", "data.raw", split(tmp_path / "base.qcow2", "base.raw"))
    raw = disk.read_bytes()
    at = raw.index(b"DATA" + struct.pack(">I", len("data.raw")))
    disk.write_bytes(raw[: at + 4] + struct.pack(">I", size) + raw[at + 8 :])

    found = qcow2.read(disk)

    assert found.has_data_file and not found.data_file
    assert str(tmp_path / "base.raw") in diskpaths.chain(str(disk))


def test_without_the_feature_a_name_says_nothing(tmp_path):
    disk = split(tmp_path / "top.qcow2", "data.raw")
    with disk.open("r+b") as out:
        out.seek(72)
        out.write(bytes(8))

    assert qcow2.read(disk).data_file is None
