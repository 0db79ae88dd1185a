"""Read the capabilities of a host and of its kinds of guests, and a baseline CPU."""

from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.connect import libvirt
from saltvirt.xml.node import domaincaps, hostcaps


def read_host_capabilities(conn: Any) -> dict[str, Any]:
    """Return the host's capabilities; see :func:`saltvirt.xml.node.hostcaps.read`."""
    return hostcaps.read(conn.getCapabilities())


def read_domain_capabilities(
    conn: Any, emulator: str | None, arch: str | None, machine: str | None, domain: str | None
) -> dict[str, Any]:
    """
    Return the capabilities of one kind of guest; None for an argument is libvirt's default.

    Raises BadArgument for an emulator that libvirt does not list: libvirt would run that program
    with rights that a caller with read-only access lacks.
    """
    if emulator is not None:
        _refuse_unlisted(conn, arguments.text("emulator", emulator))
    return domaincaps.read(conn.getDomainCapabilities(emulator, arch, machine, domain, 0))


def _refuse_unlisted(conn: Any, emulator: str) -> None:
    archs = [guest["arch"] for guest in read_host_capabilities(conn)["guests"]]
    kinds = [*archs, *(kind for arch in archs for kind in arch["domains"].values())]
    emulators = sorted({kind["emulator"] for kind in kinds if kind.get("emulator")})
    if emulator not in emulators:
        raise BadArgument(
            "emulator",
            f"{arguments.repr_without_secrets(emulator)} is none that libvirt lists on this host; "
            f"listed: {', '.join(emulators) or 'none'}",
        )


def read_all_capabilities(conn: Any) -> dict[str, Any]:
    """Return ``{host, domains}``: the host's capabilities, and those of each kind of guest."""
    host_capabilities = read_host_capabilities(conn)
    archs = [guest["arch"] for guest in host_capabilities["guests"]]
    kinds = [
        (arch.get("emulator"), arch["name"], kind) for arch in archs for kind in arch["domains"]
    ]
    return {
        "host": host_capabilities,
        "domains": [
            read_domain_capabilities(conn, emulator, arch, None, kind)
            for emulator, arch, kind in kinds
        ],
    }


def baseline(conn: Any, *, is_full: bool, is_migratable: bool) -> str:
    """Return the XML of the CPU that all hosts like this one can give a guest."""
    host_cpu = hostfacts.own_cpu(conn)
    if host_cpu is None:
        raise LibvirtRefused("libvirt does not describe this host's CPU, so there is no baseline")
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES if is_full else 0
    if is_migratable:
        flags |= libvirt.VIR_CONNECT_BASELINE_CPU_MIGRATABLE
    cpu_xml: str = conn.baselineCPU([host_cpu], flags)
    return cpu_xml
