"""
Decide where one VM is, by the answers of hypervisors and by where the VM was last seen.

Pure functions. A host without a usable answer may have the VM: if the VM was last seen there, it
counts as there still. So no command acts on a stale definition while the host that runs the VM is
unresponsive. A VM that runs on a host that answers is no stale definition: only a command that
cannot be undone, or that makes the VM, waits for the unresponsive host, too. :data:`RULES` has what
each purpose demands.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from saltvirt.cluster.inventory import presence
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.core import terminal
from saltvirt.core.errors import NameTaken, NoSuchVm

RUNNING_STATES = ("running", "paused")


class Purpose(Enum):
    """
    What a command locates a VM for.

    READ
        Show the VM.
    ACT
        Change the VM, or move it.
    MOVE
        Move the VM off a host that the caller knows to have it.
    REMOVE
        Remove the VM and its key.
    CREATE
        Make a VM of that name.
    AUTHORIZE
        Have a host that the caller names submit the key of its VM.
    REPORT
        Learn what all hosts report. The caller decides.
    """

    READ = auto()
    ACT = auto()
    MOVE = auto()
    REMOVE = auto()
    CREATE = auto()
    AUTHORIZE = auto()
    REPORT = auto()


class Scope(Enum):
    """The hosts to ask: all, the one that last had the VM, or the named one and its rivals."""

    ALL = auto()
    LAST_SEEN_FIRST = auto()
    RIVALS = auto()


class Refused(Enum):
    """When a command is refused: always, unless the VM runs on the host that has it, or never."""

    ALWAYS = auto()
    UNLESS_RUNNING = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    What one purpose demands.

    scope
        The hosts to ask. ``LAST_SEEN_FIRST`` asks all if that host does not report that it runs the
        VM. ``RIVALS`` are the hosts on which the VM was last seen; without rivals no host is asked.
    other_host
        When another host that has the VM, too, is an error. For a VM that must not exist yet, any
        host that has it is another.
    out_of_reach
        When a host that may have the VM and cannot be asked is an error.
    must_exist
        Whether it is an error that no host has the VM. Otherwise it is one that a host has it.
    counts_order
        Whether a host that only the order of an interrupted command names may have the VM.
    counts_move
        Whether the other host of a recorded move may have the VM beside the one that has it.
    override
        The option by which an operator says that hosts out of reach do not have the VM.
    """

    scope: Scope = Scope.ALL
    other_host: Refused = Refused.ALWAYS
    out_of_reach: Refused = Refused.ALWAYS
    must_exist: bool = False
    counts_order: bool = False
    counts_move: bool = False
    override: str | None = None


