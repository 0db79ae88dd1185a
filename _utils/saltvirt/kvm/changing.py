"""Change what a domain has: its definition, and while it runs its devices, memory and CPUs."""

import time
from typing import Any

from saltvirt.errors import LibvirtRefused
from saltvirt.kvm.connect import domain, libvirt

# How long a guest has to begin to give memory back, or to take it, in seconds.
BALLOON_S = 10.0
_POLL_S = 0.1
# How a device comes and goes, by what has been done to it then.
_CALLS = {
    "attached": "attachDeviceFlags",
    "detached": "detachDeviceFlags",
    "updated": "updateDeviceFlags",
}


def definition(conn: Any, name: str) -> str:
    """Return the XML of a domain's definition, with its secrets: it is to be defined again."""
    dom = domain(conn, name)
    if not dom.isPersistent():
        raise LibvirtRefused(
            f"VM {name!r} has no definition that could be changed: it is forgotten when it stops; "
            "define it with virt.define_xml_str"
        )
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    xml: str = dom.XMLDesc(flags)
    return xml


def running(conn: Any, name: str) -> str | None:
    """Return the XML of a domain as it runs, None if it does not."""
    dom = domain(conn, name)
    xml: str | None = dom.XMLDesc(0) if dom.isActive() else None
    return xml


def autostarts(conn: Any, name: str) -> bool:
    """Return whether a domain is started with its host."""
    return bool(domain(conn, name).autostart())


def plug(conn: Any, name: str, action: str, xml: str) -> str | None:
    """
    Change one device of a running domain alone, not of its definition.

    how
        ``attached``, ``detached`` or ``updated``.

    Returns libvirt's words if it refuses, else None.
    """
    return _try_call(domain(conn, name), _CALLS[action], xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def set_live_memory(conn: Any, name: str, size_kib: int) -> str | None:
    """Set the memory of a running domain; return libvirt's words if it refuses, else None."""
    return _try_call(domain(conn, name), "setMemoryFlags", size_kib, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def follows_memory(conn: Any, name: str, before_kib: int, size_kib: int) -> bool:
    """
    Return whether the memory of a running domain changes towards a size that was set.

    QEMU says yes to each size, and only the balloon driver of the guest gives memory back: without
    one nothing changes. A guest has :data:`BALLOON_S` seconds to begin.
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
    """Return the KiB that a running domain has at this moment, None if it does not run."""
    dom = domain(conn, name)
    current_kib: int | None = dom.info()[2] if dom.isActive() else None
    return current_kib


def live_vcpus(conn: Any, name: str) -> int:
    """Return how many CPUs a running domain has."""
    count: int = domain(conn, name).vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE)
    return count


def set_live_vcpus(conn: Any, name: str, count: int) -> str | None:
    """Set the CPUs of a running domain; return libvirt's words if it refuses, else None."""
    return _try_call(domain(conn, name), "setVcpusFlags", count, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def resize_disk(conn: Any, name: str, target: str, size_bytes: int) -> str | None:
    """Grow a disk of a running domain; return libvirt's words if it refuses, else None."""
    flag = libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES
    return _try_call(domain(conn, name), "blockResize", target, size_bytes, flag)


def disk_size(conn: Any, name: str, target: str) -> int:
    """Return the size in bytes that the guest of a running domain sees of a disk."""
    size_bytes: int = domain(conn, name).blockInfo(target)[0]
    return size_bytes


def _try_call(dom: Any, call: str, *args: Any) -> str | None:
    # What is refused here is reported beside what was done: the rest is tried all the same.
    try:
        getattr(dom, call)(*args)
    except libvirt.libvirtError as exc:
        return str(exc)
    return None
