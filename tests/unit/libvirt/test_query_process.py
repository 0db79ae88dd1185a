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
    """A VM with that emulator, and a process that libvirt has noted for it."""
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


def test_after_an_upgrade_the_qemu_of_a_vm_is_unknown(running, emulator, tmp_path):
    newer = shutil.copy(shutil.which("true"), tmp_path / "newer")
    newer.replace(emulator)

    assert process.qemu(running, NAME) is None


@pytest.mark.parametrize("pid_text", [None, "", "none", "4194305"])
def test_the_qemu_of_a_missing_process_is_unknown(running, tmp_path, pid_text):
    path = tmp_path / f"{NAME}.pid"
    path.unlink() if pid_text is None else path.write_text(pid_text)

    assert process.qemu(running, NAME) is None