RULES: Mapping[Purpose, Rule] = {
    Purpose.READ: Rule(
        scope=Scope.LAST_SEEN_FIRST, out_of_reach=Refused.UNLESS_RUNNING, must_exist=True
    ),
    Purpose.ACT: Rule(out_of_reach=Refused.UNLESS_RUNNING, must_exist=True),
    Purpose.MOVE: Rule(
        scope=Scope.RIVALS,
        other_host=Refused.UNLESS_RUNNING,
        out_of_reach=Refused.UNLESS_RUNNING,
        must_exist=True,
    ),
    Purpose.REMOVE: Rule(must_exist=True),
    Purpose.CREATE: Rule(counts_order=True, counts_move=True, override="force"),
    Purpose.AUTHORIZE: Rule(scope=Scope.RIVALS, override="replace"),
    Purpose.REPORT: Rule(
        other_host=Refused.NEVER,
        out_of_reach=Refused.NEVER,
        counts_order=True,
        counts_move=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """
    All that is known of where a VM is.

    name
        The VM's name.
    presence_by_host
        What each host that answers reports of the VM.
    suspects
        ``{host: reason}`` of the hosts on which the VM was last seen, and that cannot be asked now.
    ordered
        ``{host: reason}`` of further such hosts, which only an order of this master names.
    unasked
        ``{host: reason}`` of all asked hosts without a usable answer.
    move_hosts
        Source and target of a recorded move of the VM that is not over.
    host
        The host that a purpose means; empty if it means none.
    """

    name: str
    presence_by_host: Mapping[str, VmPresence]
    suspects: Mapping[str, str] = field(default_factory=dict)
    ordered: Mapping[str, str] = field(default_factory=dict)
    unasked: Mapping[str, str] = field(default_factory=dict)
    move_hosts: Collection[str | None] = ()
    host: str = ""

    @property
    def hosts(self) -> list[str]:
        """The hosts that report that they have the VM."""
        return presence.find_hosts(self.presence_by_host)

    @property
    def traces(self) -> list[str]:
        """The hosts that report that they have a part of the VM."""
        return sorted(
            host for host, vm_presence in self.presence_by_host.items() if vm_presence.is_trace
        )

    @property
    def may_have(self) -> dict[str, str]:
        """``{host: reason}`` of all hosts that may have the VM and cannot be asked."""
        return {**self.ordered, **self.suspects}

    def runs_on(self, host: str) -> bool:
        """Return whether a host that answers has the VM whole, and not shut off."""
        vm_presence = self.presence_by_host[host]
        return vm_presence.is_complete and vm_presence.state in RUNNING_STATES

    def is_no_stale_copy(self, host: str) -> bool:
        """Return whether a named host has nothing of the VM, or runs it."""
        vm_presence = self.presence_by_host.get(host, VmPresence())
        return bool(host) and (not vm_presence.is_trace or self.runs_on(host))

    def out_of_reach(self, rule: Rule) -> dict[str, str]:
        """
        Return ``{host: reason}`` of the hosts out of reach that count by a rule.

        If one host of a recorded move has the VM whole, the other does not count: the record of the
        host that answers says whether the VM may be used there.
        """
        hosts = self.may_have if rule.counts_order else dict(self.suspects)
        is_at_end = any(
            self.presence_by_host[host].is_complete
            for host in self.presence_by_host.keys() & set(self.move_hosts)
        )
        if is_at_end and not rule.counts_move:
            return {host: hosts[host] for host in hosts if host not in self.move_hosts}
        return hosts


def decide(vm: Whereabouts, purpose: Purpose, host: str = "", outcome_text: str = "") -> str:
    """
    Return the host that a purpose means; empty for CREATE and REPORT.

    host
        The host that the caller names, for MOVE and AUTHORIZE.
    outcome_text
        What became of an interrupted command for that VM, for the message that a VM exists.

    Raises NameTaken if another host has the VM, or may have it, and NoSuchVm if no host that
    answers has it, both as :data:`RULES` says.
    """
    rule = RULES[purpose]
    if rule.other_host is Refused.NEVER:
        return host
    if rule.must_exist:
        return _choose_host(vm, rule, host)
    _refuse_existing(vm, host, outcome_text)
    out_of_reach = vm.out_of_reach(rule)
    if out_of_reach:
        raise NameTaken(
            f"VM {vm.name!r} may be on {with_reasons(out_of_reach)}; try again when "
            f"{' and '.join(out_of_reach)} can be asked, or, if you know that the VM is not there "
            f"any more, give {rule.override}=True"
        )
    return host


def _choose_host(vm: Whereabouts, rule: Rule, named_host: str) -> str:
    """Return the only host that can have a VM; if no host has it, the host of an incomplete one."""
    if rule.other_host is Refused.UNLESS_RUNNING and vm.is_no_stale_copy(named_host):
        return named_host
    hosts = vm.hosts
    if len(hosts) > 1:
        raise NameTaken(presence.several_message(vm.name, hosts))
    possible_hosts = hosts or vm.traces
    if not possible_hosts:
        raise _no_such_vm(vm, vm.out_of_reach(rule))
    host, out_of_reach = possible_hosts[0], vm.out_of_reach(rule)
    is_doubtful = rule.out_of_reach is Refused.ALWAYS or not vm.runs_on(host)
    if out_of_reach and is_doubtful:
        raise NameTaken(_doubt_message(vm, host, out_of_reach))
    return named_host or host


def _refuse_existing(vm: Whereabouts, host: str, outcome_text: str) -> None:
    """Raise NameTaken if a host has the VM; with a named host, if another one has it."""
    other_hosts = [other_host for other_host in vm.hosts if other_host != host]
    if host:
        if other_hosts:
            raise NameTaken(f"VM {vm.name!r} is on {' and '.join(other_hosts)}, and not on {host}")
        return
    if len(other_hosts) > 1:
        raise NameTaken(presence.several_message(vm.name, other_hosts))
    for other_host, vm_presence in sorted(vm.presence_by_host.items()):
        if vm_presence.is_complete:
            raise NameTaken(
                f"VM {vm.name!r} is on {other_host} already ({vm_presence.state}); choose another "
                f"name, or remove it first: salt-run virt.purge {vm.name}"
                f"{outcome_text and f' ({outcome_text})'}"
            )
        if vm_presence.building:
            raise NameTaken(presence.coming_message(vm.name, other_host))
        if vm_presence.unreadable:
            raise NameTaken(
                f"what {other_host} has of VM {vm.name!r} is not known: {vm_presence.unreadable}"
            )


def _doubt_message(vm: Whereabouts, host: str, out_of_reach: Mapping[str, str]) -> str:
    """Return the message for a VM that one host has, and that a host out of reach may have, too."""
    moved_to = vm.presence_by_host[host].moved_to
    if moved_to is not None:
        begin = (
            f"VM {vm.name!r} has moved to {moved_to}, and {host} only kept its definition; "
            f"{with_reasons(out_of_reach)} may have the VM"
        )
    else:
        part_text = "has a VM of that name" if host in vm.hosts else "has a part of such a VM"
        begin = (
            f"VM {vm.name!r} was last seen on {with_reasons(out_of_reach)}, and {host} "
            f"{part_text}, too"
        )
    return (
        f"{begin}; nothing is done until {' and '.join(out_of_reach)} can be asked; "
        f"{_if_lost(out_of_reach)}; if it is {host} that has the VM, call the function there: "
        f"salt {shlex.quote(host)} virt.…"
    )


def _no_such_vm(vm: Whereabouts, out_of_reach: Mapping[str, str]) -> NoSuchVm:
    """Return the error for a VM that no host that answers has."""
    where = f"on any of {terminal.count_text(len(vm.presence_by_host), 'hypervisor')}"
    unasked_hosts = sorted({*vm.unasked, *out_of_reach})
    if not unasked_hosts:
        return NoSuchVm(vm.name, where)
    # The message ends with the reasons of hosts that may have the VM.
    unresponsive = (
        host + ("" if host in out_of_reach else f" ({reason})")
        for host, reason in sorted(vm.unasked.items())
    )
    asides = [f"not asked: {', '.join(unresponsive)}"] if vm.unasked else []
    tail = ""
    if out_of_reach:
        asides.append(f"it was last seen on {', '.join(sorted(out_of_reach))}")
        tail = (
            f"; {with_reasons(out_of_reach)}: try again when that can be asked; "
            f"{_if_lost(out_of_reach)}"
        )
    verb = "answers" if len(vm.presence_by_host) == 1 else "answer"
    return NoSuchVm(vm.name, f"{where} that {verb} ({'; '.join(asides)}){tail}", unasked_hosts)


def _if_lost(hosts: Iterable[str]) -> str:
    return " and ".join(
        f"if {host} never comes back: salt-run virt.host_lost {shlex.quote(host)}" for host in hosts
    )


def with_reasons(out_of_reach: Mapping[str, str]) -> str:
    """Return hosts that cannot be asked, each with its reason."""
    return " and ".join(f"{host} ({reason})" for host, reason in out_of_reach.items())
