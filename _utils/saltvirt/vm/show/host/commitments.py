"""Resources of this host, and the share that its VMs take of them, running or not."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import query
from saltvirt.placement import resources
from saltvirt.placement.answers import ComingFacts, VmFacts
from saltvirt.placement.resources import Stock
from saltvirt.storage import diskpaths
from saltvirt.storage.diskpaths import measure
from saltvirt.xml.edit import readdomain, restartdiff
from saltvirt.xml.storage import pooldisk, poolsource

# Pool types in which disks are measured: reading a remote file system may hang for ever.
_LOCAL = ("dir", "fs")


class StockTotals:
    """Totals over VMs: MiB by stock, and the bytes that disks may still grow by, by folder."""

    def __init__(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the pools that :func:`saltvirt.libvirt.hostfacts.pools` returns."""
        self.mib: Counter[str] = Counter()
        self.growth: Counter[str] = Counter()
        self._folders = {
            str(PurePath(pool["path"]))
            for pool in pools.values()
            if pool["active"] and pool["type"] in _LOCAL
        }

    def memory(self, roots: Iterable[ET.Element]) -> None:
        """Count a VM's memory: for each stock the most of its running and its next XML."""
        most: Counter[str] = Counter()
        for root in roots:
            most |= Counter(
                resources.for_memory(readdomain.sizes(root)[1], *readdomain.memory_from(root))
            )
        self.mib.update(most)

    def disk(self, path: str, format_: str, sizes: Mapping[str, Any] | None = None) -> None:
        """
        Count the bytes a disk may still grow by, if its pool is on this host's own disks.

        sizes
            The sizes from :func:`measure`; None to measure the disk here.
        """
        folder = str(PurePath(path).parent)
        if folder not in self._folders:
            return
        sizes = sizes or measure(path, format_)
        if sizes:
            self.growth[folder] += max(0, sizes["virtual"] - sizes["actual"])


def count_stocks(
    nodes: Mapping[int, Mapping[str, Any]],
    pools: Mapping[str, Mapping[str, Any]],
    totals: StockTotals,
    coming_vms: Iterable[ComingFacts],
    pool_ratio: float = 1.0,
) -> dict[str, Stock]:
    """
    Return the :class:`Stock` of each NUMA node, page size and pool for disks, by name.

    nodes
        The nodes from :func:`saltvirt.xml.node.capabilities.read`.
    pools
        The pools from :func:`saltvirt.libvirt.hostfacts.pools`.
    coming_vms
        VMs on their way here, which libvirt does not know yet.
    pool_ratio
        The overcommit ratio of pools with thin volumes.
    """
    limits: Counter[str] = Counter()
    committed_by_name = Counter(totals.mib)
    for number, node in nodes.items():
        limits[resources.node(number)] = node["memory_mib"]
        for size, mib in node["pages"].items():
            limits[resources.pages(size)] += mib
    for name, pool in pools.items():
        if pool["active"] and pool["type"] in pooldisk.TYPES:
            ratio = pool_ratio if pool["type"] in pooldisk.THIN else 1
            limits[resources.pool(name)] = int(pool["capacity_mib"] * ratio)
            committed_by_name[resources.pool(name)] = _count_promised_mib(pool, totals)
    for vm in coming_vms:
        committed_by_name.update(vm.stocks)
    return {
        name: Stock(limit_mib=limit, committed_mib=committed_by_name[name])
        for name, limit in limits.items()
    }


def _count_promised_mib(pool: Mapping[str, Any], totals: StockTotals) -> int:
    """Return the MiB of a pool that are not available to new disks."""
    if pool["type"] not in pooldisk.MADE:
        # Volumes of such a pool are made elsewhere and used as they are.
        return 0
    growth = totals.growth[str(PurePath(pool["path"]))] if pool["type"] in pooldisk.FILES else 0
    return int(pool["capacity_mib"] - pool["free_mib"] + growth // MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """
    The resources committed to VMs.

    vms
        Each VM with the larger of its running and its next configuration.
    kept_definitions
        ``{name: host}`` of VMs that have moved to that host and left only their definition here.
    promises
        Bytes that disks in the image folder may take: ``virtual``, their full size; ``growth``,
        what they may still grow by.
    stock_totals
        The share of each stock that all ``vms`` take.
    """

    stock_totals: StockTotals
    vms: dict[str, VmFacts] = field(default_factory=dict)
    kept_definitions: dict[str, str] = field(default_factory=dict)
    promises: dict[str, int] = field(default_factory=lambda: {"virtual": 0, "growth": 0})


def read_commitments(conn: Any, settings: HostSettings) -> Commitments:
    """Return the resources committed to the VMs of this host."""
    out = Commitments(stock_totals=StockTotals(hostfacts.pools(conn)))
    images = f"{poolsource.clean(settings.images)}/"
    for definition in query.definitions(conn, with_next=True, unless=restartdiff.has_same_demand):
        metadata = readdomain.describe_notes(definition.root)
        if metadata["moved_to"] is not None:
            out.kept_definitions[definition.name] = metadata["moved_to"]
            continue
        roots = (
            [definition.root]
            if definition.next_root is None
            else [definition.root, definition.next_root]
        )
        out.vms[definition.name] = _facts(definition.state, metadata, roots)
        out.stock_totals.memory(roots)
        _add_disks(out, images, roots)
    return out


def _facts(state: str, metadata: Mapping[str, Any], roots: list[ET.Element]) -> VmFacts:
    sizes = list(map(readdomain.sizes, roots))
    return VmFacts(
        uuid=readdomain.uuid(roots[0]),
        state=state,
        vcpus=max(vcpus for vcpus, _memory_mib in sizes),
        memory_mib=max(memory_mib for _vcpus, memory_mib in sizes),
        affinity=metadata["affinity"],
        anti_affinity=metadata["anti_affinity"],
    )


def _add_disks(out: Commitments, images: str, roots: list[ET.Element]) -> None:
    disks = {
        disk["path"] or "": disk["format"]
        for root in roots
        for disk in readdomain.disk_sources(root)
    }
    for path, format_ in disks.items():
        sizes = None
        if path.startswith(images):
            sizes = diskpaths.measure(path, format_)
            _add_promise(out.promises, sizes)
        out.stock_totals.disk(path, format_, sizes)


def _add_promise(promises: dict[str, int], sizes: Mapping[str, Any] | None) -> None:
    if sizes:
        promises["virtual"] += sizes["virtual"]
        promises["growth"] += max(0, sizes["virtual"] - sizes["actual"])
