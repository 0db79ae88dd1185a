"""Reasons why a host cannot take a VM."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from saltvirt.core.model import Requirements
from saltvirt.placement import generation, groups, wiring
from saltvirt.placement.answers import DomainTypes, HostInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """
    What every host has an amount of, and every VM takes.

    name
        The field of a VM's :class:`Requirements`, and the key of :func:`free` and :func:`limits`.
    weight_key
        The key of ``virt:weights``.
    default_weight
        The weight if ``virt:weights`` has no other.
    """

    name: str
    weight_key: str
    default_weight: float


# All tuples of amounts and of weights are in this order. A further amount is more than a row: the
# functions below, ``choose`` (_with_room, _most_taken, _able_hosts), ``many`` (_parts),
# ``balance``, ``affinity`` and ``headroom`` write the amounts out: they run for every host and VM.
DIMENSIONS = (
    Dimension(name="vcpus", weight_key="cpu", default_weight=1.0),
    Dimension(name="memory_mib", weight_key="memory", default_weight=1.0),
    Dimension(name="disk_mib", weight_key="disk", default_weight=0.5),
)


def free(host: HostInfo) -> dict[str, int]:
    """Return what a host still has to give, by the names of :data:`DIMENSIONS`, in their order."""
    return {
        "vcpus": host.cpu.vcpus_limit - host.cpu.vcpus_committed,
        "memory_mib": host.memory.limit_mib - host.memory.committed_mib,
        "disk_mib": host.storage.limit_mib - host.storage.committed_mib,
    }


def limits(host: HostInfo) -> dict[str, int]:
    """Return the limits of a host, with the keys of :func:`free`, in the same order."""
    return {
        "vcpus": host.cpu.vcpus_limit,
        "memory_mib": host.memory.limit_mib,
        "disk_mib": host.storage.limit_mib,
    }


def reasons(host: HostInfo, required: Requirements) -> list[str]:
    """Return every reason why a host cannot take a VM; empty if it can."""
    return [
        *_name_reasons(host, required),
        *_room_reasons(host, required),
        *_stock_reasons(host, required),
        *standing_reasons(host, required),
        *apart_reasons(host, required),
    ]


def standing_reasons(host: HostInfo, required: Requirements) -> list[str]:
    """Return the reasons that do not depend on the VMs of a host."""
    return [
        *(["in maintenance"] if host.maintenance else []),
        *_machine_reasons(host, required),
        *generation.reasons(generation.for_host(host), required),
        *_link_reasons(host, required),
    ]


def _name_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    if required.name in host.kept:
        yield f"it kept the definition of a VM called {required.name}"
    elif required.name in host.vms:
        yield f"it already has a VM called {required.name}"
    elif required.name in host.building:
        yield f"a VM called {required.name} is being built there"


def _room_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    room = free(host)
    if required.vcpus > room["vcpus"]:
        free_cpus = max(0, room["vcpus"])
        yield f"{required.vcpus} CPUs wanted, {free_cpus} of {host.cpu.vcpus_limit} free"
    if required.memory_mib > room["memory_mib"]:
        free_mib = max(0, room["memory_mib"])
        yield f"{required.memory_mib} MiB of memory wanted, {free_mib} MiB free"
    if disk_mib(host, required) > room["disk_mib"]:
        free_mib = max(0, room["disk_mib"])
        trash_mib = host.storage.trash_mib
        trash_text = f"; {trash_mib} MiB are in its trash" if trash_mib else ""
        yield f"{disk_mib(host, required)} MiB of disk wanted, {free_mib} MiB free{trash_text}"


def stocks_left(host: HostInfo) -> dict[str, int]:
    """Return what is left of a host's stocks, in MiB by names."""
    stocks = host.stocks or {}
    return {name: stock.limit_mib - stock.committed_mib for name, stock in stocks.items()}


def _stock_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    mib_by_stock = stocks_left(host)
    for name, need_mib in required.stocks if host.stocks is not None else ():
        if name not in mib_by_stock:
            yield f"no {name} there"
        elif need_mib > mib_by_stock[name]:
            yield f"{need_mib} MiB of {name} wanted, {max(0, mib_by_stock[name])} MiB free"


def needed(host: HostInfo, required: Requirements) -> tuple[int, int, int]:
    """Return what a VM takes of a host, in the order of :data:`DIMENSIONS`."""
    return required.vcpus, required.memory_mib, disk_mib(host, required)


def disk_mib(host: HostInfo, required: Requirements) -> int:
    """Return the disk space that a VM takes of a host, which a profile may determine."""
    profile = host.profiles.disk.get(required.disk_profile or "")
    return max(required.disk_mib, (profile and profile.size_mib) or 0)


def _machine_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    types = host.domain_types
    reason = why_not_type(types, required.domain_type)
    if reason:
        yield reason
    if required.arch and required.arch not in host.archs:
        yield f"no {required.arch} guests there ({', '.join(host.archs)})"
    kind = required.domain_type or types.default
    lacking = sorted(set(required.cpu_features) - set(host.cpu.features.get(kind or "", ())))
    if lacking and not reason:
        yield f"its CPU lacks {', '.join(lacking)} for {kind} guests"


def why_not_type(types: DomainTypes, domain_type: str | None) -> str | None:
    """
    Return why a host cannot run guests of a domain type, or None.

    domain_type
        ``kvm`` or ``qemu``; None for the host's default.
    """
    if domain_type and domain_type not in types.usable:
        usable_types = ", ".join(types.usable) or "none at all"
        return f"no {domain_type} guests there ({usable_types}): {types.why}"
    if not domain_type and types.default is None:
        return f"it cannot say which guests run there: {types.why}"
    return None


def _link_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    yield from _profile_reasons(host, required)
    yield from missing_links(host, required)


def missing_links(host: HostInfo, required: Requirements) -> Iterator[str]:
    """Yield why NICs of a VM have no connection on a host now; the VM cannot start there."""
    required_wiring = wiring.for_vm(required, host.profiles.nic.get(required.nic_profile or ""))
    for bridge in sorted(required_wiring.bridges.difference(host.bridges)):
        yield f"no bridge {bridge} there"
    yield from _network_reasons(host, required_wiring.networks)
    for link in sorted(required_wiring.links.difference(host.links)):
        yield f"no link {link} there"


def _network_reasons(host: HostInfo, names: Iterable[str]) -> Iterator[str]:
    for network in sorted(names):
        network_facts = host.networks.get(network)
        if network_facts is None and network == "default":
            yield "no active network default there (on it: state.apply hypervisor.nat)"
        elif network_facts is None:
            yield f"no active network {network} there"
        elif not network_facts.active:
            yield f"no active network {network} there (on it: virsh net-start {network})"


def _profile_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    nic, disk = host.profiles.nic, host.profiles.disk
    for kind, name, profile in (
        ("nic", required.nic_profile, nic.get(required.nic_profile or "")),
        ("disk", required.disk_profile, disk.get(required.disk_profile or "")),
    ):
        if name and profile is None:
            yield f"no {kind} profile {name!r} there"
        elif name and profile and profile.error is not None:
            yield profile.error


def apart_reasons(host: HostInfo, required: Requirements) -> Iterator[str]:
    """Yield why the VM's anti-affinity groups keep it off a host."""
    if not required.anti_affinity:
        return
    for name, vm in sorted(groups.members(host).items()):
        clash = set(vm.anti_affinity) & set(required.anti_affinity)
        if clash and name != required.name:
            is_there = "is there" if name in host.vms else "is being built there or on its way"
            yield f"{name} of the anti-affinity group {sorted(clash)[0]} {is_there}"
            return
