"""What each host reports of one VM, and what follows from all of them."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from saltvirt.placement.answers import HostInfo, Presence


@dataclass(frozen=True, slots=True, kw_only=True)
class VmPresence:
    """
    What one host reports of one VM.

    state
        The state of its domain; None if the host has none of that name.
    building
        Whether it is being built there, or is on its way there.
    unfinished
        Whether its build there died before it was complete.
    moved_to
        The host that has the VM, if this host kept only its definition.
    uuid
        UUID of its domain, if known.
    unreadable
        Why a record of it cannot be read there, with the remedy; only from virt.host_info.
    notes_made
        Whether its definition records what its build made; only from virt.presence.
    reports
        Whether the host's purge can report what it has removed; only from virt.presence.
    """

    state: str | None = None
    building: bool = False
    unfinished: bool = False
    moved_to: str | None = None
    uuid: str | None = None
    unreadable: str | None = None
    notes_made: bool = False
    reports: bool = False

    @property
    def is_its_own(self) -> bool:
        """Whether the host has a domain that is its own, or is to become its own."""
        return self.state is not None and self.moved_to is None

    @property
    def is_complete(self) -> bool:
        """Whether the host has all of the VM; a defined VM is complete even if its build died."""
        return self.is_its_own and not self.building

    @property
    def is_trace(self) -> bool:
        """Whether the host has anything of the VM."""
        return self.state is not None or self.building or self.unfinished


def from_answers(answers: Mapping[str, HostInfo | Presence], name: str) -> dict[str, VmPresence]:
    """Return each host's presence of a VM by its ``virt.host_info`` or ``virt.presence``."""
    return {
        host: _from_presence(answer)
        if isinstance(answer, Presence)
        else _from_host_info(answer, name)
        for host, answer in answers.items()
    }


def _from_presence(answer: Presence) -> VmPresence:
    return VmPresence(
        state=answer.state,
        building=answer.building,
        unfinished=answer.unfinished,
        moved_to=answer.moved_to,
        uuid=answer.uuid,
        notes_made=bool(answer.notes_made),
        reports=answer.reports,
    )


def _from_host_info(info: HostInfo, name: str) -> VmPresence:
    vm, moved_to = info.vms.get(name), info.kept.get(name)
    kept_state = None if moved_to is None else "shutdown"
    return VmPresence(
        state=vm.state if vm else kept_state,
        building=name in info.building,
        unfinished=name in info.unfinished,
        moved_to=moved_to,
        uuid=vm.uuid if vm else None,
        unreadable=info.unreadable.get(name),
    )


def names(answers: Mapping[str, HostInfo]) -> frozenset[str]:
    """Return the names of all VMs that hosts have, await, or have leftovers of."""
    return frozenset(name for info in answers.values() for name in names_of(info))


def names_of(info: HostInfo) -> Iterator[str]:
    """Yield the names of all VMs that a host has, awaits, or has leftovers of."""
    yield from info.vms
    yield from info.kept
    yield from info.building
    yield from info.coming
    yield from info.unfinished
    yield from info.unreadable


def find_similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the other VMs that may have a disk of the same name as this VM: ``VM_DISK``."""
    prefix = f"{name}_"
    return sorted(
        other_name
        for other_name in names
        if other_name.startswith(prefix) or name.startswith(f"{other_name}_")
    )


def find_hosts(presence_by_host: Mapping[str, VmPresence]) -> list[str]:
    """
    Return the hosts that have a VM.

    A host that only awaits the VM does not count if another host has it. A host that kept only its
    definition does not count if another host has or awaits it.
    """
    hosts = sorted(
        host for host, vm_presence in presence_by_host.items() if vm_presence.state is not None
    )
    own_hosts = [host for host in hosts if presence_by_host[host].is_its_own]
    return [host for host in own_hosts if presence_by_host[host].is_complete] or own_hosts or hosts


def coming_message(name: str, host: str) -> str:
    """Return the message that a VM is not on a host yet."""
    return (
        f"VM {name!r} is being built on {host}, or is on its way there: wait until that is over; "
        f"if it is a move that was interrupted: salt-run virt.settle {shlex.quote(name)}"
    )


def several_message(name: str, hosts: list[str]) -> str:
    """Return the message that a VM is on several hosts."""
    typed = shlex.quote(name)
    return (
        f"VM {name!r} is on {' and '.join(hosts)}: look at each (salt HOST virt.vm_info {typed}), "
        f"and remove the wrong one there: salt WRONG-HOST virt.purge {typed} "
        "(virt.undefine if they share disks)"
    )
