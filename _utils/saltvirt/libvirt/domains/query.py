"""Read all domains of a host by libvirt's bulk call, one XML each, without a subprocess."""

import logging
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from saltvirt.core import guestaccess
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.errorcodes import read_existing, value_or
from saltvirt.xml.domain.graphics import Graphics
from saltvirt.xml.edit import readdomain

log = logging.getLogger(__name__)
_Value = TypeVar("_Value")
AGENT_S = 3
# virDomainState of libvirt. A domain that idles or waits for I/O counts as running.
STATES = {
    0: "running",
    1: "running",
    2: "running",
    3: "paused",
    4: "shutdown",
    5: "shutdown",
    6: "crashed",
    7: "paused",
}


def names(conn: Any, *, active: bool | None = None) -> list[str]:
    """Return the names of all domains, or only the active or inactive ones, sorted."""
    flags = {
        None: 0,
        True: libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE,
        False: libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE,
    }[active]
    return sorted(dom.name() for dom in conn.listAllDomains(flags))


def _kinds(with_blocks: bool) -> int:
    kinds = (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_VCPU
    )
    all_kinds: int = kinds | (libvirt.VIR_DOMAIN_STATS_BLOCK if with_blocks else 0)
    return all_kinds


def rows(
    conn: Any,
    name: str | None = None,
    *,
    with_xml: bool = True,
    with_blocks: bool = True,
    with_next: bool = False,
    with_fallback: bool = False,
) -> list[dict[str, Any]]:
    """
    Return one row per domain, or only the row of ``name``.

    A row has ``name``, ``state``, ``vcpus``, ``max_vcpus``, ``memory_kib``, ``max_memory_kib``,
    ``rss_kib``, ``cputime_ns``, ``blocks`` (``{target: {capacity, allocation, physical}}`` in
    bytes), ``xml`` and, ``with_next``, ``next_xml``: a running domain's definition, None for a
    stopped one. A domain that vanishes meanwhile is left out. Figures that a driver lacks are 0;
    ``with_fallback`` reads them from each domain instead.
    """

    def read(dom: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        xml, next_xml = _texts(dom, values, with_xml, with_next)
        lacks_statistics = with_fallback and "vcpu.current" not in values
        all_values = {**values, **_read_info(dom)} if lacks_statistics else values
        return {**_row(dom.name(), all_values), "xml": xml, "next_xml": next_xml}

    # NOWAIT: a domain in the middle of a long job must not block the answer.
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return [row for _name, row in read_statistics(conn, name, _kinds(with_blocks), read, flags)]


def read_statistics(
    conn: Any,
    name: str | None,
    kinds: int,
    read: Callable[[Any, Mapping[str, Any]], _Value],
    flags: int = 0,
) -> Iterator[tuple[str, _Value]]:
    """
    Yield ``(name, value)`` of one domain, or of all; a domain that vanishes is left out.

    kinds, flags
        libvirt's ``VIR_DOMAIN_STATS_…`` and ``VIR_CONNECT_GET_ALL_DOMAINS_STATS_…``.
    read
        Called with a domain and its statistics, returns its value.
    """
    statistics = (
        conn.getAllDomainStats(kinds, flags)
        if name is None
        else conn.domainListGetStats([domain(conn, name)], kinds, flags)
    )
    values_by_name = {dom.name(): values for dom, values in statistics}
    domains = [dom for dom, _values in statistics]
    return read_existing(domains, lambda dom: read(dom, values_by_name[dom.name()]))


def _texts(
    dom: Any, values: Mapping[str, Any], with_xml: bool, with_next: bool
) -> tuple[str | None, str | None]:
    """Return a domain's XML, and a running domain's definition."""
    xml = dom.XMLDesc(0) if with_xml else None
    is_next = with_next and _state(values) in ("running", "paused")
    return xml, dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) if is_next else None


def texts(conn: Any, flags: int = 0) -> Iterator[tuple[str, list[str]]]:
    """
    Yield ``(name, XML texts)`` of all domains: the current XML, and a running one's definition.

    flags
        ``VIR_CONNECT_LIST_DOMAINS_…`` selects domains, whose current XML alone is read then.
    """

    def read(dom: Any) -> list[str]:
        # A device of the definition alone is the domain's from its next start on.
        has_two = not flags and dom.isActive()
        xml_flags = (0, libvirt.VIR_DOMAIN_XML_INACTIVE) if has_two else (0,)
        return [dom.XMLDesc(xml_flag) for xml_flag in xml_flags]

    return read_existing(conn.listAllDomains(flags), read)


def _state(values: Mapping[str, Any]) -> str:
    return STATES.get(values.get("state.state", -1), "unknown")


@dataclass(frozen=True, slots=True)
class Definition:
    """
    libvirt's own data on a domain, without asking its QEMU.

    next_root
        A running domain's definition, if requested, and not skipped by ``unless``.
    """

    name: str
    state: str
    root: ET.Element
    next_root: ET.Element | None = None


def definitions(
    conn: Any,
    name: str | None = None,
    *,
    with_next: bool = False,
    unless: Callable[[str, str], bool] | None = None,
) -> list[Definition]:
    """
    Return all domains, or only ``name``, even if a QEMU hangs.

    unless
        Returns whether to skip the definition of a running domain, by the XML of both.

    Statistics of CPUs, memory and disks come from each QEMU. A QEMU that hangs, on lost storage
    perhaps, would block the answer on all others. A domain that vanishes is left out.
    """

    def read(dom: Any, values: Mapping[str, Any]) -> Definition:
        xml, next_xml = _texts(dom, values, True, with_next)
        is_read = next_xml and not (unless and unless(xml or "", next_xml))
        next_root = readdomain.domain(next_xml) if next_xml and is_read else None
        return Definition(dom.name(), _state(values), readdomain.domain(xml or ""), next_root)

    kind, flags = libvirt.VIR_DOMAIN_STATS_STATE, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return [row for _name, row in read_statistics(conn, name, kind, read, flags)]


