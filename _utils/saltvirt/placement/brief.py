"""
What placement must know of a host in a few hundred bytes: what the VMs asked for need, no more.

``virt.host_info`` tells all that a host has. :func:`about` says what of it concerns some VMs,
:func:`of` takes that out, on the host, and :func:`info` makes of it what placement takes, on the
master. It decides by that as by the whole; headroom alone needs the whole, as it looks at the size
of each VM.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from saltvirt.model import Policy, Requirements
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
    said_with,
)
from saltvirt.placement.stock import Stock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """
    What is asked for: the answer says of all that whether a host has it.

    nic, disk
        Names of profiles; ``with_nics`` has each NIC of theirs told.
    machines
        Names of machine types.
    with_names
        Whether the names of all VMs are told, and not only their digest.
    only, seed, below
        Who says more than names: these hosts, or those whose :func:`rank` is at most that. All do
        where neither is given.
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
        """Return whether a host says more than names."""
        if self.only:
            return host in self.only
        return not self.seed or rank(self.seed, host) <= self.below


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Those groups of a VM that were asked about."""

    affinity: list[str]
    anti_affinity: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a host has to give in all."""

    vcpus: int
    memory_mib: int
    disk_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a host has promised of it."""

    vcpus: Count
    memory_mib: Count
    disk_mib: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """
    What a host offers; what was not asked about is left out, and so is what there is nothing of.

    groups
        Of the VMs that are there, or on their way there, and in one of the groups asked about.
    """

    limits: Limits
    committed: Committed
    arch: str
    versions: Versions
    domain_types: DomainTypes
    maintenance: bool | None = said_with("maintenance")
    tags: dict[str, str] | None = said_with("tags")
    groups: dict[str, Groups] | None = said_with("groups")
    stocks: dict[str, Stock] | None = said_with("stocks")
    bridges: list[str] | None = said_with("bridges")
    links: list[str] | None = said_with("links")
    networks: dict[str, NetworkFacts] | None = said_with("networks")
    nic: dict[str, NicProfile] | None = said_with("nic")
    disk: dict[str, DiskProfile] | None = said_with("disk")
    features: dict[str, list[str]] | None = said_with("features")
    archs: list[str] | None = said_with("archs")
    machines: dict[str, Machines] | None = said_with("machines")
    takes_uuid: bool | None = said_with("takes_uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    Of which VMs a host has anything.

    digest
        That of the names of its own VMs, see :func:`digest`.
    listed
        These names, where they were asked for.
    kept, building, unfinished, unreadable
        As ``virt.host_info`` has them.
    """

    digest: str
    listed: list[str] | None = said_with("listed")
    kept: dict[str, str] | None = said_with("kept")
    building: list[str] | None = said_with("building")
    unfinished: list[str] | None = said_with("unfinished")
    unreadable: dict[str, str] | None = said_with("unreadable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a host answers to ``virt.placement_facts``; ``offer`` is None if it was not asked it."""

    names: Names
    offer: Offer | None = said_with("offer")


def rank(seed: str, host: str) -> int:
    """Return a number of 63 bits by which hosts are in an order that is another for each seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{host}".encode()).digest()[:8], "big") >> 1


def digest(names: Iterable[str]) -> str:
    """Return what two hosts have in common only if they have VMs of the same names."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def is_of_one_host(required: Requirements, policy: Policy) -> bool:
    """Return whether a host can take a VM or not whatever there is on all others."""
    looks_around = policy.headroom or policy.spread_over or required.affinity
    return not looks_around and not any(map(groups.tag_of, required.anti_affinity))


def about(requests: Collection[Requirements], policy: Policy) -> About:
    """Return what some VMs need to be asked for."""
    mine = {group for one in requests for group in (*one.affinity, *one.anti_affinity)}
    tags = {tag for tag in (policy.spread_over, *map(groups.tag_of, mine)) if tag}
    may_be_on = wiring.may_be_on(requests)
    return About(
        groups=sorted(mine),
        tags=sorted(tags),
        bridges=sorted({*_each(requests, "bridges"), *may_be_on}),
        networks=sorted({*_each(requests, "networks"), *may_be_on}),
        links=sorted({*_each(requests, "links"), *may_be_on}),
        nic=_each(requests, "nic_profile"),
        with_nics=any(one.called for one in requests),
        disk=_each(requests, "disk_profile"),
        features=_each(requests, "cpu_features"),
        types=_each(requests, "domain_type"),
        archs=_each(requests, "arch"),
        machines=sorted({*_each(requests, "machine"), *_each(requests, "next_machine")}),
        stocks=sorted({name for one in requests for name, _mib in one.stocks}),
    )


def _each(requests: Iterable[Requirements], field_: str) -> list[str]:
    """Return all that is in a field of requests, which has one name, some, or None."""
    out = set[str]()
    for one in requests:
        value = getattr(one, field_)
        out.update([value] if isinstance(value, str) else value or ())
    return sorted(out)


def names(
    wanted: About,
    own: Iterable[str],
    *,
    kept: dict[str, str],
    building: list[str],
    unfinished: list[str],
    unreadable: dict[str, str],
) -> Names:
    """Return of which VMs a host has anything, with only what there is."""
    return Names(
        digest=digest(own),
        listed=sorted(own) if wanted.with_names else None,
        kept=kept or None,
        building=building or None,
        unfinished=unfinished or None,
        unreadable=unreadable or None,
    )


def of(known: HostInfo, wanted: About) -> Brief:
    """Return what a host answers, by all that it has."""
    cpu, memory, storage = known.cpu, known.memory, known.storage
    nic = {
        name: one if wanted.with_nics else replace(one, nics=None)
        for name, one in _some(known.profiles.nic, wanted.nic).items()
    }
    on = wiring.told(nic.values())
    stocks = _some(known.stocks, wanted.stocks) if known.stocks is not None else None
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
        versions=known.versions,
        domain_types=_types(known.domain_types, wanted.types),
        maintenance=_if_any(known.maintenance),
        tags=_if_any(_some(known.tags, wanted.tags)),
        groups=_if_any(_groups(known, {*wanted.groups})),
        stocks=stocks if wanted.stocks else None,
        bridges=_if_any(sorted(on["bridges"].union(wanted.bridges).intersection(known.bridges))),
        links=_if_any(sorted(on["links"].union(wanted.links).intersection(known.links))),
        networks=_if_any(_some(known.networks, on["networks"].union(wanted.networks))),
        nic=_if_any(nic),
        disk=_if_any(_some(known.profiles.disk, wanted.disk)),
        features=_if_any(_features(cpu.features, {*wanted.features})),
        archs=known.archs if wanted.archs else None,
        machines=_if_any(_machines(known, wanted)),
        takes_uuid=known.takes_uuid,
    )
    there = names(
        wanted,
        known.vms,
        kept=known.kept,
        building=known.building,
        unfinished=known.unfinished,
        unreadable=known.unreadable,
    )
    return Brief(names=there, offer=offer)


