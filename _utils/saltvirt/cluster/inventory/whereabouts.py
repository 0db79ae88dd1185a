"""
Decide where one VM is, by the answers of all hypervisors and by where the VM was last seen.

Pure functions. A host without a usable answer may have the VM: if the VM was last seen there, it
counts as there still. So no command acts on a stale definition while the host that runs the VM is
unresponsive. A VM that runs on a host that answers is no stale definition: only a removal, which
cannot be undone, waits for the unresponsive host, too.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt.cluster.inventory import presence
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.core import terminal
from saltvirt.core.errors import NameTaken, NoSuchVm

RUNNING_STATES = ("running", "paused")
# The page on hosts that are lost for good.
_LOST_HOST_PAGE = "docs/maintenance.md"


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
        ``{host: reason}`` of all hosts without a usable answer; an empty reason: no answer.
    """

    name: str
    seen: Mapping[str, VmPresence]
    out_of_reach: Mapping[str, str] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        """The hosts that say that they have the VM."""
        return presence.find_hosts(self.seen)

    @property
    def traces(self) -> list[str]:
        """The hosts that say that they have a part of the VM."""
        return sorted(host for host, vm_presence in self.seen.items() if vm_presence.is_trace)

    def runs_on(self, host: str) -> bool:
        """Return whether a host that answers has the VM whole, and not shut off."""
        vm_presence = self.seen[host]
        return vm_presence.is_complete and vm_presence.state in RUNNING_STATES


def host_of(whereabouts: Whereabouts, *, is_removed: bool = False) -> str:
    """
    Return the only host on which a VM can be; if no host has it, a host that has a part of it.

    is_removed
        Whether the VM is to be removed, with its key. Defaults to False.

    Raises NameTaken if several hosts have the VM, or if a host has it and another one may, and
    NoSuchVm if no host that answers has it.
    """
    hosts = whereabouts.hosts
    if len(hosts) > 1:
        raise NameTaken(presence.several_message(whereabouts.name, hosts))
    possible_hosts = hosts or whereabouts.traces
    if (
        possible_hosts
        and whereabouts.out_of_reach
        and (is_removed or not whereabouts.runs_on(possible_hosts[0]))
    ):
        raise NameTaken(_doubt_message(whereabouts, possible_hosts[0]))
    if possible_hosts:
        return possible_hosts[0]
    raise _no_such_vm(whereabouts)


def confirm(whereabouts: Whereabouts, host: str) -> None:
    """
    Raise NameTaken if the VM that a caller knows on a host may be a stale definition.

    The definition is stale if the VM does not run there, and another host has it, or may have it.
    """
    if (
        host in whereabouts.seen
        and not whereabouts.runs_on(host)
        and whereabouts.seen[host].is_trace
    ):
        host_of(whereabouts)


def refuse_elsewhere(whereabouts: Whereabouts, host: str) -> None:
    """Raise NameTaken if another host than this one has the VM, or had it and cannot be asked."""
    other_hosts = [other_host for other_host in whereabouts.hosts if other_host != host]
    if other_hosts:
        raise NameTaken(
            f"VM {whereabouts.name!r} is on {' and '.join(other_hosts)}, and not on {host}"
        )
    if whereabouts.out_of_reach:
        raise NameTaken(
            f"VM {whereabouts.name!r} was on {with_reasons(whereabouts.out_of_reach)} when that "
            "was last asked; try "
            "again when it can be asked, or, if you know that the VM is not there any more, give "
            "replace=True"
        )


def outside_move(
    out_of_reach: Mapping[str, str],
    presence_by_host: Mapping[str, VmPresence],
    ends: Collection[str | None],
) -> dict[str, str]:
    """
    Return ``{host: reason}`` of the hosts that may have a VM beside the one that has it.

    ends
        Source and target of a recorded move of the VM that is not over. If one of them has the VM
        whole, the other does not count: the other's own record of that move says whether the VM may
        be used there.
    """
    complete_hosts = {
        host for host, vm_presence in presence_by_host.items() if vm_presence.is_complete
    }
    spared_hosts = set(ends) if complete_hosts & set(ends) else set()
    return {host: reason for host, reason in out_of_reach.items() if host not in spared_hosts}


def _doubt_message(whereabouts: Whereabouts, host: str) -> str:
    """Return the message for a VM that one host has, and that a host out of reach may have, too."""
    silent = " and ".join(whereabouts.out_of_reach)
    moved_to = whereabouts.seen[host].moved_to
    if moved_to is not None:
        begin = (
            f"VM {whereabouts.name!r} has moved to {moved_to}, and {host} only kept its "
            "definition; "
            f"{with_reasons(whereabouts.out_of_reach)} may have the VM"
        )
    else:
        part_text = (
            "has a VM of that name" if host in whereabouts.hosts else "has a part of such a VM"
        )
        begin = (
            f"VM {whereabouts.name!r} was on {with_reasons(whereabouts.out_of_reach)} when that "
            "was last asked, and "
            f"{host} {part_text}, too"
        )
    return (
        f"{begin}; nothing is done until {silent} can be asked; "
        f"{_if_lost(whereabouts.out_of_reach)}; if "
        f"it is {host} that has the VM, call the function there: salt {shlex.quote(host)} virt.…"
    )


def _no_such_vm(whereabouts: Whereabouts) -> NoSuchVm:
    """Return the error for a VM that no host that answers has."""
    where = f"on any of {terminal.count_text(len(whereabouts.seen), 'hypervisor')}"
    unheard = sorted({*whereabouts.unasked, *whereabouts.out_of_reach})
    if not unheard:
        return NoSuchVm(whereabouts.name, where)
    # The message ends with the reasons of hosts that may have the VM.
    reasons_by_host = {
        host: "" if host in whereabouts.out_of_reach else reason
        for host, reason in whereabouts.unasked.items()
    }
    silent = (
        host + (f" ({reason})" if reason else "")
        for host, reason in sorted(reasons_by_host.items())
    )
    asides = [f"not asked: {', '.join(silent)}"] if whereabouts.unasked else []
    tail = ""
    if whereabouts.out_of_reach:
        asides.append(f"it was last seen on {', '.join(sorted(whereabouts.out_of_reach))}")
        tail = (
            f"; {with_reasons(whereabouts.out_of_reach)}: try again when that can be asked; "
            f"{_if_lost(whereabouts.out_of_reach)}"
        )
    verb = "answers" if len(whereabouts.seen) == 1 else "answer"
    return NoSuchVm(whereabouts.name, f"{where} that {verb} ({'; '.join(asides)}){tail}", unheard)


def _if_lost(hosts: Iterable[str]) -> str:
    return f"if {' and '.join(hosts)} never comes back, see {_LOST_HOST_PAGE}"


def with_reasons(out_of_reach: Mapping[str, str]) -> str:
    """Return hosts that cannot be asked, each with its reason."""
    return " and ".join(f"{host} ({reason})" for host, reason in out_of_reach.items())
