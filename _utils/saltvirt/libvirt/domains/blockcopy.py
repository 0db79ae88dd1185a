"""Copy a disk of a running domain into another file, and switch the domain to that file."""

from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains import lifecycle
from saltvirt.xml.edit import readdomain

# From 8.0 on libvirt can have QEMU write to both files at once, so that each copy ends.
_SYNCHRONOUS = 8000000


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """
    The copy of a disk that libvirt makes.

    file
        The file that it goes into.
    is_ready
        Whether both files are the same, and stay so.
    """

    file: str
    is_ready: bool
    done_bytes: int
    total_bytes: int


def begin(conn: Any, name: str, target: str, xml: str, *, is_shallow: bool) -> None:
    """
    Begin to copy a disk into an existing file; the copy goes on when this process dies.

    xml
        The <disk> with that file.
    is_shallow
        Whether to copy the disk's own file alone, as the other one has the same backing file.

    Raises LibvirtRefused.
    """
    # The job ends with QEMU: the definition then still names the former file.
    flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
    if is_shallow:
        flags |= libvirt.VIR_DOMAIN_BLOCK_COPY_SHALLOW
    if conn.getLibVersion() >= _SYNCHRONOUS:
        flags |= getattr(libvirt, "VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES", 0)
    try:
        domain(conn, name).blockCopy(target, xml, None, flags)
    except libvirt.libvirtError as exc:
        raise LibvirtRefused(f"disk {target} of VM {name!r} is not copied: {exc}") from exc


def has_job(conn: Any, name: str, target: str) -> bool:
    """Return whether libvirt works on a disk of a running domain."""
    return bool(domain(conn, name).blockJobInfo(target, 0))


def read_copy(conn: Any, name: str, target: str) -> Copy | None:
    """Return the copy of a disk of a running domain; None if there is none."""
    if not lifecycle.is_active(conn, name):
        return None
    mirror = readdomain.mirror(readdomain.domain(lifecycle.xml(conn, name)), target)
    if mirror is None:
        return None
    file, is_ready = mirror
    figures = domain(conn, name).blockJobInfo(target, 0) or {}
    return Copy(
        file=file,
        is_ready=is_ready,
        done_bytes=int(figures.get("cur", 0)),
        total_bytes=int(figures.get("end", 0)),
    )


def pivot(conn: Any, name: str, target: str) -> None:
    """
    Have a running domain go on in the copy of a disk; libvirt changes the definition, too.

    Raises LibvirtRefused; the domain may go on in the copy all the same.
    """
    _end(conn, name, target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)


def abort(conn: Any, name: str, target: str) -> None:
    """Give up the copy of a disk; raise LibvirtRefused."""
    _end(conn, name, target, 0)


def _end(conn: Any, name: str, target: str, flags: int) -> None:
    try:
        domain(conn, name).blockJobAbort(target, flags)
    except libvirt.libvirtError as exc:
        action = "switched to its copy" if flags else "left by its copy"
        raise LibvirtRefused(f"disk {target} of VM {name!r} is not {action}: {exc}") from exc