def _if_any(value: _T) -> _T | None:
    return value or None


def _or(value: _T | None, usual: _T) -> _T:
    return usual if value is None else value


def _some(known: Mapping[str, _T], wanted: Iterable[str]) -> dict[str, _T]:
    return {name: known[name] for name in sorted(wanted) if name in known}


def _types(known: DomainTypes, wanted: Collection[str]) -> DomainTypes:
    """Return the kinds of guests, with why there are no others only where one is missed."""
    is_enough = known.default is not None and {*wanted} <= {*known.usable}
    why = "" if is_enough else known.why
    return DomainTypes(default=known.default, usable=known.usable, why=why)


def _groups(known: HostInfo, wanted: set[str]) -> dict[str, Groups]:
    out = {}
    for name, vm in groups.members(known).items() if wanted else ():
        mine = Groups(
            affinity=[one for one in vm.affinity if one in wanted],
            anti_affinity=[one for one in vm.anti_affinity if one in wanted],
        )
        if mine.affinity or mine.anti_affinity:
            out[name] = mine
    return out


def _features(known: Mapping[str, list[str]], wanted: set[str]) -> dict[str, list[str]]:
    if not wanted:
        return {}
    return {kind: sorted(wanted.intersection(there)) for kind, there in known.items()}


def _machines(known: HostInfo, wanted: About) -> dict[str, Machines]:
    if not wanted.machines:
        return {}
    families = {generation.family(one)[0] for one in wanted.machines}
    return {
        arch: Machines(
            versions=_some(there.versions, families),
            names=sorted({*wanted.machines}.intersection(there.names)),
        )
        for arch, there in known.machines.items()
        if arch in (known.cpu.arch, *wanted.archs)
    }


def info(said: Brief, listed: Iterable[str]) -> HostInfo:
    """
    Return what a host says of itself, as far as it does.

    listed
        The names of its VMs, of which nothing else is known but the groups asked about: their state
        is empty, and their sizes are 0.

    One that says no more than names offers nothing.
    """
    offer = said.offer or _NOTHING
    limits, committed, building = offer.limits, offer.committed, _or(said.names.building, [])
    return HostInfo(
        maintenance=bool(offer.maintenance),
        tags=_or(offer.tags, {}),
        vms={name: _vm(offer, name) for name in listed},
        kept=_or(said.names.kept, {}),
        building=building,
        coming={name: _coming(offer, name) for name in building},
        unfinished=_or(said.names.unfinished, []),
        unreadable=_or(said.names.unreadable, {}),
        cpu=CpuFacts(
            arch=offer.arch,
            vcpus_limit=limits.vcpus,
            vcpus_committed=committed.vcpus,
            features=_or(offer.features, {}),
        ),
        memory=MemoryFacts(limit_mib=limits.memory_mib, committed_mib=committed.memory_mib),
        storage=StorageFacts(limit_mib=limits.disk_mib, committed_mib=committed.disk_mib),
        bridges=_or(offer.bridges, []),
        links=_or(offer.links, []),
        networks=_or(offer.networks, {}),
        profiles=Profiles(nic=_or(offer.nic, {}), disk=_or(offer.disk, {})),
        domain_types=offer.domain_types,
        machines=_or(offer.machines, {}),
        archs=_or(offer.archs, []),
        versions=offer.versions,
        stocks=offer.stocks,
        takes_uuid=offer.takes_uuid,
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
    mine = (offer.groups or {}).get(name, _IN_NO_GROUP)
    return VmFacts(
        state="",
        vcpus=0,
        memory_mib=0,
        affinity=mine.affinity,
        anti_affinity=mine.anti_affinity,
    )


def _coming(offer: Offer, name: str) -> ComingFacts:
    mine = (offer.groups or {}).get(name, _IN_NO_GROUP)
    return ComingFacts(
        vcpus=0,
        memory_mib=0,
        disk_mib=0,
        affinity=mine.affinity,
        anti_affinity=mine.anti_affinity,
    )
