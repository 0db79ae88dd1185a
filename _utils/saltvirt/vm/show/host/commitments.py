"""Resources committed to this host's VMs, running or not: CPUs, memory, disk, huge pages."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import query
from saltvirt.placement.answers import VmFacts
from saltvirt.storage import diskpaths
from saltvirt.vm.show.host import hostresources
from saltvirt.xml.edit import readdomain, restartdiff
from saltvirt.xml.storage import poolsource


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

    stock_totals: hostresources.StockTotals
    vms: dict[str, VmFacts] = field(default_factory=dict)
    kept_definitions: dict[str, str] = field(default_factory=dict)
    promises: dict[str, int] = field(default_factory=lambda: {"virtual": 0, "growth": 0})


def read_commitments(conn: Any, settings: HostSettings) -> Commitments:
    """Return the resources committed to the VMs of this host."""
    out = Commitments(stock_totals=hostresources.StockTotals(hostfacts.pools(conn)))
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
