"""Locate one VM: ask the hosts that its purpose demands, then decide where the VM is."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, presence, whereabouts
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.inventory.surveys import Survey
from saltvirt.cluster.inventory.whereabouts import Purpose, Scope, Whereabouts
from saltvirt.cluster.rpc import minions, waits
from saltvirt.core import wire
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.core.salt import compat
from saltvirt.placement.answers import Presence

_FUN = "virt.presence"
# Seconds for the host that last had the VM; a slower host is asked again with all others.
_LAST_SEEN_S = 1
_UNKNOWN = "this master does not know it as a hypervisor any more"


def locate(
    cloud: Cloud,
    name: str,
    purpose: Purpose,
    *,
    host: str = "",
    survey: Survey | None = None,
    order_hosts: Iterable[str] = (),
) -> Whereabouts:
    """
    Return where a VM is; ``Whereabouts.host`` is the host that the purpose means.

    purpose
        Decides which hosts must answer and what is refused; see
        :data:`saltvirt.cluster.inventory.whereabouts.RULES`.
    host
        The host that the caller names, for MOVE and AUTHORIZE.
    survey
        Answers of ``virt.presence`` or ``virt.host_info`` that the caller has. Hosts that they do
        not cover are asked only if they are rivals. Defaults to none.
    order_hosts
        Hosts that the order of an interrupted command names.

    Raises NameTaken if another host has the VM, or may have it, and NoSuchVm if no host that
    answers has it, both as the purpose demands.
    """
    rule = whereabouts.RULES[purpose]
    if survey is None and rule.scope is Scope.LAST_SEEN_FIRST:
        running = _find_running(cloud, name)
        if running is not None:
            return running
    if rule.scope is not Scope.RIVALS or (survey is not None and not host):
        survey = survey or _survey_all(cloud, name)
    else:
        survey = _survey_rivals(cloud, name, host, survey)
    vm = _combine(cloud, name, survey, order_hosts) if survey else _unasked(name)
    return replace(vm, host=whereabouts.decide(vm, purpose, host))


def find_refused_moves(cloud: Cloud, hosts: Mapping[str, str]) -> dict[str, str]:
    """Return ``{name: reason}`` of the VMs of ``{name: host}`` that may be stale definitions."""
    out = {}
    for name, host in hosts.items():
        try:
            locate(cloud, name, Purpose.MOVE, host=host)
        except NameTaken as error:
            out[name] = str(error)
    return out


def ask_presence(cloud: Cloud, host: str, name: str) -> VmPresence | None:
    """Return what one host reports of a VM; None without a usable answer."""
    survey = inventory.survey(cloud, [host], _FUN, [name])
    return presence.from_answers(survey.answers, name).get(host)


def _unasked(name: str) -> Whereabouts:
    return Whereabouts(name=name, presence_by_host={})


def _find_running(cloud: Cloud, name: str) -> Whereabouts | None:
    """
    Return where a VM is if the only host that last had it answers at once that it runs there.

    This answer holds even if another host has a VM of that name. A VM that does not run may be what
    a move by hand left behind.
    """
    all_hosts = inventory.all_hosts(cloud)
    hosts = [host for host in lastseen.find_hosts(cloud.opts, name) if host in all_hosts]
    if len(hosts) != 1:
        return None
    (host,) = hosts
    try:
        reply = minions.ask(cloud, hosts, _FUN, [name], timeout_s=_LAST_SEEN_S)[host]
        answers = {host: wire.read(host, _FUN, Presence, reply.value)} if reply.ok else {}
    except VirtError:
        # A host that is slow here does not count as unresponsive: it is asked again.
        return None
    presence_by_host = presence.from_answers(answers, name)
    vm_presence = presence_by_host.get(host)
    if vm_presence is None or not vm_presence.is_complete or vm_presence.state != "running":
        return None
    return Whereabouts(name=name, presence_by_host=presence_by_host, host=host)


def _survey_all(cloud: Cloud, name: str) -> Survey:
    """
    Ask all hosts.

    The survey waits long for an unresponsive host only if the command changes something, and if
    that host last had the VM or no other host has it.
    """
    all_hosts = inventory.all_hosts(cloud)
    awaited_hosts = [] if cloud.is_reading else lastseen.find_hosts(cloud.opts, name)
    survey = _ask(cloud, all_hosts, name, awaited_hosts)
    late_hosts = set(survey.unreachable).difference(awaited_hosts)
    if (
        cloud.is_reading
        or not late_hosts
        or presence.find_hosts(presence.from_answers(survey.answers, name))
    ):
        return survey
    return inventory.join_surveys(survey, _ask(cloud, late_hosts, name, late_hosts))


def _survey_rivals(cloud: Cloud, name: str, host: str, survey: Survey | None) -> Survey | None:
    """Ask the other hosts that last had a VM, and the named one; None without others."""
    rivals = {*lastseen.find_hosts(cloud.opts, name)} - {host}
    if not rivals:
        return None
    covered_hosts = {*survey.answers, *survey.reasons()} if survey else set[str]()
    asked_hosts = ({host, *rivals} - covered_hosts).intersection(inventory.all_hosts(cloud))
    if survey and not asked_hosts:
        return survey
    result = _ask(cloud, asked_hosts, name, asked_hosts)
    return inventory.join_surveys(survey, result) if survey else result


def _ask(cloud: Cloud, hosts: Iterable[str], name: str, awaited_hosts: Collection[str]) -> Survey:
    return inventory.survey(cloud, hosts, _FUN, [name], concerned_hosts=awaited_hosts)


def _combine(cloud: Cloud, name: str, survey: Survey, order_hosts: Iterable[str]) -> Whereabouts:
    """Return where a VM is by a survey, by where it was last seen, and by this master's order."""
    presence_by_host = presence.from_answers(survey.answers, name)
    reasons_by_host = survey.reasons()
    suspects, ordered = _find_suspects(
        cloud.opts, name, presence_by_host, reasons_by_host, order_hosts
    )
    return Whereabouts(
        name=name,
        presence_by_host=presence_by_host,
        suspects=suspects,
        ordered=ordered,
        unasked=reasons_by_host,
        move_hosts=orders.ends_of_move(cloud.opts, name) if suspects else (),
    )


