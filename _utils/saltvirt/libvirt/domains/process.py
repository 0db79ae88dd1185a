"""Read the QEMU process of a running domain."""

from pathlib import Path
from typing import Any

from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.connect import domain
from saltvirt.xml.edit import readdomain

# Where the system's QEMU driver keeps the process id of each domain.
_NOTED = Path("/run/libvirt/qemu")


def qemu(conn: Any, name: str) -> str | None:
    """
    Return the version of the QEMU that a domain runs in, as "7.2.22"; None if unknown.

    libvirt only knows the installed version. After an upgrade a domain still runs the QEMU that it
    started with, and that file is gone.
    """
    emulator = readdomain.emulator(readdomain.domain(domain(conn, name).XMLDesc(0)))
    try:
        number = int((_NOTED / f"{name}.pid").read_text())
        is_installed = Path(f"/proc/{number}/exe").samefile(emulator)
    except (OSError, ValueError):
        return None
    return str(hostfacts.versions(conn)["qemu"]) if is_installed else None
