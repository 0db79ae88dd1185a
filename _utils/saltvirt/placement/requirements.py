"""What a VM that moves needs of the host that takes it."""

from saltvirt.model import Requirements
from saltvirt.placement.facts import About
from saltvirt.units import MIB


def of(about: About) -> Requirements:
    """
    Return the :class:`saltvirt.model.Requirements` of a VM that moves.

    about
        What ``virt.migration_info`` says of it; an older host says less, and then what is missing
        is judged by the target alone.
    """
    size = sum(disk.get("virtual_bytes", 0) for disk in about["disks"] if disk["how"] != "shared")
    return Requirements(
        name=about["name"],
        vcpus=about["vcpus"],
        memory_mib=about["memory_mib"],
        disk_mib=size // MIB,
        bridges=tuple(about["bridges"]),
        networks=tuple(about["networks"]),
        links=tuple(about["links"]),
        bridge_vlans=about.get("bridge_vlans", False),
        domain_type=about["domain_type"],
        arch=about["arch"],
        machine=about.get("machine"),
        next_machine=about.get("next_machine"),
        cpu_qemu=about.get("cpu_qemu"),
        newer=tuple((what, since) for what, since in about.get("newer", ())),
        affinity=tuple(about["affinity"]),
        anti_affinity=tuple(about["anti_affinity"]),
    )
