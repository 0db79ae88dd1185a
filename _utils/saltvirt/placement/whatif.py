"""What a moving VM needs, and a host's answer as it would be with one VM more, or one less."""

from dataclasses import replace

from saltvirt.core.model import Requirements
from saltvirt.core.units import MIB
from saltvirt.placement import fit
from saltvirt.placement.answers import HostInfo, MigrationInfo, VmFacts


def needs_of_move(moving: MigrationInfo) -> Requirements:
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


def with_vm(host: HostInfo, required: Requirements) -> HostInfo:
    """Return a host's answer as it would be with one VM more."""
    vm = VmFacts(
        state="running",
        vcpus=required.vcpus,
        memory_mib=required.memory_mib,
        affinity=list(required.affinity),
        anti_affinity=list(required.anti_affinity),
    )
    return _with_commitments(host, {**host.vms, required.name: vm}, required, 1)


def without_vm(host: HostInfo, required: Requirements) -> HostInfo:
    """Return a host's answer as it would be with one VM less."""
    vms = {name: vm for name, vm in host.vms.items() if name != required.name}
    return _with_commitments(host, vms, required, -1)


def _with_commitments(
    host: HostInfo, vms: dict[str, VmFacts], required: Requirements, sign: int
) -> HostInfo:
    """Return a host's answer with these VMs, and with more or less promised."""
    cpu, memory, disk = host.cpu, host.memory, host.storage
    disk_mib = fit.disk_mib(host, required)
    mib_by_stock = dict(required.stocks)
    stocks = {
        name: replace(stock, committed_mib=stock.committed_mib + sign * mib_by_stock.get(name, 0))
        for name, stock in (host.stocks or {}).items()
    }
    return replace(
        host,
        vms=vms,
        stocks=stocks if mib_by_stock and host.stocks is not None else host.stocks,
        cpu=replace(cpu, vcpus_committed=cpu.vcpus_committed + sign * required.vcpus),
        memory=replace(memory, committed_mib=memory.committed_mib + sign * required.memory_mib),
        storage=replace(disk, committed_mib=disk.committed_mib + sign * disk_mib),
    )
