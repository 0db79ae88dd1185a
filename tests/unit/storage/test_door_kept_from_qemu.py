"""What is written over is kept from QEMU for as long as that takes."""

import subprocess
import time

import asloaded
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.storage import transfer, volumes
from saltvirt.storage import diskpaths, vmvolumes


@pytest.fixture
def disk(tmp_path):
    """A raw disk."""
    path = tmp_path / "data.raw"
    path.write_bytes(bytes(1 << 20))
    return path


def written(disk):
    """Write into a disk by QEMU; return its error."""
    argv = ["qemu-io", "-f", "raw", "-c", "write 0 512", disk]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stderr


def test_no_qemu_opens_what_is_kept_from_it(disk):
    with diskpaths.keep_from_qemu(disk):
        assert "Is another process using the image" in written(disk)
        assert diskpaths.is_open(disk)

    assert written(disk) == "" and not diskpaths.is_open(disk)


def test_what_a_qemu_has_open_is_refused_and_stays_its_own(disk):
    argv = ["qemu-io", "-f", "raw", disk]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        while not diskpaths.is_open(disk):
            assert program.poll() is None
            time.sleep(0.01)
        with (
            pytest.raises(StorageError, match="is open in another program"),
            diskpaths.keep_from_qemu(disk),
        ):
            pytest.fail("it was had")
        said = program.communicate(b"write 0 512\nquit\n")[0]

    assert b"wrote 512/512 bytes" in said


def test_what_is_no_path_and_what_goes_wrong_meanwhile_is_as_ever():
    with diskpaths.keep_from_qemu("pool/volume"):
        pass
    with pytest.raises(OSError, match="full"), diskpaths.keep_from_qemu("pool/volume"):
        raise OSError("full")


@pytest.mark.parametrize(
    ("function", "given"), [("volume_wipe", []), ("volume_upload", ["/srv/data.raw"])]
)
def test_a_volume_is_kept_from_qemu_while_it_is_written(monkeypatch, disk, function, given):
    """A stand-in writes, as long as the test takes to look: libvirt's own would be done by then."""
    virt = asloaded.module("_modules/virt_volume.py")
    virt.__opts__ = {"virt": {"connection": {"uri": "test:///default"}}}
    virt.__pillar__, virt.__grains__ = {}, {}
    monkeypatch.setattr(vmvolumes.diskvolumes, "path_of", lambda *_args: str(disk))
    for name in ("judge_wipe", "judge_deletion"):
        monkeypatch.setattr(vmvolumes, name, lambda *_args, **_given: [])
    monkeypatch.setattr(volumes, "lookup", lambda *_args: None)
    seen = []

    def writing(*_args, **_options):
        seen.append(written(disk))

    virt.volumes = Writer(writing)
    monkeypatch.setattr(volumes, "wipe", writing)
    monkeypatch.setattr(transfer, "upload", writing)

    assert getattr(virt, function)("default-pool", "v1", *given) is True
    assert "Is another process using the image" in seen[0]


class Writer:
    """Stand for what writes a volume."""

    refuse_algorithm = lookup = staticmethod(lambda *_args: None)

    def __init__(self, writing):
        self.wipe = self.upload = writing
