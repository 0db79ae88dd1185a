"""
Where evacuations have put VMs: what every emptied host keeps of its own, put together here.

A note names the hosts one after the other. Of a VM that was evacuated from h1 to h2, and when h2
was emptied too to h3, h1 notes [h2, h3] and h2 notes [h3]: it comes home to either, and what h2
noted is over when it is home on h1. A host that was off meanwhile still notes [h2]; what h2 notes
goes on from there. All but the functions that take the cloud are decisions over plain data,
``{host: {name: [hosts]}}``. A host could note what it likes: only what this master has proved
(:mod:`saltvirt.fleet.proofs`) is followed, and only of the VM that has the same UUID.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import wire
from saltvirt.errors import VirtError
from saltvirt.fleet import inventory, proofs
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act
from saltvirt.movefacts import EvacuatedFacts

Notes = Mapping[str, Mapping[str, Sequence[str]]]
Uuids = Mapping[str, str | None]


def select_by_uuid(noted: proofs.Notes, uuids: Uuids) -> dict[str, dict[str, list[str]]]:
    """Return the notes of the VMs of these UUIDs, as decisions are made over them."""
    return {
        host: {
            name: facts.hosts for name, facts in host_notes.items() if facts.uuid == uuids.get(name)
        }
        for host, host_notes in noted.items()
    }


def trail(notes: Notes, host: str, name: str) -> list[str]:
    """Return the hosts on which evacuations have put a VM of a host, one after the other."""
    out = list(notes.get(host, {}).get(name, ()))
    while out:
        further = notes.get(out[-1], {}).get(name, ())
        onward = [
            further_host
            for further_host in further
            if further_host not in out and further_host != host
        ]
        if not onward:
            break
        out += onward
    return out


def plan_changes(notes: Notes, name: str, source: str, to: str) -> dict[str, list[str]]:
    """
    Return what hosts must note of a VM that a command of ours moves: ``{host: hosts}``, () for no
    note; only of those whose note changes.

    A host from which an evacuation took a VM that is now put back there forgets its note of it, as
    do those on which it was only a guest since.
    """
    # A VM that is on a host is not away from it, whatever that still notes.
    valid = {**notes, source: {n: hosts for n, hosts in notes.get(source, {}).items() if n != name}}
    trails = {host: trail(valid, host, name) for host, noted in valid.items() if name in noted}
    back = trails.get(to, [])
    guest = {to, *(back[: back.index(source) + 1] if source in back else ())}
    new_notes = {
        host: [] if host in guest else _next_hosts(hosts, source, to)
        for host, hosts in trails.items()
    }
    new_notes[source] = [] if source in guest else [to]
    return {
        host: hosts
        for host, hosts in new_notes.items()
        if hosts is not None and hosts != notes.get(host, {}).get(name, [])
    }


def _next_hosts(hosts: list[str], source: str, to: str) -> list[str] | None:
    """Return what one host notes when a VM goes on; None if that is as it was."""
    if source not in hosts:
        # Somebody had moved it by hand. Where it comes to now is not where that host's put it.
        return [] if to in hosts else None
    if to in hosts:
        return hosts[: hosts.index(to) + 1]
    return [*hosts[: hosts.index(source) + 1], to]


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """What has become of the VMs that a host notes."""

    back: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of those that come home, and where they are."""
    here: list[Any] = field(default_factory=list)
    gone: list[Any] = field(default_factory=list)
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of those that somebody has moved by hand."""
    unsure: dict[str, Any] = field(default_factory=dict)
    """``{name: why}`` of those of which that is not known now; they stay noted."""

    @property
    def over(self) -> list[str]:
        """The names that need not be noted any more."""
        return [*self.here, *self.gone, *self.elsewhere]


def find_away(
    notes: Notes, host: str, names_by_host: Mapping[str, Collection[str]], silent: set[str]
) -> Away:
    """
    Return the :class:`Away` of a host.

    there
        ``{host: names}`` of the VMs that each host has that answers.
    silent
        The hosts that have not answered everything.

    All that the host notes is looked at, proved or not; :func:`same` says who comes back of it.
    """
    out = Away()
    for name in sorted(notes[host]):
        hosts_with_vm = sorted(vm_host for vm_host, names in names_by_host.items() if name in names)
        noted_hosts = trail(notes, host, name)
        if len(hosts_with_vm) > 1:
            out.unsure[name] = (
                f"it is on {' and '.join(hosts_with_vm)} at this moment; run this again"
            )
        elif not hosts_with_vm and silent:
            out.unsure[name] = (
                f"it is on no hypervisor that answers (not asked: {_join_names(silent)})"
            )
        elif not hosts_with_vm:
            out.gone.append(name)
        elif hosts_with_vm == [host]:
            out.here.append(name)
        elif hosts_with_vm[0] in noted_hosts:
            out.back[name] = hosts_with_vm[0]
        elif silent & set(noted_hosts):
            out.unsure[name] = _unheard(name, host, hosts_with_vm[0], silent & set(noted_hosts))
        else:
            out.elsewhere[name] = hosts_with_vm[0]
    return out


_UNPROVED = (
    "{0} says that {1} was evacuated from it, and cannot prove it: move it by hand: "
    "salt-run virt.migrate {3} {2}"
)


def confirm_away(
    away: Away,
    host: str,
    uuids: Uuids,
    uuids_by_host: Mapping[str, Uuids],
    silent: Mapping[str, str],
) -> Away:
    """
    Return an :class:`Away` of a host in which those alone come back that were evacuated from it.

    uuids
        Of those of which the host has proved that.
    found
        ``{host: {name: uuid}}`` of the VMs that the hosts have now.
    silent
        ``{host: why}`` of the hosts that cannot say it.
    """
    out = replace(away, back={}, elsewhere=dict(away.elsewhere), unsure=dict(away.unsure))
    for name, vm_host in away.back.items():
        if name not in uuids:
            out.unsure[name] = _UNPROVED.format(host, name, *map(shlex.quote, (host, name)))
        elif vm_host not in uuids_by_host:
            out.unsure[name] = (
                f"whether it is the VM that was evacuated, {vm_host} {silent.get(vm_host)}"
            )
        elif name not in uuids_by_host[vm_host]:
            out.unsure[name] = f"it is not on {vm_host} any more; run this again"
        elif uuids_by_host[vm_host][name] == uuids[name]:
            out.back[name] = vm_host
        else:
            # The one that was evacuated was removed, and another has been given its name.
            out.elsewhere[name] = vm_host
    return out


def _unheard(name: str, host: str, vm_host: str, silent: Collection[str]) -> str:
    vm, home, nothing = map(shlex.quote, (name, host, f"{{{name}: null}}"))
    return (
        f"it is on {vm_host}; {_join_names(silent)} cannot be asked whether an evacuation put it "
        "there: "
        f"bring it back with salt-run virt.migrate {vm} {home}, "
        f"or forget it with salt {home} virt.evacuated {nothing}"
    )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def survey_notes(cloud: Cloud, hosts: Iterable[str]) -> inventory.Survey:
    """Return the :class:`Survey` of what all hosts note, proved or not: ``{name: note}`` each."""
    survey = inventory.survey(cloud, hosts, "virt.evacuated")
    answers, failed = {}, dict(survey.failed)
    for host, answer in survey.answers.items():
        try:
            answers[host] = parse_notes(host, answer)
        except wire.BadAnswer as error:
            failed[host] = str(error)
    return inventory.Survey(answers=answers, unreachable=survey.unreachable, failed=failed)


def parse_notes(host: str, answer: Any) -> dict[str, EvacuatedFacts]:
    """Return a host's notes; those of older releases have the hosts, or the last one, alone."""
    if isinstance(answer, dict):
        lists = {
            name: [hosts] if isinstance(hosts, str) else hosts for name, hosts in answer.items()
        }
        answer = {
            n: {"hosts": hosts} if isinstance(hosts, list) else hosts for n, hosts in lists.items()
        }
    shape = dict[str, EvacuatedFacts]
    noted: dict[str, EvacuatedFacts] = wire.read(host, "virt.evacuated", shape, answer)
    return noted


