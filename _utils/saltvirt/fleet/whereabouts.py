"""
Where one VM is: decided by what all hypervisors answer, and by where the VM was last seen.

Pure. A host that does not answer, or whose answer cannot be used, has not said that it lacks the
VM: if it had the VM when it was last asked, it counts as if it still has it. So no command acts on
a stale definition while the host that runs the VM is silent. A VM that runs on a host that answers
is no stale definition: only what cannot be taken back, a removal, waits for the silent host, too.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt import terminal
from saltvirt.errors import NameTaken, NoSuchVm
from saltvirt.fleet import sightings
from saltvirt.fleet.sightings import Sighting

ON = ("running", "paused")
# What users read of hosts that are lost for good.
_LOST = "docs/maintenance.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """
    All that is known of where a VM is.

    name
        The VM's name.
    seen
        What each host that answers says of the VM.
    out_of_reach
        ``{host: reason}`` of the hosts that may have the VM and cannot be asked now.
    unasked
        ``{host: reason}`` of all hosts that gave no answer that can be used; an empty reason is
        plain silence.
    """

    name: str
    seen: Mapping[str, Sighting]
    out_of_reach: Mapping[str, str] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """The hosts that say that they have the VM."""
        return sightings.having(self.seen)

    @property
    def traces(self) -> list[str]:
        """The hosts that say that they have a part of the VM."""
        return sorted(host for host, sighting in self.seen.items() if sighting.is_trace)

    def runs_on(self, host: str) -> bool:
        """Return whether a host that answers has the VM whole, and not shut off."""
        sighting = self.seen[host]
        return sighting.is_complete and sighting.state in ON


def host_of(known: Whereabouts, *, is_removed: bool = False) -> str:
    """
    Return the only host on which a VM can be; if none has it, one that has a part of it.

    is_removed
        Whether the VM is to be removed, with its key. Defaults to False.

    Raises NameTaken if several hosts have the VM, or if a host has it and another one may, and
    NoSuchVm if no host that answers has it.
    """
    hosts = known.hosts
    if len(hosts) > 1:
        raise NameTaken(sightings.several(known.name, hosts))
    here = hosts or known.traces
    if here and known.out_of_reach and (is_removed or not known.runs_on(here[0])):
        raise NameTaken(_doubtful(known, here[0]))
    if here:
        return here[0]
    raise _nowhere(known)


def confirm(known: Whereabouts, host: str) -> None:
    """
    Raise NameTaken if the VM of a host, which a caller knows to have it, may be a stale definition.

    It is one if the VM does not run there, and another host has it, or may have it.
    """
    if host in known.seen and not known.runs_on(host) and known.seen[host].is_trace:
        host_of(known)


def refuse_elsewhere(known: Whereabouts, host: str) -> None:
    """Raise NameTaken if another host than this one has the VM, or had it and cannot be asked."""
    others = [other for other in known.hosts if other != host]
    if others:
        raise NameTaken(f"VM {known.name!r} is on {' and '.join(others)}, and not on {host}")
    if known.out_of_reach:
        raise NameTaken(
            f"VM {known.name!r} was on {listed(known.out_of_reach)} when that was last asked; try "
            "again when it can be asked, or, if you know that the VM is not there any more, give "
            "replace=True"
        )


def beside_move(
    out_of_reach: Mapping[str, str], seen: Mapping[str, Sighting], ends: Collection[str | None]
) -> dict[str, str]:
    """
    Return ``{host: reason}`` of the hosts that may have a VM beside the one that has it.

    ends
        The two hosts of a move of the VM that is on record, and is not over. If one of them has
        the VM whole, the other one does not count: the host's own record of that move says whether
        the VM may be used there.
    """
    whole = {host for host, sighting in seen.items() if sighting.is_complete}
    spared = set(ends) if whole & set(ends) else set()
    return {host: reason for host, reason in out_of_reach.items() if host not in spared}


def _doubtful(known: Whereabouts, host: str) -> str:
    """Return the line of a VM that one host has, and that a host out of reach may have, too."""
    silent = " and ".join(known.out_of_reach)
    moved_to = known.seen[host].moved_to
    if moved_to is not None:
        begin = (
            f"VM {known.name!r} has moved to {moved_to}, and {host} only kept its definition; "
            f"{listed(known.out_of_reach)} may have the VM"
        )
    else:
        has = "has a VM of that name" if host in known.hosts else "has a part of such a VM"
        begin = (
            f"VM {known.name!r} was on {listed(known.out_of_reach)} when that was last asked, and "
            f"{host} {has}, too"
        )
    return (
        f"{begin}; nothing is done until {silent} can be asked; {_if_lost(known.out_of_reach)}; if "
        f"it is {host} that has the VM, call the function there: salt {shlex.quote(host)} virt.…"
    )


def _nowhere(known: Whereabouts) -> NoSuchVm:
    """Return the error of a VM that no host has that answers."""
    where = f"on any of {terminal.counted(len(known.seen), 'hypervisor')}"
    unheard = sorted({*known.unasked, *known.out_of_reach})
    if not unheard:
        return NoSuchVm(known.name, where)
    # Of a host that may have the VM the reason is told at the end.
    told = {host: "" if host in known.out_of_reach else why for host, why in known.unasked.items()}
    silent = (host + (f" ({why})" if why else "") for host, why in sorted(told.items()))
    asides = [f"not asked: {', '.join(silent)}"] if known.unasked else []
    tail = ""
    if known.out_of_reach:
        asides.append(f"it was last seen on {', '.join(sorted(known.out_of_reach))}")
        tail = (
            f"; {listed(known.out_of_reach)}: try again when that can be asked; "
            f"{_if_lost(known.out_of_reach)}"
        )
    verb = "answers" if len(known.seen) == 1 else "answer"
    return NoSuchVm(known.name, f"{where} that {verb} ({'; '.join(asides)}){tail}", unheard)


def _if_lost(hosts: Iterable[str]) -> str:
    return f"if {' and '.join(hosts)} never comes back, see {_LOST}"


def listed(out_of_reach: Mapping[str, str]) -> str:
    """Return hosts that cannot be asked, each with its reason."""
    return " and ".join(f"{host} ({reason})" for host, reason in out_of_reach.items())
