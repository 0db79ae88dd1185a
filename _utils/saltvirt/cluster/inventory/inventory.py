"""List the hypervisors, survey them, and find the host of a VM."""

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt.cluster import candidates, membership, minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen, presence, surveys, whereabouts
from saltvirt.cluster.inventory.surveys import SILENT
from saltvirt.cluster.inventory.surveys import Survey as Survey
from saltvirt.cluster.inventory.surveys import beside as beside
from saltvirt.cluster.inventory.surveys import read as read
from saltvirt.cluster.inventory.whereabouts import Whereabouts
from saltvirt.cluster.rpc import matching, minions, unresponsive
from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument
from saltvirt.core.errors import NoSuchVm as NoSuchVm
from saltvirt.core.salt import compat

# Limit of duplicates to check: more VMs do not move at once, and a host could invent thousands.
_MAX_DUPLICATES = 20


def hosts(
    cloud: Cloud,
    where: str | None = None,
    host: str | None = None,
) -> list[str]:
    """
    Return the ids of the hypervisors.

    where
        A compound target that narrows the list.
    host
        The only hypervisor to return.
    """
    return narrow(cloud, all_hosts(cloud), where, host)


def require_host(cloud: Cloud, host: str | None) -> str:
    """Return the id that a call must name; raise BadArgument if it is no hypervisor."""
    return hosts(cloud, host=arguments.text("host", host))[0]


def all_hosts(cloud: Cloud) -> list[str]:
    """Return the ids of all hypervisors of this master; raise MasterError if it has none."""
    host_ids = allowed_hosts(cloud)
    if not host_ids:
        raise candidates.no_hypervisors_error(cloud.opts, cloud.members)
    members = cloud.members
    guests = membership.find_last_seen_guests(cloud.opts, members, host_ids)
    if guests:
        # The guests were there when last seen; this survey raises if they are there now.
        survey(
            cloud,
            {host for guest_hosts in guests.values() for host in guest_hosts},
            "virt.vm_state",
        )
        membership.refuse_guests(
            members, membership.find_last_seen_guests(cloud.opts, members, host_ids)
        )
    return host_ids


def allowed_hosts(cloud: Cloud) -> list[str]:
    """Return the ids of the accepted minions that are hypervisors; may be empty."""
    members = cloud.members
    return [minion for minion in cloud.minions() if members.has(minion)]


def narrow(
    cloud: Cloud, host_ids: list[str], where: str | None = None, host: str | None = None
) -> list[str]:
    """Return the hypervisors that a call means; see :func:`hosts`."""
    if host is not None and arguments.text("host", host) not in host_ids:
        hosts_text = terminal.join_some(host_ids)
        raise BadArgument(
            "host",
            f"{host!r} is not a hypervisor here; there are: {hosts_text}; if it is to be one, run: "
            f"salt-run virt.allow {shlex.quote(host)}",
        )
    if host is not None:
        return [host]
    if where is None:
        return host_ids
    matches = matching.match_hosts(cloud.opts, host_ids, where, "where")
    narrowed = [hypervisor for hypervisor in host_ids if hypervisor in matches]
    if not narrowed:
        names_text = terminal.join_some(host_ids)
        raise BadArgument("where", f"{where!r} matches none of the hypervisors {names_text}")
    return narrowed


