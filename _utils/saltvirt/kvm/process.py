"""The QEMU process of a domain that runs."""

from pathlib import Path
from typing import Any

from saltvirt.kvm import host
from saltvirt.kvm.connect import domain
from saltvirt.xml import read

# Where libvirt's QEMU driver of the system notes the process of each domain.
_NOTED = Path("/run/libvirt/qemu")


def qemu(conn: Any, name: str) -> str | None:
    """
    Return which QEMU a domain runs in, "7.2.22"; None if nobody can tell.

    libvirt says which one is installed. After an upgrade a domain goes on in the QEMU that it was
    started with, and that file is not there any more.
    """
    emulator = read.emulator(read.domain(domain(conn, name).XMLDesc(0)))
    try:
        number = int((_NOTED / f"{name}.pid").read_text())
        is_installed = Path(f"/proc/{number}/exe").samefile(emulator)
    except (OSError, ValueError):
        return None
    return str(host.versions(conn)["qemu"]) if is_installed else None
