"""
The stocks of a host that a VM uses besides CPUs, memory and image folder, in MiB by names.

These are huge pages, NUMA nodes that the VM is bound to, and storage pools.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from saltvirt.core.arguments import shape_errors
from saltvirt.core.model import Disk
from saltvirt.xml.domain import memory as memory_xml
from saltvirt.xml.domain import numatune as numatune_xml
from saltvirt.xml.domain.memory import Page
from saltvirt.xml.domain.numatune import Numatune


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """A stock of a host, in MiB: huge pages, a NUMA node, a storage pool."""

    limit_mib: Annotated[int, "not negative"]
    committed_mib: Annotated[int, "not negative"]


def pages(size_kib: int) -> str:
    """Return the name of the stock of huge pages of a size."""
    return f"hugepages of {size_kib} KiB"


def node(number: int) -> str:
    """Return the name of the stock of a NUMA node."""
    return f"NUMA node {number}"


def pool(name: str) -> str:
    """Return the name of the stock of a storage pool."""
    return f"storage pool {name}"


def for_vm(
    mem: Any, memory_mib: int, numatune: Mapping[str, Any] | None, disks: Iterable[Disk]
) -> tuple[tuple[str, int], ...]:
    """Return ``(name, MiB)`` of all stocks that a call's VM uses, sorted."""
    memory_spec = mem if isinstance(mem, dict) else memory_mib
    with shape_errors("mem"):
        hugepages = memory_xml.from_call(memory_spec).backing.hugepages
    with shape_errors("numatune"):
        tune = numatune_xml.from_call(numatune)
    amounts = for_memory(memory_mib, hugepages, tune)
    return tuple(sorted({**amounts, **for_disks(disks)}.items()))


def for_memory(
    memory_mib: int, hugepages: Iterable[Page] | None, tune: Numatune | None
) -> dict[str, int]:
    """
    Return ``{name: MiB}`` of the stocks that a VM's memory uses.

    hugepages
        Pages of one size take all of the memory; pages of several sizes must only exist.
    tune
        Nodes that the memory is bound to share it; other nodes must only exist.
    """
    sizes = sorted({page.size_kib for page in hugepages or () if page.size_kib})
    out = {pages(size): memory_mib if len(sizes) == 1 else 0 for size in sizes}
    if tune is None:
        return out
    for memnode in tune.memnodes:
        out |= dict.fromkeys(map(node, _numbers(memnode.get("nodeset"))), 0)
    memory = tune.memory or {}
    numbers = list(_numbers(memory.get("nodeset")))
    is_bound = memory.get("mode", "strict") == "strict"
    share = -(-memory_mib // len(numbers)) if numbers and is_bound else 0
    return out | dict.fromkeys(map(node, numbers), share)


def for_disks(disks: Iterable[Disk]) -> dict[str, int]:
    """Return ``{name: MiB}`` of the disks in pools; a path is no pool's name."""
    out: dict[str, int] = {}
    for disk in disks:
        if disk.pool and is_named(disk.pool):
            name = pool(disk.pool)
            out[name] = out.get(name, 0) + (disk.size_mib or 0)
    return out


def is_named(pool_name: str | None) -> bool:
    """Return whether a disk's pool is a name: no folder, and not the host's choice."""
    return bool(pool_name) and not str(pool_name).startswith("/")


def _numbers(nodeset: str | None) -> Iterator[int]:
    """Yield the numbers of ``0-2,5``; invalid parts are for libvirt to refuse."""
    for part in (nodeset or "").split(","):
        first, _dash, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), min(int(last or first), int(first) + 1023) + 1)
