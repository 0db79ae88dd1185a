"""Which hypervisors there are, what they have, and which of them has a VM."""

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt import arguments, compat, terminal
from saltvirt.errors import BadArgument
from saltvirt.errors import NoSuchVm as NoSuchVm
from saltvirt.fleet import (
    candidates,
    hints,
    keys,
    matching,
    membership,
    minions,
    orders,
    sightings,
    silence,
    surveys,
    whereabouts,
)
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.surveys import SILENT
from saltvirt.fleet.surveys import Survey as Survey
from saltvirt.fleet.surveys import beside as beside
from saltvirt.fleet.surveys import read as read
from saltvirt.fleet.whereabouts import Whereabouts

# Of so many VMs that are there twice it is asked where they are; more do not move at once, and a
# host could have it asked of thousands.
_MOST_TWICE = 20


def hosts(
    cloud: Cloud,
    where: str | None = None,
    host: str | None = None,
) -> list[str]:
    """
    Return the ids of the hypervisors.

    where
        A compound Salt target that narrows them.
    host
        One of them by name.
    """
    return narrow(cloud, every(cloud), where, host)


def one(cloud: Cloud, host: str | None) -> str:
    """Return the id of the hypervisor that a call must name; raise BadArgument if it is none."""
    return hosts(cloud, host=arguments.text("host", host))[0]


def every(cloud: Cloud) -> list[str]:
    """Return the ids of all hypervisors of this master; raise MasterError if it has none."""
    found = allowed(cloud)
    if not found:
        raise candidates.nobody(cloud.opts, cloud.members)
    members = cloud.members
    guests = membership.guests(cloud.opts, members, found)
    if guests:
        # They were there when their hosts were last asked; this raises if they are there now.
        survey(cloud, {host for there in guests.values() for host in there}, "virt.vm_state")
        membership.refuse_guests(members, membership.guests(cloud.opts, members, found))
    return found


def allowed(cloud: Cloud) -> list[str]:
    """Return the ids of the accepted minions that the master says are hypervisors, maybe none."""
    members = cloud.members
    return [one for one in cloud.minions() if members.has(one)]


def narrow(
    cloud: Cloud, every: list[str], where: str | None = None, host: str | None = None
) -> list[str]:
    """Return those of the hypervisors that a call means; see :func:`hosts`."""
    if host is not None and arguments.text("host", host) not in every:
        known = terminal.some(every)
        raise BadArgument(
            "host",
            f"{host!r} is not a hypervisor here; there are: {known}; if it is to be one, run: "
            f"salt-run virt.allow {shlex.quote(host)}",
        )
    if host is not None:
        return [host]
    if where is None:
        return every
    wanted = matching.among(cloud.opts, every, where, "where")
    narrowed = [one for one in every if one in wanted]
    if not narrowed:
        there = terminal.some(every)
        raise BadArgument("where", f"{where!r} matches none of the hypervisors {there}")
    return narrowed