def note(cloud: Cloud, host: str, vms: Mapping[str, Sequence[str]], uuids: Uuids) -> None:
    """Have a host note ``{name: hosts}``, with proofs; () forgets a VM."""
    if vms:
        facts = {
            name: wire.plain(proofs.note(cloud.opts, host, name, uuids.get(name), hosts))
            if hosts
            else None
            for name, hosts in vms.items()
        }
        act(cloud, host, "virt.evacuated", facts)


def forget(cloud: Cloud, host: str, names: Iterable[str]) -> None:
    """Have a host forget VMs; if it does not, it cannot prove what it had noted of them."""
    forgotten_names = set(names)
    if forgotten_names:
        note(cloud, host, dict.fromkeys(forgotten_names, ()), {})
        renew(cloud, host, forgotten_names)


def renew(cloud: Cloud, host: str, forgotten_names: Collection[str] = ()) -> None:
    """
    Have a host's notes proved anew: what it was given before this proves nothing any more.

    over
        The VMs that it has nothing to note of.
    """
    if not proofs.has_key(cloud.opts, host):
        return
    with proofs.renewed_key(cloud.opts, host):
        noted = {host: parse_notes(host, act(cloud, host, "virt.evacuated"))}
        proved_notes = proofs.select_proved(cloud.opts, noted)[host]
        kept_notes = {
            name: facts for name, facts in proved_notes.items() if name not in forgotten_names
        }
        uuids = {name: facts.uuid for name, facts in kept_notes.items()}
        note(cloud, host, {name: facts.hosts for name, facts in kept_notes.items()}, uuids)


def note_changes(
    cloud: Cloud, changes: Mapping[str, Mapping[str, Sequence[str]]], uuids: Uuids
) -> dict[str, str]:
    """Have hosts note ``{host: {name: hosts}}``; return why it is not noted, by host."""
    failed = {}
    for host, vms in changes.items():
        try:
            note(cloud, host, vms, uuids)
        except VirtError as error:
            failed[host] = str(error)
    return failed
