"""Which names a snapshot may have."""

import subprocess

import faces
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.storage.images import qcow2


@pytest.fixture
def virt_snapshot(conn, tmp_path):
    return faces.load("modules", "virt_snapshot", {"state_dir": str(tmp_path)})


def snapshot_names(virt_snapshot):
    """Return the names of the snapshots of the driver's VM."""
    rows = virt_snapshot.list_snapshots("test")["test"]
    return [] if rows == "N/A" else [row["name"] for row in rows]


def qemu_img(*words):
    """Run qemu-img."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


def test_qemu_takes_a_name_for_the_number_of_another_snapshot(tmp_path):
    disk = tmp_path / "d.qcow2"
    qemu_img("create", "-f", "qcow2", disk, "1M")
    qemu_img("snapshot", "-c", "2", disk)
    for name, pattern in (("second", 17), (None, 34)):
        write = ["qemu-io", "-f", "qcow2", "-c", f"write -P {pattern} 0 4096", str(disk)]
        subprocess.run(write, check=True, capture_output=True)
        if name:
            qemu_img("snapshot", "-c", name, disk)
    assert [(entry.id, entry.name) for entry in qcow2.snapshots(disk)] == [
        ("1", "2"),
        ("2", "second"),
    ]

    qemu_img("snapshot", "-a", "2", disk)

    read = ["qemu-io", "-f", "qcow2", "-c", "read -P 17 0 4096", str(disk)]
    output = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    assert "verification failed" not in output, "QEMU goes by the name now: it may be a number"


@pytest.mark.parametrize("name", ["1", 2, "99999"])
def test_a_number_that_another_snapshot_may_have_is_refused_as_a_name(virt_snapshot, name):
    with pytest.raises(BadArgument, match="may be the number of another snapshot.* such as 's"):
        virt_snapshot.snapshot("test", name)

    assert snapshot_names(virt_snapshot) == []


@pytest.mark.parametrize("name", ["20261126", "01", "v1", 1.5])
def test_a_date_and_a_version_are_names(virt_snapshot, name):
    assert virt_snapshot.snapshot("test", name) == {"name": str(name)}
    virt_snapshot.delete_snapshots("test", all=True)


@pytest.mark.parametrize(
    ("name", "fits"), [("s" * 247, True), ("s" * 248, False), ("ü" * 124, False)]
)
def test_a_name_that_libvirt_could_not_keep_is_refused_before(virt_snapshot, name, fits):
    if fits:
        assert virt_snapshot.snapshot("test", name) == {"name": name}
        virt_snapshot.delete_snapshots("test", all=True)
        return
    with pytest.raises(BadArgument, match="has more than 247 bytes"):
        virt_snapshot.snapshot("test", name)
    with pytest.raises(BadArgument, match="has more than 247 bytes"):
        virt_snapshot.snapshot("test", "a", suffix=name)
    assert snapshot_names(virt_snapshot) == []