def _read_info(dom: Any) -> dict[str, int]:
    """Return a domain's own figures, for a driver without these statistics."""
    _state, most_kib, used_kib, vcpus, time_ns = dom.info()
    return {
        "vcpu.current": vcpus,
        "balloon.maximum": most_kib,
        "balloon.current": used_kib,
        "cpu.time": time_ns,
    }


@dataclass(frozen=True, slots=True)
class Reachable:
    """
    The network endpoints of a domain; listeners have ``host``, ``service``, ``tls``.

    sends_as_host
        Whether QEMU sends the guest's traffic by sockets of the host.
    is_filtered
        Whether a NIC has a network filter.
    written
        The files that are its disks and that it can write to.
    """

    displays: list[Graphics]
    listeners: list[dict[str, str]]
    sends_as_host: bool
    is_filtered: bool = False
    written: tuple[str, ...] = ()


def reachable(conn: Any) -> dict[str, Reachable]:
    """Return ``{name: Reachable}`` of every domain; a domain that vanishes is left out."""

    def read(dom: Any) -> Reachable:
        # Only the XML with secrets tells whether a display has a password.
        root = readdomain.domain(dom.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE))
        return Reachable(
            displays=readdomain.displays(root),
            listeners=readdomain.listeners(root),
            sends_as_host=readdomain.sends_as_host(root),
            is_filtered=readdomain.is_filtered(root),
            written=tuple(_list_written_files(root)),
        )

    return dict(read_existing(conn.listAllDomains(), read))


def _list_written_files(root: ET.Element) -> Iterator[str]:
    for disk in readdomain.disk_sources(root):
        if disk["type"] == "file" and disk["device"] == "disk" and not disk["is_readonly"]:
            yield str(disk["path"])


def _row(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "state": _state(values),
        "vcpus": int(values.get("vcpu.current") or 0),
        "max_vcpus": int(values.get("vcpu.maximum") or values.get("vcpu.current") or 0),
        "memory_kib": int(values.get("balloon.current") or 0),
        "max_memory_kib": int(values.get("balloon.maximum") or 0),
        "rss_kib": int(values.get("balloon.rss") or 0),
        "cputime_ns": int(values.get("cpu.time") or 0),
        "blocks": _blocks(values),
    }


def _blocks(values: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    out = {}
    for number in range(int(values.get("block.count") or 0)):
        target = values.get(f"block.{number}.name")
        keys = ("capacity", "allocation", "physical")
        sizes = {key: values.get(f"block.{number}.{key}") for key in keys}
        if target and sizes["capacity"] is not None:
            out[target] = {key: int(size or 0) for key, size in sizes.items()}
    return out


def addresses(conn: Any, name: str, source: str) -> list[str]:
    """
    Return the addresses of a running domain from one of libvirt's sources.

    source
        ``lease``, ``arp``, or ``agent``, with a limit of a few seconds. Empty if the source fails.
    """
    entries = read_addresses(domain(conn, name), source)
    return guestaccess.addresses([entry.get("addr") for entry in entries])


def read_addresses(dom: Any, source: str) -> list[dict[str, Any]]:
    """
    Return libvirt's entries on the addresses of a domain; none if the source fails.

    source
        ``lease``, ``arp``, or ``agent``, with a limit of a few seconds.
    """
    kind = getattr(libvirt, f"VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_{source.upper()}")
    try:
        if source == "agent":
            # An unresponsive agent would block this call without end. The timeout belongs to the
            # domain, and stays: without it another call could block.
            dom.agentSetResponseTimeout(AGENT_S)
        links = dom.interfaceAddresses(kind)
    except libvirt.libvirtError as exc:
        # The agent is not up yet, say, or libvirt keeps no leases for the NIC.
        log.debug("libvirt tells no addresses of VM %s by %s: %s", dom.name(), source, exc)
        return []
    return [entry for link in links.values() for entry in link.get("addrs") or ()]


def state(conn: Any, name: str) -> str:
    """Return the state of one domain; raise NoSuchVm if the host has none of that name."""
    return STATES.get(domain(conn, name).state()[0], "unknown")


def states(conn: Any) -> dict[str, str]:
    """Return ``{name: state}`` of every domain, by one bulk call."""
    kind, flags = libvirt.VIR_DOMAIN_STATS_STATE, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return dict(read_statistics(conn, None, kind, lambda _dom, values: _state(values), flags))


def node(conn: Any) -> dict[str, Any]:
    """
    Return libvirt's node information under the old names; ``phymemory`` is MiB.

    The memory comes from the statistics: virNodeGetInfo adds up NUMA cells, which is too little on
    machines with memory added while they ran.
    """
    info = conn.getInfo()
    return {
        "cpucores": info[6],
        "cpumhz": info[3],
        "cpumodel": str(info[0]),
        "cpus": info[2],
        "cputhreads": info[7],
        "numanodes": info[4],
        "phymemory": _memory_mib(conn, info[1]),
        "sockets": info[5],
    }


def _memory_mib(conn: Any, summed_mib: int) -> int:
    """Return the host's memory; the sum of its cells if a driver has no statistics."""
    all_cells = libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS
    memory = value_or(None, lambda: conn.getMemoryStats(all_cells, 0), "NO_SUPPORT")
    return summed_mib if memory is None else int(memory["total"] // 1024)
