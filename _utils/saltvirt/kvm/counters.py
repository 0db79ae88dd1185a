"""What domains have used since they were started: processor time, network, disks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from saltvirt.errors import LibvirtRefused
from saltvirt.kvm.connect import domain, is_gone, libvirt
from saltvirt.xml import read

# Ours, and what libvirt's statistics call it, in the order of the calls for one device.
_NET = {
    f"{way}_{ours}": f"{way}.{theirs}"
    for way in ("rx", "tx")
    for ours, theirs in (
        ("bytes", "bytes"),
        ("packets", "pkts"),
        ("errs", "errs"),
        ("drop", "drop"),
    )
}
_DISK = {
    "rd_req": "rd.reqs",
    "rd_bytes": "rd.bytes",
    "wr_req": "wr.reqs",
    "wr_bytes": "wr.bytes",
    "errs": "errors",
}
_Row = tuple[Any, Mapping[str, Any]]


def cputime(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {cputime, cputime_percent}}``; ``cputime`` in nanoseconds."""
    kinds = libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_VCPU
    host_cpus = conn.getInfo()[2]

    def used(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        # Not every driver has statistics of processors.
        is_told = "vcpu.current" in values
        pair = (values["vcpu.current"], values.get("cpu.time", 0)) if is_told else dom.info()[3:5]
        vcpus, time_ns = map(int, pair)
        share = 1.0e-7 * time_ns / host_cpus / vcpus if vcpus else 0
        return {"cputime": time_ns, "cputime_percent": round(share)}

    return _each(_stats(conn, name, kinds), used)


def network(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {rx_bytes, ...}}``: the sums over the NICs, 0 for what does not run."""

    def used(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        if not dom.isActive():
            return dict.fromkeys(_NET, 0)
        if "net.count" in values:
            return _bulk_sum(values, "net", _NET)
        nics = read.nics(read.domain(dom.XMLDesc(0))).values()
        return _sum(_NET, (dom.interfaceStats(one["target"]) for one in nics if one.get("target")))

    return _each(_stats(conn, name, libvirt.VIR_DOMAIN_STATS_INTERFACE), used)


def disk(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {rd_req, ...}}``: the sums over the disks of what runs."""

    def used(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        if "block.count" in values:
            return _bulk_sum(values, "block", _DISK)
        disks = read.disk_sources(read.domain(dom.XMLDesc(0)))
        return _sum(_DISK, (dom.blockStats(one["target"]) for one in disks))

    if name is not None and not domain(conn, name).isActive():
        raise LibvirtRefused(f"VM {name!r} is not running, so its disks have no statistics")
    active = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
    return _each(_stats(conn, name, libvirt.VIR_DOMAIN_STATS_BLOCK, active), used)


def _stats(conn: Any, name: str | None, kinds: int, which: int = 0) -> list[_Row]:
    """Return the statistics of all domains, or of one, with one call."""
    if name is None:
        found: list[_Row] = conn.getAllDomainStats(kinds, which)
    else:
        found = conn.domainListGetStats([domain(conn, name)], kinds, 0)
    return found


def _each(
    rows: Iterable[_Row], used: Callable[[Any, Mapping[str, Any]], dict[str, int]]
) -> dict[str, dict[str, int]]:
    return dict(_told(rows, used))


def _told(
    rows: Iterable[_Row], used: Callable[[Any, Mapping[str, Any]], dict[str, int]]
) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield what each domain has used; one that has gone or stopped meanwhile is left out."""
    for dom, values in rows:
        try:
            yield dom.name(), used(dom, values)
        except libvirt.libvirtError as exc:
            if not is_gone(exc):
                raise


def _bulk_sum(values: Mapping[str, Any], kind: str, keys: Mapping[str, str]) -> dict[str, int]:
    count = int(values[f"{kind}.count"])
    return {
        ours: sum(int(values.get(f"{kind}.{one}.{theirs}", 0)) for one in range(count))
        for ours, theirs in keys.items()
    }


def _sum(keys: Iterable[str], devices: Iterable[Iterable[int]]) -> dict[str, int]:
    """Return the sums; a driver that cannot tell a figure says -1."""
    rows = [list(one) for one in devices]
    return {key: sum(max(0, int(row[number])) for row in rows) for number, key in enumerate(keys)}
