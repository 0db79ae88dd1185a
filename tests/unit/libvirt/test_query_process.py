"""Which QEMU a VM runs in: a real process, and libvirt's test driver for the definition."""

import shutil
import subprocess

import pytest
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle, process

NAME = "m1"


@pytest.fixture
def emulator(tmp_path):
    """A program in the place of QEMU."""
    return shutil.copy(shutil.which("sleep"), tmp_path / "qemu")


@pytest.fixture
def running(conn, emulator, tmp_path, monkeypatch):
    """A VM with that emulator, whose process libvirt has noted."""
    monkeypatch.setattr(process, "_NOTED", tmp_path)
    xml = f"""<domain type='test'><name>{NAME}</name><memory>1024</memory><os><type>hvm</type></os>
    <devices><emulator>{emulator}</emulator></devices></domain>"""
    lifecycle.create_transient(conn, xml)
    started = subprocess.Popen([emulator, "60"])
    (tmp_path / f"{NAME}.pid").write_text(str(started.pid))
    yield conn
    started.kill()
    started.wait()


def test_a_vm_runs_in_the_qemu_that_is_installed(running):
    assert process.qemu(running, NAME) == hostfacts.versions(running)["qemu"]


def test_after_an_upgrade_nobody_knows_which_one_it_runs_in(running, emulator, tmp_path):
    newer = shutil.copy(shutil.which("true"), tmp_path / "newer")
    newer.replace(emulator)

    assert process.qemu(running, NAME) is None


@pytest.mark.parametrize("noted", [None, "", "none", "4194305"])
def test_a_process_that_is_not_there_is_unknown(running, tmp_path, noted):
    path = tmp_path / f"{NAME}.pid"
    path.unlink() if noted is None else path.write_text(noted)

    assert process.qemu(running, NAME) is None
