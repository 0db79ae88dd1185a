"""Sightings: what each host says of one VM, and what these answers come to together."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from saltvirt.placement.answers import HostInfo, Presence


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """
    What one host says of one VM.

    state
        The state of its domain; None if the host has none of that name.
    building
        Whether it is being made there, or on its way there, at this moment.
    unfinished
        Whether what made it there has died before it was complete.
    moved_to
        The host that has it, if only its definition was kept there.
    uuid
        That of its domain, if that is known.
    unreadable
        Why a record of it cannot be read there, and what to do; only virt.host_info says it.
    """

    state: str | None = None
    building: bool = False
    unfinished: bool = False
    moved_to: str | None = None
    uuid: str | None = None
    unreadable: str | None = None

    @property
    def is_its_own(self) -> bool:
        """Whether the host has a domain that is its own, or is to be."""
        return self.state is not None and self.moved_to is None

    @property
    def is_complete(self) -> bool:
        """Whether the host has all of the VM: what is defined is, whoever has died over it."""
        return self.is_its_own and not self.building

    @property
    def is_trace(self) -> bool:
        """Whether the host has anything of the VM."""
        return self.state is not None or self.building or self.unfinished


def of_presence(answers: Mapping[str, Presence]) -> dict[str, Sighting]:
    """Return the sightings in ``{host: answer of virt.presence}``."""
    return {
        host: Sighting(
            state=one.state,
            building=one.building,
            unfinished=one.unfinished,
            moved_to=one.moved_to,
            uuid=one.uuid,
        )
        for host, one in answers.items()
    }


def of_info(answers: Mapping[str, HostInfo], name: str) -> dict[str, Sighting]:
    """Return the sightings of a name in ``{host: answer of virt.host_info}``."""
    return {host: _of_info(info, name) for host, info in answers.items()}


def _of_info(info: HostInfo, name: str) -> Sighting:
    vm, moved_to = info.vms.get(name), info.kept.get(name)
    off = None if moved_to is None else "shutdown"
    return Sighting(
        state=vm.state if vm else off,
        building=name in info.building,
        unfinished=name in info.unfinished,
        moved_to=moved_to,
        uuid=vm.uuid if vm else None,
        unreadable=info.unreadable.get(name),
    )


def names(answers: Mapping[str, HostInfo]) -> frozenset[str]:
    """Return the names of all that hosts have, await, or have something left of."""
    return frozenset(one for info in answers.values() for one in names_of(info))


def names_of(info: HostInfo) -> Iterator[str]:
    """Yield the names of all that a host has, awaits, or has something left of."""
    yield from info.vms
    yield from info.kept
    yield from info.building
    yield from info.coming
    yield from info.unfinished
    yield from info.unreadable


def alike(name: str, others: Iterable[str]) -> list[str]:
    """Return the other VMs that may have a disk called as one of this VM: ``VM_DISK``."""
    mine = f"{name}_"
    return sorted(one for one in others if one.startswith(mine) or name.startswith(f"{one}_"))


def having(seen: Mapping[str, Sighting]) -> list[str]:
    """
    Return the hosts that have a VM.

    A host to which it is still on its way does not count if another has it, nor does one that only
    kept its definition.
    """
    there = sorted(host for host, one in seen.items() if one.state is not None)
    own = [host for host in there if seen[host].is_its_own]
    return [host for host in own if seen[host].is_complete] or own or there


def coming(name: str, host: str) -> str:
    """Return the line that says that a VM is not on a host yet."""
    return (
        f"VM {name!r} is being built on {host}, or is on its way there: wait until that is over; "
        f"if it is a move that was interrupted: salt-run virt.settle {shlex.quote(name)}"
    )


def several(name: str, hosts: list[str]) -> str:
    """Return the line that names a VM which is on several hosts."""
    typed = shlex.quote(name)
    return (
        f"VM {name!r} is on {' and '.join(hosts)}: look at each (salt HOST virt.vm_info {typed}), "
        f"and remove the wrong one there: salt WRONG-HOST virt.purge {typed} "
        "(virt.undefine if they share disks)"
    )
