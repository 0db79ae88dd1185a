"""
Follow where evacuations have put VMs, by the records of all emptied hosts.

A record lists hosts in order. If a VM was evacuated from h1 to h2, and from h2 to h3, then h1
records [h2, h3] and h2 records [h3]. The VM comes home to either; once it is home on h1, h2's
record ends. If h1 was off meanwhile, it still records [h2], and h2's record continues from there.
Functions without ``cloud`` decide over plain data, ``{host: {name: [hosts]}}``. A host could forge
records: only those that this master has proved (:mod:`saltvirt.migration.master.notesignatures`)
are followed, and only for the VM with the same UUID.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.core.journal.movefacts import EvacuatedFacts
from saltvirt.migration.master import notesignatures

Notes = Mapping[str, Mapping[str, Sequence[str]]]
Uuids = Mapping[str, str | None]


def select_by_uuid(noted: notesignatures.Notes, uuids: Uuids) -> dict[str, dict[str, list[str]]]:
    """Return the records of the VMs with these UUIDs, as plain data for decisions."""
    return {
        host: {
            name: facts.hosts for name, facts in host_notes.items() if facts.uuid == uuids.get(name)
        }
        for host, host_notes in noted.items()
    }


def trail(notes: Notes, host: str, name: str) -> list[str]:
    """Return the hosts where evacuations have put a VM of a host, in order."""
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
    Return the records to change when a command moves a VM: ``{host: hosts}``, [] for no record.

    A host drops its record of a VM that comes back to it, as do the hosts where the VM was only a
    guest since.
    """
    # A VM on its source is not away from there, even if the source still records that.
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
    """Return a host's new record when a VM moves on; None if it stays the same."""
    if source not in hosts:
        # The VM was moved by hand before: no evacuation puts it on a recorded host now.
        return [] if to in hosts else None
    if to in hosts:
        return hosts[: hosts.index(to) + 1]
    return [*hosts[: hosts.index(source) + 1], to]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuatedVms:
    """What has become of the VMs that a host has on record."""

    to_return: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of the VMs to move back, and where they are."""
    at_home: list[Any] = field(default_factory=list)
    removed: list[Any] = field(default_factory=list)
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """``{name: host}`` of the VMs that an operator moved by hand."""
    uncertain: dict[str, Any] = field(default_factory=dict)
    """``{name: reason}`` of the VMs whose place is not certain; they stay on record."""

    @property
    def closed_names(self) -> list[str]:
        """The names that can go from the record."""
        return [*self.at_home, *self.removed, *self.elsewhere]


def find_away(
    notes: Notes, host: str, names_by_host: Mapping[str, Collection[str]], unresponsive: set[str]
) -> EvacuatedVms:
    """
    Return the :class:`Away` of a host.

    names_by_host
        ``{host: names}`` of the VMs on each host that answers.
    unresponsive
        The hosts that have not answered every question.

    Records count, proved or not; :func:`confirm_away` decides which VMs come back.
    """
    out = EvacuatedVms()
    for name in sorted(notes[host]):
        hosts_with_vm = sorted(vm_host for vm_host, names in names_by_host.items() if name in names)
        noted_hosts = trail(notes, host, name)
        if len(hosts_with_vm) > 1:
            out.uncertain[name] = (
                f"it is on {' and '.join(hosts_with_vm)} at this moment; run this again"
            )
        elif not hosts_with_vm and unresponsive:
            out.uncertain[name] = (
                f"it is on no hypervisor that answers (not asked: {_join_names(unresponsive)})"
            )
        elif not hosts_with_vm:
            out.removed.append(name)
        elif hosts_with_vm == [host]:
            out.at_home.append(name)
        elif hosts_with_vm[0] in noted_hosts:
            out.to_return[name] = hosts_with_vm[0]
        elif unresponsive & set(noted_hosts):
            out.uncertain[name] = _unasked_reason(
                name, host, hosts_with_vm[0], unresponsive & set(noted_hosts)
            )
        else:
            out.elsewhere[name] = hosts_with_vm[0]
    return out


_UNPROVED = (
    "{0} says that {1} was evacuated from it, and cannot prove it: move it by hand: "
    "salt-run virt.migrate {3} {2}"
)


def confirm_away(
    away: EvacuatedVms,
    host: str,
    uuids: Uuids,
    uuids_by_host: Mapping[str, Uuids],
    unresponsive: Mapping[str, str],
) -> EvacuatedVms:
    """
    Return an :class:`Away` in which only VMs come back that were evacuated from the host.

    uuids
        Those of the VMs with a proved record.
    uuids_by_host
        ``{host: {name: uuid}}`` of the VMs that the hosts have now.
    unresponsive
        ``{host: reason}`` of the hosts that cannot answer.
    """
    out = replace(
        away, to_return={}, elsewhere=dict(away.elsewhere), uncertain=dict(away.uncertain)
    )
    for name, vm_host in away.to_return.items():
        if name not in uuids:
            out.uncertain[name] = _UNPROVED.format(host, name, *map(shlex.quote, (host, name)))
        elif vm_host not in uuids_by_host:
            out.uncertain[name] = (
                f"whether it is the VM that was evacuated, {vm_host} {unresponsive.get(vm_host)}"
            )
        elif name not in uuids_by_host[vm_host]:
            out.uncertain[name] = f"it is not on {vm_host} any more; run this again"
        elif uuids_by_host[vm_host][name] == uuids[name]:
            out.to_return[name] = vm_host
        else:
            # The evacuated VM was removed, and another VM was given its name.
            out.elsewhere[name] = vm_host
    return out


def _unasked_reason(name: str, host: str, vm_host: str, unresponsive: Collection[str]) -> str:
    vm, home, nothing = map(shlex.quote, (name, host, f"{{{name}: null}}"))
    return (
        f"it is on {vm_host}; {_join_names(unresponsive)} cannot be asked whether an evacuation "
        f"put it there: bring it back with salt-run virt.migrate {vm} {home}, or forget it with "
        f"salt {home} virt.evacuated {nothing}"
    )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def survey_notes(cloud: Cloud, hosts: Iterable[str]) -> inventory.Survey:
    """Return the :class:`Survey` of all hosts' records, proved or not: ``{name: record}``."""
    survey = inventory.survey(cloud, hosts, "virt.evacuated")
    answers, failed = {}, dict(survey.failed)
    for host, answer in survey.answers.items():
        try:
            answers[host] = parse_notes(host, answer)
        except wire.BadAnswer as error:
            failed[host] = str(error)
    return inventory.Survey(answers=answers, unreachable=survey.unreachable, failed=failed)


