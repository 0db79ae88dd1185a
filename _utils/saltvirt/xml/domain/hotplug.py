"""NUMA cells, by which QEMU's driver counts memory, and which memory hotplug needs."""

from dataclasses import replace

from saltvirt.xml.domain.cpu import Cell, Cpu
from saltvirt.xml.domain.memory import Memory

# The domain types of QEMU's driver, which has memory hotplug.
_TYPES = ("kvm", "qemu")
# The memory slots for a call with `max` and without `slots`, which libvirt before 11 refuses.
SLOTS = "16"


def has_rules(domain_type: str | None) -> bool:
    """Return whether the rules of QEMU's driver apply to a domain of that type."""
    return domain_type in _TYPES


def add_hotplug(
    memory: Memory, cpu: Cpu | None, vcpus: int, *, slots: str | None = SLOTS
) -> tuple[Memory, Cpu | None]:
    """
    Return memory and processor with the slots and the NUMA cell that memory hotplug needs.

    libvirt 11.3 adds the cell itself; libvirt 9.0 refuses the definition without it.

    vcpus
        The highest number of CPUs of the domain; the cell gets all of them.
    slots
        The slots of memory that has none.
    """
    if memory.maximum_kib is None:
        return memory, cpu
    if memory.maximum_kib == memory.size_kib:
        # Without room to plug in memory, QEMU starts no VM with slots.
        return replace(memory, maximum_kib=None, slots=None), cpu
    new_cpu = cpu or Cpu()
    if not new_cpu.cells:
        cpus = f"0-{vcpus - 1}" if vcpus > 1 else "0"
        new_cpu = replace(new_cpu, cells=(Cell(id="0", cpus=cpus, memory_kib=memory.size_kib),))
    return replace(memory, slots=memory.slots or slots), new_cpu


def resize_cells(
    current: Memory, requested: Memory, cpu: Cpu, *, has_cells: bool
) -> tuple[Memory, Cpu]:
    """
    Return memory and processor of a domain with NUMA cells after a call that changes its memory.

    QEMU's driver takes the sum of the cells for the memory, and ignores <memory>. Each cell keeps
    its share.

    current, requested
        The memory before and after the call.
    has_cells
        Whether the call itself has the memory of the cells, which wins.
    """
    total = sum(cell.memory_kib or 0 for cell in cpu.cells)
    if not total or current.size_kib != total or requested.size_kib == total:
        return requested, cpu
    if has_cells:
        current_kib = min(requested.current_kib, total)
        return replace(requested, size_kib=total, current_kib=current_kib), cpu
    return requested, replace(cpu, cells=_shares(cpu.cells, total, requested.size_kib))


def _shares(cells: tuple[Cell, ...], total: int, new_total: int) -> tuple[Cell, ...]:
    """Return the cells with their shares of an amount of KiB, in whole MiB except the first."""
    sizes = [(cell.memory_kib or 0) * new_total // total // 1024 * 1024 for cell in cells]
    sizes[0] += new_total - sum(sizes)
    pairs = zip(cells, sizes, strict=True)
    return tuple(replace(cell, memory_kib=size) for cell, size in pairs)
