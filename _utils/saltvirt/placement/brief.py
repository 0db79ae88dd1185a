"""
The facts of a host that some VMs need for their placement, in a few hundred bytes.

``virt.host_info`` has all facts of a host. :func:`build_query` names those that concern some VMs,
:func:`build_brief` selects them on the host, and :func:`to_host_info` turns them into the input of
placement on the master. The decisions are the same as with all facts; headroom alone needs all, for
the size of each VM.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import generation, groups, wiring
from saltvirt.placement.answers import (
    ComingFacts,
    Count,
    CpuFacts,
    DiskProfile,
    DomainTypes,
    HostInfo,
    Machines,
    MemoryFacts,
    NetworkFacts,
    NicProfile,
    Profiles,
    StorageFacts,
    Versions,
    VmFacts,
    default_with,
)
from saltvirt.placement.resources import Stock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """
    The names in question: the answer tells which of them a host has.

    nic, disk
        Names of profiles; ``with_nics`` requests each of their NICs.
    machines
        Names of machine types.
    with_names
        Whether to send the names of all VMs, and not only their digest.
    only, seed, below
        The hosts that send more than names: these, or those with a :func:`rank` of at most
        ``below``. All do if neither is given.
    """

    groups: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    nic: list[str] = field(default_factory=list)
    with_nics: bool = False
    disk: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    stocks: list[str] = field(default_factory=list)
    with_names: bool = False
    only: list[str] = field(default_factory=list)
    seed: str = ""
    below: Count = 0

    def is_for(self, host: str) -> bool:
        """Return whether a host sends more than names."""
        if self.only:
            return host in self.only
        return not self.seed or rank(self.seed, host) <= self.below


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Those groups of a VM that are in question."""

    affinity: list[str]
    anti_affinity: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a host's resources."""

    vcpus: int
    memory_mib: int
    disk_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The promised part of a host's resources."""

    vcpus: Count
    memory_mib: Count
    disk_mib: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """
    The offer of a host, without what is not in question, and without empty values.

    groups
        Of the VMs that are there, or on their way there, and in one of the groups in question.
    """

    limits: Limits
    committed: Committed
    arch: str
    versions: Versions
    domain_types: DomainTypes
    trash_mib: Count | None = default_with("trash_mib")
    maintenance: bool | None = default_with("maintenance")
    tags: dict[str, str] | None = default_with("tags")
    groups: dict[str, Groups] | None = default_with("groups")
    stocks: dict[str, Stock] | None = default_with("stocks")
    bridges: list[str] | None = default_with("bridges")
    links: list[str] | None = default_with("links")
    networks: dict[str, NetworkFacts] | None = default_with("networks")
    nic: dict[str, NicProfile] | None = default_with("nic")
    disk: dict[str, DiskProfile] | None = default_with("disk")
    features: dict[str, list[str]] | None = default_with("features")
    archs: list[str] | None = default_with("archs")
    machines: dict[str, Machines] | None = default_with("machines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    The names of the VMs of which a host has anything.

    digest
        Of the names of its own VMs, see :func:`digest`.
    listed
        These names, if they were requested.
    kept, building, unfinished, unreadable
        As in ``virt.host_info``.
    """

    digest: str
    listed: list[str] | None = default_with("listed")
    kept: dict[str, str] | None = default_with("kept")
    building: list[str] | None = default_with("building")
    unfinished: list[str] | None = default_with("unfinished")
    unreadable: dict[str, str] | None = default_with("unreadable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A host's answer to ``virt.placement_facts``; ``offer`` is None if it was not requested."""

    names: Names
    offer: Offer | None = default_with("offer")


def rank(seed: str, host: str) -> int:
    """Return a number of 63 bits that puts hosts into another order for each seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{host}".encode()).digest()[:8], "big") >> 1


def digest(names: Iterable[str]) -> str:
    """Return a digest that two hosts share only if their VMs have the same names."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def is_of_one_host(required: Requirements, policy: Policy) -> bool:
    """Return whether a host can take a VM or not independently of all other hosts."""
    looks_around = policy.headroom or policy.spread_over or required.affinity
    return not looks_around and not any(map(groups.tag_of, required.anti_affinity))


def build_query(requests: Collection[Requirements], policy: Policy) -> Query:
    """Return the query for the needs of some VMs."""
    group_names = {
        group for request in requests for group in (*request.affinity, *request.anti_affinity)
    }
    tags = {tag for tag in (policy.spread_over, *map(groups.tag_of, group_names)) if tag}
    may_be_on = wiring.possible_names(requests)
    return Query(
        groups=sorted(group_names),
        tags=sorted(tags),
        bridges=sorted({*_each(requests, "bridges"), *may_be_on}),
        networks=sorted({*_each(requests, "networks"), *may_be_on}),
        links=sorted({*_each(requests, "links"), *may_be_on}),
        nic=_each(requests, "nic_profile"),
        with_nics=any(request.called for request in requests),
        disk=_each(requests, "disk_profile"),
        features=_each(requests, "cpu_features"),
        types=_each(requests, "domain_type"),
        archs=_each(requests, "arch"),
        machines=sorted({*_each(requests, "machine"), *_each(requests, "next_machine")}),
        stocks=sorted({name for request in requests for name, _mib in request.stocks}),
    )


def _each(requests: Iterable[Requirements], field_: str) -> list[str]:
    """Return all values in a field of requests, which has one name, some, or None."""
    out = set[str]()
    for request in requests:
        value = getattr(request, field_)
        out.update([value] if isinstance(value, str) else value or ())
    return sorted(out)


def names(
    query: Query,
    vm_names: Iterable[str],
    *,
    kept_definitions: dict[str, str],
    building: list[str],
    unfinished: list[str],
    unreadable: dict[str, str],
) -> Names:
    """Return the names of the VMs of which a host has anything, without empty values."""
    return Names(
        digest=digest(vm_names),
        listed=sorted(vm_names) if query.with_names else None,
        kept=kept_definitions or None,
        building=building or None,
        unfinished=unfinished or None,
        unreadable=unreadable or None,
    )


def build_brief(host_info: HostInfo, query: Query) -> Brief:
    """Return a host's answer, from all of its facts."""
    cpu, memory, storage = host_info.cpu, host_info.memory, host_info.storage
    nic = {
        name: profile if query.with_nics else replace(profile, nics=None)
        for name, profile in _select(host_info.profiles.nic, query.nic).items()
    }
    profile_names = wiring.names_in_profiles(nic.values())
    stocks = _select(host_info.stocks, query.stocks) if host_info.stocks is not None else None
    offer = Offer(
        limits=Limits(
            vcpus=cpu.vcpus_limit, memory_mib=memory.limit_mib, disk_mib=storage.limit_mib
        ),
        committed=Committed(
            vcpus=cpu.vcpus_committed,
            memory_mib=memory.committed_mib,
            disk_mib=storage.committed_mib,
        ),
        arch=cpu.arch,
        versions=host_info.versions,
        domain_types=_types(host_info.domain_types, query.types),
        trash_mib=storage.trash_mib,
        maintenance=_if_any(host_info.maintenance),
        tags=_if_any(_select(host_info.tags, query.tags)),
        groups=_if_any(_groups(host_info, {*query.groups})),
        stocks=stocks if query.stocks else None,
        bridges=_if_any(
            sorted(profile_names["bridges"].union(query.bridges).intersection(host_info.bridges))
        ),
        links=_if_any(
            sorted(profile_names["links"].union(query.links).intersection(host_info.links))
        ),
        networks=_if_any(
            _select(host_info.networks, profile_names["networks"].union(query.networks))
        ),
        nic=_if_any(nic),
        disk=_if_any(_select(host_info.profiles.disk, query.disk)),
        features=_if_any(_features(cpu.features, {*query.features})),
        archs=host_info.archs if query.archs else None,
        machines=_if_any(_machines(host_info, query)),
    )
    vm_names = names(
        query,
        host_info.vms,
        kept_definitions=host_info.kept,
        building=host_info.building,
        unfinished=host_info.unfinished,
        unreadable=host_info.unreadable,
    )
    return Brief(names=vm_names, offer=offer)


def _if_any(value: _T) -> _T | None:
    return value or None


def _or(value: _T | None, usual: _T) -> _T:
    return usual if value is None else value


def _select(mapping: Mapping[str, _T], keys: Iterable[str]) -> dict[str, _T]:
    return {name: mapping[name] for name in sorted(keys) if name in mapping}


def _types(types: DomainTypes, requested: Collection[str]) -> DomainTypes:
    """Return the domain types, with the reason for missing ones only if one is needed."""
    is_enough = types.default is not None and {*requested} <= {*types.usable}
    reason = "" if is_enough else types.why
    return DomainTypes(default=types.default, usable=types.usable, why=reason)


def _groups(host_info: HostInfo, group_names: set[str]) -> dict[str, Groups]:
    out = {}
    for name, vm in groups.members(host_info).items() if group_names else ():
        vm_groups = Groups(
            affinity=[group for group in vm.affinity if group in group_names],
            anti_affinity=[group for group in vm.anti_affinity if group in group_names],
        )
        if vm_groups.affinity or vm_groups.anti_affinity:
            out[name] = vm_groups
    return out


def _features(
    features_by_type: Mapping[str, list[str]], requested: set[str]
) -> dict[str, list[str]]:
    if not requested:
        return {}
    return {
        kind: sorted(requested.intersection(features))
        for kind, features in features_by_type.items()
    }


def _machines(host_info: HostInfo, query: Query) -> dict[str, Machines]:
    if not query.machines:
        return {}
    families = {generation.family(name)[0] for name in query.machines}
    return {
        arch: Machines(
            versions=_select(machines.versions, families),
            names=sorted({*query.machines}.intersection(machines.names)),
        )
        for arch, machines in host_info.machines.items()
        if arch in (host_info.cpu.arch, *query.archs)
    }


def to_host_info(brief: Brief, vm_names: Iterable[str]) -> HostInfo:
    """
    Return a brief in the form of ``virt.host_info``.

    vm_names
        The names of its VMs. Only their groups in question are known: their state is empty, and
        their sizes are 0.

    A host that sends no more than names offers nothing.
    """
    offer = brief.offer or _NOTHING
    limits, committed, building = offer.limits, offer.committed, _or(brief.names.building, [])
    return HostInfo(
        maintenance=bool(offer.maintenance),
        tags=_or(offer.tags, {}),
        vms={name: _vm(offer, name) for name in vm_names},
        kept=_or(brief.names.kept, {}),
        building=building,
        coming={name: _coming(offer, name) for name in building},
        unfinished=_or(brief.names.unfinished, []),
        unreadable=_or(brief.names.unreadable, {}),
        cpu=CpuFacts(
            arch=offer.arch,
            vcpus_limit=limits.vcpus,
            vcpus_committed=committed.vcpus,
            features=_or(offer.features, {}),
        ),
        memory=MemoryFacts(limit_mib=limits.memory_mib, committed_mib=committed.memory_mib),
        storage=StorageFacts(
            limit_mib=limits.disk_mib,
            committed_mib=committed.disk_mib,
            trash_mib=offer.trash_mib,
        ),
        bridges=_or(offer.bridges, []),
        links=_or(offer.links, []),
        networks=_or(offer.networks, {}),
        profiles=Profiles(nic=_or(offer.nic, {}), disk=_or(offer.disk, {})),
        domain_types=offer.domain_types,
        machines=_or(offer.machines, {}),
        archs=_or(offer.archs, []),
        versions=offer.versions,
        stocks=offer.stocks,
    )


_IN_NO_GROUP = Groups(affinity=[], anti_affinity=[])
_NOTHING = Offer(
    limits=Limits(vcpus=0, memory_mib=0, disk_mib=0),
    committed=Committed(vcpus=0, memory_mib=0, disk_mib=0),
    arch="",
    versions=Versions(libvirt="0", qemu="0"),
    domain_types=DomainTypes(default=None, usable=[], why=""),
)


def _vm(offer: Offer, name: str) -> VmFacts:
    vm_groups = (offer.groups or {}).get(name, _IN_NO_GROUP)
    return VmFacts(
        state="",
        vcpus=0,
        memory_mib=0,
        affinity=vm_groups.affinity,
        anti_affinity=vm_groups.anti_affinity,
    )


def _coming(offer: Offer, name: str) -> ComingFacts:
    vm_groups = (offer.groups or {}).get(name, _IN_NO_GROUP)
    return ComingFacts(
        vcpus=0,
        memory_mib=0,
        disk_mib=0,
        affinity=vm_groups.affinity,
        anti_affinity=vm_groups.anti_affinity,
    )