def survey(
    cloud: Cloud,
    targets: Iterable[str],
    fun: str,
    arg: Sequence[Any] = (),
    kwarg: dict[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
    concerned_hosts: Collection[str] | None = None,
) -> Survey:
    """
    Ask all targets one question, refresh the hints, and return the :class:`Survey`.

    Raises MasterError if a VM on one of them would pass for a hypervisor.

    timeout_s
        How long a command that changes something waits for a host that has not been unresponsive
        to it before. Defaults to ``virt:timeout_s``.
    concerned_hosts
        The hosts to wait that long for in any command; other hosts get a brief wait. Defaults to
        none in a command that only reads, and to all in others.
    """
    target_ids = set(targets)
    wait = unresponsive.choose_wait(
        target_ids, cloud.silence, concerned_hosts, is_reading=cloud.is_reading
    )
    replies = minions.ask(cloud, target_ids, fun, arg, kwarg, timeout_s=timeout_s, wait=wait)
    result = surveys.from_replies(fun, replies)
    _report_unresponsive(cloud, target_ids, result.unreachable)
    reported_names = extract_names(fun, arg, result.answers)
    if reported_names is not None:
        refresh_hints(cloud, reported_names)
    return result


def _report_unresponsive(
    cloud: Cloud, asked_hosts: Collection[str], unresponsive_hosts: Collection[str]
) -> None:
    """Record the hosts that did not answer; show each in progress once."""
    members = cloud.members
    unresponsive_hosts = list(filter(members.has, unresponsive_hosts))
    silent_since = unresponsive.record_silence(
        cloud.opts, asked_hosts, unresponsive_hosts, members.has
    )
    if cloud.silence.take_in(asked_hosts, unresponsive_hosts):
        cloud.progress(
            "Asked",
            detail=unresponsive.silence_line(
                len(asked_hosts), unresponsive_hosts, silent_since, time.time()
            ),
        )


def refresh_hints(cloud: Cloud, report: lastseen.ReportedNames) -> None:
    """Refresh the hints with a survey's names; refuse VMs that would pass for hypervisors."""
    lastseen.refresh(cloud.opts, report)
    if report.whole:
        members = cloud.members
        membership.refuse_guests(members, membership.find_guests(members, report.whole))


def extract_names(
    fun: str, arg: Sequence[Any], answers: dict[str, Any]
) -> lastseen.ReportedNames | None:
    """Return the names in the answers to a question; None if it is not about names."""
    if fun == "virt.host_info":
        return lastseen.ReportedNames(whole={host: info.vms for host, info in answers.items()})
    if fun == "virt.full_info":
        return lastseen.ReportedNames(whole={host: info.vm_info for host, info in answers.items()})
    if fun == "virt.vms":
        return lastseen.ReportedNames(whole={host: info.names for host, info in answers.items()})
    if fun == "virt.vm_state":
        return lastseen.ReportedNames(whole=answers)
    if fun == "virt.presence":
        return lastseen.ReportedNames(name=arg[0], one=presence.from_presence(answers))
    return None


def find_suspects(
    cloud: Cloud,
    result: Survey,
    name: str,
    sightings_by_host: Mapping[str, presence.VmPresence],
    noted_hosts: Iterable[str] = (),
) -> dict[str, str]:
    """
    Return ``{host: reason}`` of the hosts that may have a VM and cannot be asked.

    result
        The :class:`Survey` of all hypervisors.
    sightings_by_host
        Its answers about the VM. If a host only kept the definition, the VM is on another host:
        any unresponsive host may have it, unless a host that answers does.
    noted_hosts
        Hosts that may have the VM beside those where it was last seen.

    Drops the hints of minions that this master does not know any more.
    """
    unresponsive_hosts, store = result.reasons(), compat.KeyStore(cloud.opts)
    has_left = any(sighting.moved_to for sighting in sightings_by_host.values())
    if has_left and not any(sighting.is_its_own for sighting in sightings_by_host.values()):
        noted_hosts = {
            *noted_hosts,
            *unresponsive_hosts,
            *(sighting.moved_to for sighting in sightings_by_host.values() if sighting.moved_to),
        }

    def is_known(host: str) -> bool:
        # A reinstalled master may have accepted a host's key without allowing the host yet.
        return (
            host in result.answers
            or host in unresponsive_hosts
            or minionkeys.read_accepted_from(store, host) is not None
        )

    lastseen.drop_unknown_hosts(cloud.opts, is_known)
    unknown_reason = "this master does not know it as a hypervisor any more"
    suspects = sorted(
        {*lastseen.find_hosts(cloud.opts, name), *filter(is_known, noted_hosts)} - {*result.answers}
    )
    return {host: unresponsive_hosts.get(host, unknown_reason) for host in suspects}


def overview(
    cloud: Cloud,
    fun: str,
    host: str | None = None,
    *,
    targets: Iterable[str] | None = None,
    kwarg: dict[str, Any] | None = None,
    on_reply: Callable[[minions.Reply], None] | None = None,
) -> Survey:
    """
    Return the :class:`Survey` of a question about all VMs, with duplicates.

    The survey has the last-seen VMs of hosts that gave no answer, too.

    targets
        The hosts to ask. Defaults to all hypervisors, or to ``host`` alone.
    on_reply
        Called with each reply as it comes, readable or not.
    """
    asked_hosts = hosts(cloud, host=host) if targets is None else targets
    asking_cloud = cloud if on_reply is None else replace(cloud, heard=on_reply)
    result = survey(asking_cloud, asked_hosts, fun, kwarg=kwarg)
    reported_names = extract_names(fun, (), result.answers)
    names_by_host = reported_names.whole if reported_names else {}
    hints_by_host = lastseen.read_all(cloud.opts)
    last_seen = {
        host: hints_by_host[host] for host in sorted(result.reasons()) if host in hints_by_host
    }
    return replace(result, duplicates=_find_duplicates(cloud, names_by_host), last_seen=last_seen)


def list_stranger_vms(cloud: Cloud) -> dict[str, list[str]]:
    """Return ``{host: names}`` last seen on accepted minions that are no hypervisors any more."""
    store, members = compat.KeyStore(cloud.opts), cloud.members
    return {
        host: names
        for host, names in lastseen.read_all(cloud.opts).items()
        if not members.has(host) and minionkeys.read_accepted_from(store, host) is not None
    }


def _find_duplicates(
    cloud: Cloud, names_by_host: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Return ``{name: hosts}`` of the VMs that several hosts have, without moving VMs."""
    hosts_by_name: dict[str, list[str]] = {}
    for host, names in sorted(names_by_host.items()):
        for name in names:
            hosts_by_name.setdefault(name, []).append(host)
    out = {name: vm_hosts for name, vm_hosts in sorted(hosts_by_name.items()) if len(vm_hosts) > 1}
    for name in [*out][:_MAX_DUPLICATES]:
        # Only virt.presence tells whether the VM is on its way to a host.
        result = survey(cloud, out[name], "virt.presence", [name])
        hosts_with_vm = presence.find_hosts(presence.from_presence(result.answers))
        if len(hosts_with_vm) > 1:
            out[name] = hosts_with_vm
        else:
            del out[name]
    return out


def locate(cloud: Cloud, name: str) -> str:
    """
    Return the host that has a VM, for a command that acts on a VM by its name.

    Raises NameTaken if several hosts have the VM, or if it does not run and a host that cannot be
    asked may have it, and NoSuchVm if no host that answers has it; see
    :func:`saltvirt.cluster.inventory.whereabouts.host_of`.
    """
    return host_from_survey(cloud, survey_for_vm(cloud, name), name)


def survey_for_vm(cloud: Cloud, name: str) -> Survey:
    """
    Return the :class:`Survey` of where a VM is.

    The survey waits long for an unresponsive host only if the command changes something, and if
    that host last had the VM or no other host has it.
    """
    arguments.text("name", name)
    asked_hosts, concerned_hosts = all_hosts(cloud), _find_concerned_hosts(cloud, name)
    result = survey(cloud, asked_hosts, "virt.presence", [name], concerned_hosts=concerned_hosts)
    late_hosts = set(result.unreachable).difference(concerned_hosts)
    if (
        cloud.is_reading
        or not late_hosts
        or presence.find_hosts(presence.from_presence(result.answers))
    ):
        return result
    return join_surveys(
        result, survey(cloud, late_hosts, "virt.presence", [name], concerned_hosts=late_hosts)
    )


def _find_concerned_hosts(cloud: Cloud, name: str) -> list[str]:
    return [] if cloud.is_reading else lastseen.find_hosts(cloud.opts, name)


def join_surveys(first_survey: Survey, second_survey: Survey) -> Survey:
    """Return the first survey, updated with the second one's hosts."""
    second_hosts = {*second_survey.answers, *second_survey.failed, *second_survey.unreachable}
    return Survey(
        answers={**first_survey.answers, **second_survey.answers},
        said={**first_survey.said, **second_survey.said},
        unreachable=sorted(
            {*first_survey.unreachable} - second_hosts | {*second_survey.unreachable}
        ),
        failed={**first_survey.failed, **second_survey.failed},
        duplicates=first_survey.duplicates,
        doubts={**first_survey.doubts, **second_survey.doubts},
    )


def host_from_survey(cloud: Cloud, result: Survey, name: str) -> str:
    """Return the host that has a VM, by :func:`survey_for_vm`; see :func:`locate`."""
    return whereabouts.host_of(whereabouts_from_survey(cloud, result, name))


def whereabouts_from_survey(cloud: Cloud, result: Survey, name: str) -> Whereabouts:
    """Return where a VM is, by :func:`survey_for_vm` and by the hints."""
    sightings_by_host, reasons_by_host = presence.from_presence(result.answers), result.reasons()
    suspects = find_suspects(cloud, result, name, sightings_by_host)
    if suspects:
        end_hosts = orders.ends_of_move(cloud.opts, name)
        suspects = whereabouts.outside_move(suspects, sightings_by_host, end_hosts)
    return Whereabouts(
        name=name,
        seen=sightings_by_host,
        out_of_reach=unresponsive.add_durations(cloud.opts, suspects),
        unasked={
            host: "" if reason == SILENT else reason for host, reason in reasons_by_host.items()
        },
    )
