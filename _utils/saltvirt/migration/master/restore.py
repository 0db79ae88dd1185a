"""Move VMs back to the host from which evacuations moved them."""

import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, locate
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import terminal
from saltvirt.core.errors import VirtError
from saltvirt.core.salt import compat
from saltvirt.migration.master import (
    evacuationnotes,
    notesignatures,
    parallelmoves,
    recovery,
    renamedvms,
)
from saltvirt.migration.master.evacuate import NotAllMoved, set_maintenance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostNotes:
    """
    What a host has on record, and what has become of these VMs.

    notes_by_host
        The records of all hosts whose signature was checked.
    uuids
        UUIDs of the VMs in this host's records whose signature was checked.
    new_names
        ``{name on record: present name}`` of the VMs that were renamed since.
    """

    notes_by_host: evacuationnotes.Notes = field(default_factory=dict)
    uuids: evacuationnotes.Uuids = field(default_factory=dict)
    away: evacuationnotes.EvacuatedVms = field(default_factory=evacuationnotes.EvacuatedVms)
    new_names: Mapping[str, str] = field(default_factory=dict)

    def by_present_name(self, vms: Mapping[str, Any]) -> dict[str, Any]:
        """Return a mapping of names on record with the VMs' present names."""
        return {self.new_names.get(name, name): value for name, value in vms.items()}

    def noted_name(self, name: str) -> str:
        """Return the name on record of a VM that is called so now."""
        noted_names = {new_name: noted for noted, new_name in self.new_names.items()}
        return noted_names.get(name, name)

    def describe_renamed(self, names: Iterable[str]) -> dict[str, str]:
        """Return a sentence on each of these VMs that was renamed since."""
        noted_names = {name: self.noted_name(name) for name in names}
        return {
            name: f"it was called {noted_name} when it was evacuated"
            for name, noted_name in noted_names.items()
            if noted_name != name
        }


def dry_run(cloud: Cloud, host: str) -> dict[str, Any]:
    """Return what :func:`restore` would do; change nothing."""
    inventory.require_host(cloud, host)
    host_notes = _read_notes(cloud, host)
    away, to_return = host_notes.away, host_notes.by_present_name(host_notes.away.to_return)
    refused = locate.find_refused_moves(cloud, to_return)
    elsewhere = host_notes.by_present_name(away.elsewhere)
    warnings = host_notes.describe_renamed([*to_return, *elsewhere])
    return {
        "host": host,
        "moves": {name: host for name in to_return if name not in refused},
        "failed": {**away.uncertain, **refused},
        "gone": away.removed,
        "elsewhere": elsewhere,
        **({"warnings": warnings} if warnings else {}),
    }


def restore(
    cloud: Cloud,
    host: str,
    *,
    max_parallel: int,
    per_host: int = parallelmoves.PER_HOST,
) -> dict[str, Any]:
    """
    Let a host take VMs again, and move back the VMs that are where evacuations put them.

    VMs that an operator moved by hand since stay, and are named once, as are removed VMs. The
    next call moves VMs that could not be moved back. VMs without a proof of their evacuation stay.

    max_parallel, per_host
        How many VMs move at a time in all, and from one other host.
    """
    pace = parallelmoves.Pace(max_parallel=max_parallel, per_host=per_host, free=(host,))
    set_maintenance(cloud, host, "off")
    recovery.settle_left(cloud, host)
    host_notes = _read_notes(cloud, host)
    away = host_notes.away
    if away.closed_names:
        evacuationnotes.note(cloud, host, dict.fromkeys(away.closed_names, ()), {})

    def note_return(present_name: str, current_host: str, _to: str) -> str | None:
        name = host_notes.noted_name(present_name)
        changes = evacuationnotes.plan_changes(host_notes.notes_by_host, name, current_host, host)
        # This host's record last: until then it shows that the VM is to come here.
        order = sorted(changes, key=lambda noting_host: noting_host == host)
        changes_by_host = {noting_host: {name: changes[noting_host]} for noting_host in order}
        reason = evacuationnotes.note_changes(cloud, changes_by_host, host_notes.uuids)
        return (
            f"the VM is back, but not all hosts have ended its record: {reason}" if reason else None
        )

    to_return = host_notes.by_present_name(away.to_return)
    moves = {name: (current_host, host) for name, current_host in to_return.items()}
    outcome = parallelmoves.move(cloud, moves, pace=pace, is_fixed=True, after=note_return)
    gone_names = [host_notes.noted_name(name) for name in outcome.gone]
    if gone_names:
        evacuationnotes.note_changes(cloud, {host: dict.fromkeys(gone_names, ())}, {})
    moved_names = map(host_notes.noted_name, outcome.moved)
    _renew(cloud, host, {*away.closed_names, *moved_names, *gone_names})
    elsewhere = host_notes.by_present_name(away.elsewhere)
    renamed = host_notes.describe_renamed([*outcome.moved, *elsewhere])
    out = {
        "host": host,
        "moved": outcome.moved,
        "failed": {**away.uncertain, **outcome.failed},
        "gone": [*away.removed, *outcome.gone],
        "elsewhere": elsewhere,
        "warnings": {
            name: "; ".join(filter(None, (renamed.get(name), outcome.warnings.get(name))))
            for name in {**renamed, **outcome.warnings}
        },
    }
    if out["failed"]:
        error = NotAllMoved(
            f"{', '.join(sorted(out['failed']))} did not come back to {host}; when what keeps them "
            f"there is fixed, run this again: salt-run virt.restore {shlex.quote(host)}"
        )
        error.table = out
        raise error
    return out


