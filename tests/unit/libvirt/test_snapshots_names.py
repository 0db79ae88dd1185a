"""What a snapshot may be called, so that it is found again."""

import subprocess

import faces
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.storage.images import qcow2


@pytest.fixture
def face(conn, tmp_path):
    return faces.load("modules", "virt_snapshot", {"state_dir": str(tmp_path)})


def kept(face):
    """Return the names of the snapshots of the driver's VM."""
    found = face.list_snapshots("test")["test"]
    return [] if found == "N/A" else [row["name"] for row in found]


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
    assert [(one.id, one.name) for one in qcow2.snapshots(disk)] == [("1", "2"), ("2", "second")]

    qemu_img("snapshot", "-a", "2", disk)

    read = ["qemu-io", "-f", "qcow2", "-c", "read -P 17 0 4096", str(disk)]
    said = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    assert "verification failed" not in said, "QEMU goes by the name now: it may be a number"


@pytest.mark.parametrize("name", ["1", 2, "99999"])
def test_what_may_be_the_number_of_another_is_no_name(face, name):
    with pytest.raises(BadArgument, match="may be the number of another snapshot.* such as 's"):
        face.snapshot("test", name)

    assert kept(face) == []


@pytest.mark.parametrize("name", ["20261126", "01", "v1", 1.5])
def test_a_date_and_a_version_are_names(face, name):
    assert face.snapshot("test", name) == {"name": str(name)}
    face.delete_snapshots("test", all=True)


@pytest.mark.parametrize(
    ("name", "fits"), [("s" * 247, True), ("s" * 248, False), ("ü" * 124, False)]
)
def test_a_name_that_libvirt_could_not_keep_is_refused_before(face, name, fits):
    if fits:
        assert face.snapshot("test", name) == {"name": name}
        face.delete_snapshots("test", all=True)
        return
    with pytest.raises(BadArgument, match="has more than 247 bytes"):
        face.snapshot("test", name)
    with pytest.raises(BadArgument, match="has more than 247 bytes"):
        face.snapshot("test", "a", suffix=name)
    assert kept(face) == []