def survey(
    cloud: Cloud,
    targets: Iterable[str],
    fun: str,
    arg: Sequence[Any] = (),
    kwarg: dict[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
    concerned: Collection[str] | None = None,
) -> Survey:
    """
    Ask all targets one question and return the :class:`Survey`; hints are refreshed by it.

    Raises MasterError if one of them has a VM whose minion would be taken for a hypervisor.

    timeout_s
        How long silent ones are waited for, in a command that changes something: those that this
        command has not found silent before. Defaults to ``virt:timeout_s``.
    concerned
        Those that are waited for so long, whatever the command; the others only briefly. Defaults
        to nobody in a command that only reads, and to all in others.
    """
    wanted = set(targets)
    wait = silence.wait(wanted, cloud.silence, concerned, is_reading=cloud.is_reading)
    replies = minions.ask(cloud, wanted, fun, arg, kwarg, timeout_s=timeout_s, wait=wait)
    found = surveys.of_replies(fun, replies)
    _say_silence(cloud, wanted, found.unreachable)
    said_of = heard_of(fun, arg, found.answers)
    if said_of is not None:
        take_in(cloud, said_of)
    return found


def _say_silence(cloud: Cloud, asked: Collection[str], silent: Collection[str]) -> None:
    """Note who did not answer; say it as progress, once of each."""
    members = cloud.members
    silent = list(filter(members.has, silent))
    since = silence.noted(cloud.opts, asked, silent, members.has)
    if cloud.silence.take_in(asked, silent):
        cloud.progress("Asked", detail=silence.line(len(asked), silent, since, time.time()))


def take_in(cloud: Cloud, said: hints.Heard) -> None:
    """Refresh the hints by what a survey heard; refuse VMs that would pass for hypervisors."""
    hints.refresh(cloud.opts, said)
    if said.whole:
        members = cloud.members
        membership.refuse_guests(members, membership.among(members, said.whole))


def heard_of(fun: str, arg: Sequence[Any], answers: dict[str, Any]) -> hints.Heard | None:
    """Return what the answers to a question say of names, None if it is about none."""
    if fun == "virt.host_info":
        return hints.Heard(whole={host: info.vms for host, info in answers.items()})
    if fun == "virt.full_info":
        return hints.Heard(whole={host: info.vm_info for host, info in answers.items()})
    if fun == "virt.vms":
        return hints.Heard(whole={host: info.names for host, info in answers.items()})
    if fun == "virt.vm_state":
        return hints.Heard(whole=answers)
    if fun == "virt.presence":
        return hints.Heard(name=arg[0], one=sightings.of_presence(answers))
    return None


def unheard(
    cloud: Cloud,
    found: Survey,
    name: str,
    seen: Mapping[str, sightings.Sighting],
    noted: Iterable[str] = (),
) -> dict[str, str]:
    """
    Return ``{host: why}`` of the hosts that may have a VM, and cannot be asked.

    found
        The :class:`Survey` of all hypervisors.
    seen
        What it says of the VM. Where only its definition was kept, it went somewhere else: if no
        host that answers has it, any that is silent may.
    noted
        Hosts that may have it beside those that had it when they were last asked.

    Hints at minions that this master does not know any more are dropped.
    """
    silent, store = found.reasons(), compat.KeyStore(cloud.opts)
    has_left = any(one.moved_to for one in seen.values())
    if has_left and not any(one.is_its_own for one in seen.values()):
        noted = {*noted, *silent, *(one.moved_to for one in seen.values() if one.moved_to)}

    def is_known(host: str) -> bool:
        # A host that is away is not a hypervisor of a reinstalled master yet.
        return host in found.answers or host in silent or keys.accepted_in(store, host) is not None

    hints.kept(cloud.opts, is_known)
    why = "this master does not know it as a hypervisor any more"
    suspects = sorted({*hints.where(cloud.opts, name), *filter(is_known, noted)} - {*found.answers})
    return {host: silent.get(host, why) for host in suspects}


def overview(
    cloud: Cloud,
    fun: str,
    host: str | None = None,
    *,
    targets: Iterable[str] | None = None,
    kwarg: dict[str, Any] | None = None,
    heard: Callable[[minions.Reply], None] | None = None,
) -> Survey:
    """
    Return the :class:`Survey` of a question about all VMs, with those that are there twice.

    It has the VMs of hosts that gave no answer, too, as they were when these were last asked.

    targets
        Who is asked it. Defaults to all hypervisors, or to ``host`` alone.
    heard
        Called with each answer to it as it comes, whether it can be read or not.
    """
    asked = hosts(cloud, host=host) if targets is None else targets
    asking = cloud if heard is None else replace(cloud, heard=heard)
    found = survey(asking, asked, fun, kwarg=kwarg)
    said_of = heard_of(fun, (), found.answers)
    named = said_of.whole if said_of else {}
    known = hints.every(cloud.opts)
    last_seen = {host: known[host] for host in sorted(found.reasons()) if host in known}
    return replace(found, duplicates=_duplicates(cloud, named), last_seen=last_seen)


def of_strangers(cloud: Cloud) -> dict[str, list[str]]:
    """Return ``{host: names}`` of the VMs that minions had which are no hypervisors any more."""
    store, members = compat.KeyStore(cloud.opts), cloud.members
    return {
        host: names
        for host, names in hints.every(cloud.opts).items()
        if not members.has(host) and keys.accepted_in(store, host) is not None
    }


def _duplicates(cloud: Cloud, named: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return ``{name: hosts}`` of the VMs that several hosts have; those that move are left out."""
    by_name: dict[str, list[str]] = {}
    for host, names in sorted(named.items()):
        for name in names:
            by_name.setdefault(name, []).append(host)
    out = {name: there for name, there in sorted(by_name.items()) if len(there) > 1}
    for name in [*out][:_MOST_TWICE]:
        # Which of them is on its way, presence alone can say.
        found = survey(cloud, out[name], "virt.presence", [name])
        having = sightings.having(sightings.of_presence(found.answers))
        if len(having) > 1:
            out[name] = having
        else:
            del out[name]
    return out


def locate(cloud: Cloud, name: str) -> str:
    """
    Return the host that has a VM: for every command that acts on a VM by its name.

    Raises NameTaken if several hosts have the VM, or if a host that cannot be asked had it when it
    was last asked, and NoSuchVm if no host that answers has it; see
    :func:`saltvirt.fleet.whereabouts.host_of`.
    """
    return located(cloud, look_for(cloud, name), name)


def look_for(cloud: Cloud, name: str) -> Survey:
    """
    Return the :class:`Survey` of where a VM is.

    A host that is silent is waited for long only if it may be the one, and something is to be
    changed: it had the VM when it was last asked, or no other has it.
    """
    arguments.text("name", name)
    asked, concerned = every(cloud), _concerned(cloud, name)
    found = survey(cloud, asked, "virt.presence", [name], concerned=concerned)
    late = set(found.unreachable).difference(concerned)
    if cloud.is_reading or not late or sightings.having(sightings.of_presence(found.answers)):
        return found
    return joined(found, survey(cloud, late, "virt.presence", [name], concerned=late))


def _concerned(cloud: Cloud, name: str) -> list[str]:
    return [] if cloud.is_reading else hints.where(cloud.opts, name)


def joined(found: Survey, late: Survey) -> Survey:
    """Return a survey with what those say that were asked again."""
    again = {*late.answers, *late.failed, *late.unreachable}
    return Survey(
        answers={**found.answers, **late.answers},
        said={**found.said, **late.said},
        unreachable=sorted({*found.unreachable} - again | {*late.unreachable}),
        failed={**found.failed, **late.failed},
        duplicates=found.duplicates,
        doubts={**found.doubts, **late.doubts},
    )


def located(cloud: Cloud, found: Survey, name: str) -> str:
    """Return the host that has a VM, by the answers of :func:`look_for`; see :func:`locate`."""
    return whereabouts.host_of(known_of(cloud, found, name))


def known_of(cloud: Cloud, found: Survey, name: str) -> Whereabouts:
    """Return where a VM is, by the answers of :func:`look_for` and by where it was last seen."""
    seen, unasked = sightings.of_presence(found.answers), found.reasons()
    out_of_reach = unheard(cloud, found, name, seen)
    if out_of_reach:
        ends = orders.ends_of_move(cloud.opts, name)
        out_of_reach = whereabouts.beside_move(out_of_reach, seen, ends)
    return Whereabouts(
        name=name,
        seen=seen,
        out_of_reach=silence.aged(cloud.opts, out_of_reach),
        unasked={host: "" if reason == SILENT else reason for host, reason in unasked.items()},
    )