def _renew(cloud: Cloud, host: str, closed_names: set[str]) -> None:
    try:
        evacuationnotes.renew(cloud, host, closed_names)
    except (VirtError, OSError) as error:
        # The VMs are back; the next evacuation or restore of this host renews the proofs.
        log.warning("the records of %s are not signed again: %s", host, error)


def _read_notes(cloud: Cloud, host: str) -> _HostNotes:
    host_notes = evacuationnotes.parse_notes(host, act(cloud, host, "virt.evacuated"))
    if not host_notes:
        return _HostNotes()
    all_hosts = inventory.all_hosts(cloud)
    vm_count_text, host_count_text = (
        terminal.count_text(len(host_notes), "VM"),
        terminal.count_text(len(all_hosts), "hypervisor"),
    )
    cloud.progress("Searching", detail=f"{vm_count_text} on {host_count_text}")
    notes_survey = evacuationnotes.survey_notes(cloud, all_hosts)
    proved = notesignatures.select_proved(cloud.opts, {**notes_survey.answers, host: host_notes})
    uuids = {name: facts.uuid for name, facts in proved[host].items()}
    notes_by_host = evacuationnotes.select_by_uuid(proved, uuids)
    all_notes = {**notes_by_host, host: {name: facts.hosts for name, facts in host_notes.items()}}
    survey = inventory.survey(cloud, all_hosts, "virt.host_info")
    # VMs that a host's libvirt has not loaded are there, too, but not in ``vms``.
    names_by_host = {
        vm_host: {*info.vms, *(info.unreadable.keys() - set(info.unfinished))}
        for vm_host, info in survey.answers.items()
    }
    former_hosts = _find_former_hosts(cloud, host_notes, all_hosts)
    away = evacuationnotes.find_away(
        all_notes, host, names_by_host, {*notes_survey.reasons(), *survey.reasons(), *former_hosts}
    )
    vm_hosts = {vm_host for name, vm_host in away.to_return.items() if name in uuids}
    uuids_by_host, reasons = _survey_uuids(cloud, vm_hosts)
    away = evacuationnotes.confirm_away(away, host, uuids, uuids_by_host, reasons)
    lost = renamedvms.list_lost(away, uuids)
    if not lost:
        return _HostNotes(notes_by_host=notes_by_host, uuids=uuids, away=away)
    uuids_by_host, reasons = _survey_uuids(cloud, all_hosts)
    places = renamedvms.find(lost, uuids_by_host)
    away, new_names = renamedvms.follow(away, places, all_notes, host, reasons, uuids)
    return _HostNotes(notes_by_host=notes_by_host, uuids=uuids, away=away, new_names=new_names)


def _survey_uuids(
    cloud: Cloud, hosts: Iterable[str]
) -> tuple[dict[str, evacuationnotes.Uuids], dict[str, str]]:
    """Return ``{host: {VM: UUID}}``, and ``{host: reason}`` of the hosts that cannot be asked."""
    asked_hosts = list(hosts)
    if not asked_hosts:
        return {}, {}
    survey = inventory.survey(cloud, asked_hosts, "virt.migration_info")
    uuids_by_host: dict[str, evacuationnotes.Uuids] = {
        vm_host: {name: vm.uuid for name, vm in vms.items()}
        for vm_host, vms in survey.answers.items()
    }
    return uuids_by_host, survey.reasons()


def _find_former_hosts(cloud: Cloud, names: Iterable[str], hypervisors: Iterable[str]) -> set[str]:
    """Return the minions that had one of these VMs, and are no hypervisors now."""
    names_by_host, store, name_set = (
        lastseen.read_all(cloud.opts),
        compat.KeyStore(cloud.opts),
        {*names},
    )
    strangers = names_by_host.keys() - {*hypervisors}
    return {
        host
        for host in strangers
        if not name_set.isdisjoint(names_by_host[host])
        and minionkeys.read_accepted_from(store, host)
    }
