"""What a moving VM needs of its target."""

from saltvirt.core.model import Requirements
from saltvirt.core.units import MIB
from saltvirt.placement.answers import MigrationInfo


def for_move(moving: MigrationInfo) -> Requirements:
    """
    Return the :class:`saltvirt.core.model.Requirements` of a moving VM.

    moving
        The answer of ``virt.migration_info``.
    """
    size = sum(disk.virtual_bytes or 0 for disk in moving.disks if disk.how != "shared")
    return Requirements(
        name=moving.name,
        vcpus=moving.vcpus,
        memory_mib=moving.memory_mib,
        disk_mib=size // MIB,
        bridges=tuple(moving.bridges),
        networks=tuple(moving.networks),
        links=tuple(moving.links),
        bridge_vlans=moving.bridge_vlans,
        domain_type=moving.domain_type,
        arch=moving.arch,
        machine=moving.machine,
        next_machine=moving.next_machine,
        cpu_qemu=moving.cpu_qemu,
        # The host may send anything; an entry that is no pair names no feature.
        newer=tuple((pair[0], pair[1]) for pair in moving.newer if len(pair) == 2),
        affinity=tuple(moving.affinity),
        anti_affinity=tuple(moving.anti_affinity),
    )