def parse_notes(host: str, answer: Any) -> dict[str, EvacuatedFacts]:
    """Return a host's records ``{name: record}``, proved or not."""
    notes: dict[str, EvacuatedFacts] = wire.read(
        host, "virt.evacuated", dict[str, EvacuatedFacts], answer
    )
    return notes


def note(cloud: Cloud, host: str, vms: Mapping[str, Sequence[str]], uuids: Uuids) -> None:
    """Have a host record ``{name: hosts}``, with proofs; an empty list forgets a VM."""
    if vms:
        facts = {
            name: wire.plain(notesignatures.note(cloud.opts, host, name, uuids.get(name), hosts))
            if hosts
            else None
            for name, hosts in vms.items()
        }
        act(cloud, host, "virt.evacuated", facts)


def forget(cloud: Cloud, host: str, names: Iterable[str]) -> None:
    """Have a host forget VMs; if it does not, its records of them lose their proofs."""
    forgotten_names = set(names)
    if forgotten_names:
        note(cloud, host, dict.fromkeys(forgotten_names, ()), {})
        renew(cloud, host, forgotten_names)


def renew(cloud: Cloud, host: str, forgotten_names: Collection[str] = ()) -> None:
    """
    Renew the proofs of a host's records; all proofs given before are void.

    forgotten_names
        The VMs that get no new proof.
    """
    if not notesignatures.has_key(cloud.opts, host):
        return
    with notesignatures.renewed_key(cloud.opts, host):
        noted = {host: parse_notes(host, act(cloud, host, "virt.evacuated"))}
        proved_notes = notesignatures.select_proved(cloud.opts, noted)[host]
        kept_notes = {
            name: facts for name, facts in proved_notes.items() if name not in forgotten_names
        }
        uuids = {name: facts.uuid for name, facts in kept_notes.items()}
        note(cloud, host, {name: facts.hosts for name, facts in kept_notes.items()}, uuids)


def note_changes(
    cloud: Cloud, changes: Mapping[str, Mapping[str, Sequence[str]]], uuids: Uuids
) -> str:
    """Have hosts record ``{host: {name: hosts}}``; return why some do not, empty for success."""
    reasons = []
    for host, vms in changes.items():
        try:
            note(cloud, host, vms, uuids)
        except VirtError as error:
            reasons.append(str(error))
    return "; ".join(reasons)
