"""Change a domain: read its definition, and change devices, memory and CPUs while it runs."""

import time
from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import lifecycle

# Time for a guest to begin to release or take memory, in seconds.
BALLOON_S = 10.0
_POLL_S = 0.1
# libvirt's methods for a device, by their result.
_CALLS = {
    "attached": "attachDeviceFlags",
    "detached": "detachDeviceFlags",
    "updated": "updateDeviceFlags",
}


def definition(conn: Any, name: str) -> str:
    """Return the XML of a domain's definition, with its secrets, fit to be defined again."""
    if not lifecycle.is_persistent(conn, name):
        raise LibvirtRefused(
            f"VM {name!r} has no definition that could be changed: it is forgotten when it stops; "
            "define it with virt.define_xml_str"
        )
    return lifecycle.secure_xml(conn, name)


def running(conn: Any, name: str) -> str | None:
    """Return the XML of a running domain, None if it does not run."""
    return lifecycle.xml(conn, name) if lifecycle.is_active(conn, name) else None


def autostarts(conn: Any, name: str) -> bool:
    """Return whether a domain starts with its host."""
    return bool(domain(conn, name).autostart())


def plug(conn: Any, name: str, action: str, xml: str) -> str | None:
    """
    Change one device of a running domain, but not of its definition.

    action
        ``attached``, ``detached`` or ``updated``.

    Returns libvirt's message if it refuses, else None.
    """
    return _try_call(domain(conn, name), _CALLS[action], xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def set_live_memory(conn: Any, name: str, size_kib: int) -> str | None:
    """Set the memory of a running domain; return libvirt's message if it refuses, else None."""
    return _try_call(domain(conn, name), "setMemoryFlags", size_kib, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def follows_memory(conn: Any, name: str, before_kib: int, size_kib: int) -> bool:
    """
    Return whether the memory of a running domain changes towards a size that was set.

    QEMU accepts each size, but only a balloon driver in the guest releases memory. The guest has
    :data:`BALLOON_S` seconds to begin.
    """
    deadline = time.monotonic() + BALLOON_S
    while True:
        current_kib = memory_kib(conn, name)
        if current_kib in (None, size_kib) or current_kib != before_kib:
            return current_kib is not None
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def memory_kib(conn: Any, name: str) -> int | None:
    """Return the current memory of a running domain in KiB, None if it does not run."""
    dom = domain(conn, name)
    current_kib: int | None = dom.info()[2] if dom.isActive() else None
    return current_kib


def live_vcpus(conn: Any, name: str) -> int:
    """Return the number of CPUs of a running domain."""
    count: int = domain(conn, name).vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE)
    return count


def set_live_vcpus(conn: Any, name: str, count: int) -> str | None:
    """Set the CPUs of a running domain; return libvirt's message if it refuses, else None."""
    return _try_call(domain(conn, name), "setVcpusFlags", count, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def resize_disk(conn: Any, name: str, target: str, size_bytes: int) -> str | None:
    """Grow a disk of a running domain; return libvirt's message if it refuses, else None."""
    flag = libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES
    return _try_call(domain(conn, name), "blockResize", target, size_bytes, flag)


def disk_size(conn: Any, name: str, target: str) -> int:
    """Return the size in bytes of a disk as the running guest sees it."""
    size_bytes: int = domain(conn, name).blockInfo(target)[0]
    return size_bytes


def _try_call(dom: Any, call: str, *args: Any) -> str | None:
    # Return the refusal: the caller reports it, and tries the remaining changes.
    try:
        getattr(dom, call)(*args)
    except libvirt.libvirtError as exc:
        return str(exc)
    return None
