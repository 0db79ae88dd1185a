"""Move VMs back to the host from which evacuations moved them."""

import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, locate
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import terminal
from saltvirt.core.errors import VirtError
from saltvirt.core.salt import compat
from saltvirt.migration.master import evacuationnotes, notesignatures, parallelmoves, recovery
from saltvirt.migration.master.evacuate import NotAllMoved, set_maintenance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostNotes:
    """
    What a host has on record, and what has become of these VMs.

    trails
        The proved records of all hosts.
    uuids
        UUIDs of the VMs with a proved record of this host.
    """

    trails: evacuationnotes.Notes = field(default_factory=dict)
    uuids: evacuationnotes.Uuids = field(default_factory=dict)
    away: evacuationnotes.Away = field(default_factory=evacuationnotes.Away)


def dry_run(cloud: Cloud, host: str) -> dict[str, Any]:
    """Return what :func:`restore` would do; change nothing."""
    inventory.require_host(cloud, host)
    away = _read_notes(cloud, host).away
    refused = locate.find_refused_moves(cloud, away.back)
    return {
        "host": host,
        "moves": {name: host for name in away.back if name not in refused},
        "failed": {**away.unsure, **refused},
        "gone": away.gone,
        "elsewhere": away.elsewhere,
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

    VMs that an operator moved by hand since stay, and are named once, as are removed VMs. VMs that
    failed to come are moved by the next call. VMs without a proof of their evacuation stay.

    max_parallel, per_host
        How many VMs move at a time in all, and from one other host.
    """
    pace = parallelmoves.Pace(max_parallel=max_parallel, per_host=per_host, free=(host,))
    set_maintenance(cloud, host, "off")
    recovery.settle_left(cloud, host)
    host_notes = _read_notes(cloud, host)
    away = host_notes.away
    if away.over:
        evacuationnotes.note(cloud, host, dict.fromkeys(away.over, ()), {})

    def after(name: str, source: str, _to: str) -> str | None:
        changes = evacuationnotes.plan_changes(host_notes.trails, name, source, host)
        # This host's record last: until then it shows that the VM is to come here.
        order = sorted(changes, key=lambda noting_host: noting_host == host)
        changes_by_host = {noting_host: {name: changes[noting_host]} for noting_host in order}
        reason = evacuationnotes.note_changes(cloud, changes_by_host, host_notes.uuids)
        return f"it is home, but not all have noted that: {reason}" if reason else None

    moves = {name: (at, host) for name, at in away.back.items()}
    outcome = parallelmoves.move(cloud, moves, pace=pace, is_fixed=True, after=after)
    if outcome.gone:
        evacuationnotes.note_changes(cloud, {host: dict.fromkeys(outcome.gone, ())}, {})
    _renew(cloud, host, {*away.over, *outcome.moved, *outcome.gone})
    out = {
        "host": host,
        "moved": outcome.moved,
        "failed": {**away.unsure, **outcome.failed},
        "gone": [*away.gone, *outcome.gone],
        "elsewhere": away.elsewhere,
        "warnings": outcome.warnings,
    }
    if out["failed"]:
        error = NotAllMoved(
            f"{', '.join(sorted(out['failed']))} did not come back to {host}; when what keeps them "
            f"there is fixed, run this again: salt-run virt.restore {shlex.quote(host)}"
        )
        error.table = out
        raise error
    return out


def _renew(cloud: Cloud, host: str, over: set[str]) -> None:
    try:
        evacuationnotes.renew(cloud, host, over)
    except (VirtError, OSError) as error:
        # The VMs are home; the next evacuation or restore of this host renews the proofs.
        log.warning("the notes of %s are not proved anew: %s", host, error)


def _read_notes(cloud: Cloud, host: str) -> _HostNotes:
    host_notes = evacuationnotes.parse_notes(host, act(cloud, host, "virt.evacuated"))
    if not host_notes:
        return _HostNotes()
    all_hosts = inventory.all_hosts(cloud)
    owned, where = (
        terminal.count_text(len(host_notes), "VM"),
        terminal.count_text(len(all_hosts), "hypervisor"),
    )
    cloud.progress("Searching", detail=f"{owned} on {where}")
    notes_survey = evacuationnotes.survey_notes(cloud, all_hosts)
    proved = notesignatures.select_proved(cloud.opts, {**notes_survey.answers, host: host_notes})
    uuids = {name: facts.uuid for name, facts in proved[host].items()}
    trails = evacuationnotes.select_by_uuid(proved, uuids)
    notes_by_host = {**trails, host: {name: facts.hosts for name, facts in host_notes.items()}}
    survey = inventory.survey(cloud, all_hosts, "virt.host_info")
    # VMs that a host's libvirt has not loaded are there, too, but not in ``vms``.
    names_by_host = {
        vm_host: {*info.vms, *(info.unreadable.keys() - set(info.unfinished))}
        for vm_host, info in survey.answers.items()
    }
    unasked = _unasked(cloud, host_notes, all_hosts)
    away = evacuationnotes.find_away(
        notes_by_host, host, names_by_host, {*notes_survey.reasons(), *survey.reasons(), *unasked}
    )
    vm_hosts = {vm_host for name, vm_host in away.back.items() if name in uuids}
    migration_survey = (
        inventory.survey(cloud, vm_hosts, "virt.migration_info")
        if vm_hosts
        else inventory.Survey(answers={})
    )
    uuids_by_host = {
        vm_host: {n: vm.uuid for n, vm in vms.items()}
        for vm_host, vms in migration_survey.answers.items()
    }
    away = evacuationnotes.confirm_away(
        away, host, uuids, uuids_by_host, migration_survey.reasons()
    )
    return _HostNotes(trails=trails, uuids=uuids, away=away)


def _unasked(cloud: Cloud, names: Iterable[str], hypervisors: Iterable[str]) -> set[str]:
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