def _find_suspects(
    opts: Mapping[str, Any],
    name: str,
    presence_by_host: Mapping[str, VmPresence],
    reasons_by_host: Mapping[str, str],
    order_hosts: Iterable[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return ``{host: reason}`` of hosts that may have a VM and cannot be asked; and ordered ones.

    If a host only kept the definition, the VM is on another host: any unresponsive host may have
    it, unless a host that answers does. Drops the places last seen on minions that this master does
    not know any more.
    """
    store = compat.KeyStore(opts)

    def is_known(host: str) -> bool:
        # A reinstalled master may have accepted a host's key without allowing the host yet.
        return (
            host in presence_by_host
            or host in reasons_by_host
            or minionkeys.read_accepted_from(store, host) is not None
        )

    lastseen.drop_unknown_hosts(opts, is_known)
    moved_to = {
        vm_presence.moved_to for vm_presence in presence_by_host.values() if vm_presence.moved_to
    }
    if moved_to and not any(vm_presence.is_its_own for vm_presence in presence_by_host.values()):
        moved_to |= reasons_by_host.keys()
    else:
        moved_to = set()
    suspect_hosts = {*lastseen.find_hosts(opts, name), *filter(is_known, moved_to)}
    suspect_hosts -= presence_by_host.keys()
    ordered_hosts = {*filter(is_known, order_hosts)} - presence_by_host.keys() - suspect_hosts

    def explain(hosts: Iterable[str]) -> dict[str, str]:
        reasons = {host: reasons_by_host.get(host, _UNKNOWN) for host in sorted(hosts)}
        return waits.add_durations(opts, reasons)

    return explain(suspect_hosts), explain(ordered_hosts)
