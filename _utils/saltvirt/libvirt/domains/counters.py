"""Count what domains have used since their start: processor time, network, disks."""

from collections.abc import Iterable, Mapping
from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.domains.query import read_statistics
from saltvirt.xml.edit import readdomain

# Our names and those of libvirt's statistics, in the order of the calls for one device.
_NET = {
    f"{way}_{counter}": f"{way}.{statistic}"
    for way in ("rx", "tx")
    for counter, statistic in (
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


def cputime(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {cputime, cputime_percent}}``; ``cputime`` in nanoseconds."""
    kinds = libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_VCPU
    host_cpus = conn.getInfo()[2]

    def read_cpu(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        # Some drivers have no statistics of processors.
        has_statistics = "vcpu.current" in values
        pair = (
            (values["vcpu.current"], values.get("cpu.time", 0))
            if has_statistics
            else dom.info()[3:5]
        )
        vcpus, time_ns = map(int, pair)
        share = 1.0e-7 * time_ns / host_cpus / vcpus if vcpus else 0
        return {"cputime": time_ns, "cputime_percent": round(share)}

    return dict(read_statistics(conn, name, kinds, read_cpu))


def network(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {rx_bytes, ...}}``: sums over the NICs, 0 for a VM that does not run."""

    def read_nics(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        if not dom.isActive():
            return dict.fromkeys(_NET, 0)
        if "net.count" in values:
            return _bulk_sum(values, "net", _NET)
        nics = readdomain.nics(readdomain.domain(dom.XMLDesc(0))).values()
        return _sum(_NET, (dom.interfaceStats(nic["target"]) for nic in nics if nic.get("target")))

    return dict(read_statistics(conn, name, libvirt.VIR_DOMAIN_STATS_INTERFACE, read_nics))


def disk(conn: Any, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return ``{name: {rd_req, ...}}``: sums over the disks of running VMs."""

    def read_disks(dom: Any, values: Mapping[str, Any]) -> dict[str, int]:
        if "block.count" in values:
            return _bulk_sum(values, "block", _DISK)
        disks = readdomain.disk_sources(readdomain.domain(dom.XMLDesc(0)))
        return _sum(_DISK, (dom.blockStats(disk_source["target"]) for disk_source in disks))

    if name is not None and not domain(conn, name).isActive():
        raise LibvirtRefused(f"VM {name!r} is not running, so its disks have no statistics")
    flags = 0 if name is not None else libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
    return dict(read_statistics(conn, name, libvirt.VIR_DOMAIN_STATS_BLOCK, read_disks, flags))


def _bulk_sum(values: Mapping[str, Any], kind: str, keys: Mapping[str, str]) -> dict[str, int]:
    count = int(values[f"{kind}.count"])
    return {
        key: sum(int(values.get(f"{kind}.{number}.{suffix}", 0)) for number in range(count))
        for key, suffix in keys.items()
    }


def _sum(keys: Iterable[str], devices: Iterable[Iterable[int]]) -> dict[str, int]:
    """Return the sums; a driver returns -1 for an unknown figure."""
    rows = [list(device) for device in devices]
    return {key: sum(max(0, int(row[number])) for row in rows) for number, key in enumerate(keys)}
