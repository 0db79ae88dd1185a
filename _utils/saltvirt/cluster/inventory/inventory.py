"""List the hypervisors, and survey them."""

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt.cluster import candidates, membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen, presence, surveys
from saltvirt.cluster.inventory.surveys import Survey as Survey
from saltvirt.cluster.inventory.surveys import merge_errors as merge_errors
from saltvirt.cluster.inventory.surveys import read as read
from saltvirt.cluster.rpc import minions, publishing, waits
from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt import compat

# Limit of duplicates to check: more VMs do not move at once, and a host could invent thousands.
_MAX_DUPLICATES = 20


def hosts(cloud: Cloud, host: str | None = None) -> list[str]:
    """Return the ids of the hypervisors, or of ``host`` alone."""
    return narrow(cloud, all_hosts(cloud), host=host)


def require_host(cloud: Cloud, host: str | None) -> str:
    """Return the id that a call must name; raise BadArgument if it is no hypervisor."""
    return _require_listed(all_hosts(cloud), host)


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
    """
    Return the hypervisors that a call means; raise BadArgument if there are none.

    where
        A compound target that narrows the list.
    host
        The only hypervisor to return.
    """
    if host is not None:
        return [_require_listed(host_ids, host)]
    if where is None:
        return host_ids
    matches = publishing.match_hosts(cloud.opts, host_ids, where, "where")
    narrowed = [hypervisor for hypervisor in host_ids if hypervisor in matches]
    if not narrowed:
        names_text = terminal.join_some(host_ids)
        raise BadArgument("where", f"{where!r} matches none of the hypervisors {names_text}")
    return narrowed


def _require_listed(host_ids: Collection[str], host: str | None) -> str:
    host_id = arguments.text("host", host)
    if host_id in host_ids:
        return host_id
    raise BadArgument(
        "host",
        f"{host!r} is not a hypervisor here; there are: {terminal.join_some(host_ids)}; if it is "
        f"to be one, run: salt-run virt.allow {shlex.quote(host_id)}",
    )


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
    wait = waits.choose_wait(
        target_ids, cloud.silence, concerned_hosts, is_reading=cloud.is_reading
    )
    replies = minions.ask(cloud, target_ids, fun, arg, kwarg, timeout_s=timeout_s, wait=wait)
    result = surveys.from_replies(fun, replies)
    _report_unresponsive(cloud, target_ids, result.unreachable)
    reported_names = extract_names(fun, arg, result.answers, kwarg)
    if reported_names is not None:
        refresh_hints(cloud, reported_names)
    return result


def _report_unresponsive(
    cloud: Cloud, asked_hosts: Collection[str], unresponsive_hosts: Collection[str]
) -> None:
    """Record the hosts that did not answer; show each in progress once."""
    members = cloud.members
    unresponsive_hosts = list(filter(members.has, unresponsive_hosts))
    silent_since = waits.record_silence(cloud.opts, asked_hosts, unresponsive_hosts, members.has)
    if cloud.silence.record(asked_hosts, unresponsive_hosts):
        cloud.progress(
            "Asked",
            detail=waits.silence_line(
                len(asked_hosts), unresponsive_hosts, silent_since, time.time()
            ),
        )


def refresh_hints(cloud: Cloud, report: lastseen.ReportedNames) -> None:
    """Refresh the hints with a survey's names; refuse VMs that would pass for hypervisors."""
    lastseen.refresh(cloud.opts, report)
    if report.names_by_host:
        members = cloud.members
        membership.refuse_guests(members, membership.find_guests(members, report.names_by_host))


def extract_names(
    fun: str,
    arg: Sequence[Any],
    answers: dict[str, Any],
    kwarg: Mapping[str, Any] | None = None,
) -> lastseen.ReportedNames | None:
    """Return the names in the answers to a question; None if it is not about names."""
    if fun == "virt.host_info":
        return lastseen.ReportedNames(
            names_by_host={host: info.vms for host, info in answers.items()}
        )
    if fun == "virt.full_info":
        return lastseen.ReportedNames(
            names_by_host={host: info.vm_info for host, info in answers.items()}
        )
    if fun == "virt.vms":
        return lastseen.ReportedNames(
            names_by_host={host: info.names for host, info in answers.items()}
        )
    # Of virt.vm_rows with a filter an answer does not have all names of its host.
    if fun == "virt.vm_state" or (fun == "virt.vm_rows" and not kwarg):
        return lastseen.ReportedNames(names_by_host=answers)
    if fun == "virt.presence":
        return lastseen.ReportedNames(
            name=arg[0], presence_by_host=presence.from_answers(answers, arg[0])
        )
    return None


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
    asking_cloud = cloud if on_reply is None else replace(cloud, on_reply=on_reply)
    result = survey(asking_cloud, asked_hosts, fun, kwarg=kwarg)
    reported_names = extract_names(fun, (), result.answers, kwarg)
    names_by_host = reported_names.names_by_host if reported_names else {}
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
        hosts_with_vm = presence.find_hosts(presence.from_answers(result.answers, name))
        if len(hosts_with_vm) > 1:
            out[name] = hosts_with_vm
        else:
            del out[name]
    return out


def join_surveys(first_survey: Survey, second_survey: Survey) -> Survey:
    """Return the first survey, updated with the second one's hosts."""
    second_hosts = {*second_survey.answers, *second_survey.failed, *second_survey.unreachable}
    return Survey(
        answers={**first_survey.answers, **second_survey.answers},
        raw_answers={**first_survey.raw_answers, **second_survey.raw_answers},
        unreachable=sorted(
            {*first_survey.unreachable} - second_hosts | {*second_survey.unreachable}
        ),
        failed={**first_survey.failed, **second_survey.failed},
        duplicates=first_survey.duplicates,
        unsigned_reasons={**first_survey.unsigned_reasons, **second_survey.unsigned_reasons},
    )
