"""Fill a host again with the VMs that evacuations moved away from it."""

import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from saltvirt import compat, terminal
from saltvirt.errors import VirtError
from saltvirt.fleet import finding, hints, inventory, keys, notes, proofs, several
from saltvirt.fleet import moves as settling
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.evacuate import NotAllMoved, set_maintenance
from saltvirt.fleet.hosts import act

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """
    What a host notes and what has become of it.

    trails
        The notes of all hosts that are followed.
    uuids
        Those of the VMs of which the host has proved its note.
    """

    trails: notes.Notes = field(default_factory=dict)
    uuids: notes.Uuids = field(default_factory=dict)
    away: notes.Away = field(default_factory=notes.Away)


def dry_run(cloud: Cloud, host: str) -> dict[str, Any]:
    """Return what :func:`restore` would do; nothing is changed."""
    inventory.one(cloud, host)
    away = _looked(cloud, host).away
    refused = finding.doubtful(cloud, away.back)
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
    per_host: int = several.PER_HOST,
) -> dict[str, Any]:
    """
    Let a host take VMs again, and bring back those that are where evacuations have put them.

    Those that somebody has moved by hand since are left there, and named once, as are those that
    were removed. One that did not come is brought by the next call. One of which the host cannot
    prove that it was evacuated stays where it is.

    max_parallel, per_host
        How many move at a time in all, and from one of the other hosts.
    """
    pace = several.Pace(max_parallel=max_parallel, per_host=per_host, free=(host,))
    set_maintenance(cloud, host, "off")
    settling.settle_left(cloud, host)
    looked = _looked(cloud, host)
    away = looked.away
    if away.over:
        notes.note(cloud, host, dict.fromkeys(away.over, ()), {})

    def after(name: str, source: str, _to: str) -> str | None:
        changes = notes.followed(looked.trails, name, source, host)
        # Its own last: until then it is known that the VM was to come here.
        order = sorted(changes, key=lambda one: one == host)
        failed = notes.tell(cloud, {one: {name: changes[one]} for one in order}, looked.uuids)
        why = "; ".join(failed.values())
        return f"it is home, but not all have noted that: {why}" if why else None

    moves = {name: (at, host) for name, at in away.back.items()}
    done = several.move(cloud, moves, pace=pace, is_fixed=True, after=after)
    if done.gone:
        notes.tell(cloud, {host: dict.fromkeys(done.gone, ())}, {})
    _renew(cloud, host, {*away.over, *done.moved, *done.gone})
    out = {
        "host": host,
        "moved": done.moved,
        "failed": {**away.unsure, **done.failed},
        "gone": [*away.gone, *done.gone],
        "elsewhere": away.elsewhere,
        "warnings": done.warnings,
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
        notes.renew(cloud, host, over)
    except (VirtError, OSError) as error:
        # What came home is home; the next evacuation or restore of this host does it.
        log.warning("the notes of %s are not proved anew: %s", host, error)


def _looked(cloud: Cloud, host: str) -> _Looked:
    own = notes.listed(host, act(cloud, host, "virt.evacuated"))
    if not own:
        return _Looked()
    every = inventory.every(cloud)
    owned, where = terminal.counted(len(own), "VM"), terminal.counted(len(every), "hypervisor")
    cloud.progress("Searching", detail=f"{owned} on {where}")
    asked = notes.heard(cloud, every)
    proved = proofs.proved(cloud.opts, {**asked.answers, host: own})
    uuids = {name: one.uuid for name, one in proved[host].items()}
    trails = notes.of_vms(proved, uuids)
    said = {**trails, host: {name: one.hosts for name, one in own.items()}}
    found = inventory.survey(cloud, every, "virt.host_info")
    # What a host's libvirt has not loaded is there, too, though it is not among its VMs.
    there = {
        one: {*info.vms, *(info.unreadable.keys() - set(info.unfinished))}
        for one, info in found.answers.items()
    }
    unasked = _unasked(cloud, own, every)
    away = notes.away(said, host, there, {*asked.reasons(), *found.reasons(), *unasked})
    at = {one for name, one in away.back.items() if name in uuids}
    now = inventory.survey(cloud, at, "virt.migration_info") if at else inventory.Survey(answers={})
    vms = {one: {n: vm.uuid for n, vm in has.items()} for one, has in now.answers.items()}
    away = notes.same(away, host, uuids, vms, now.reasons())
    return _Looked(trails=trails, uuids=uuids, away=away)


def _unasked(cloud: Cloud, names: Iterable[str], every: Iterable[str]) -> set[str]:
    """Return the minions that had one of these VMs, and are no hypervisors at this moment."""
    known, store, wanted = hints.every(cloud.opts), compat.KeyStore(cloud.opts), {*names}
    others = known.keys() - {*every}
    return {
        host
        for host in others
        if not wanted.isdisjoint(known[host]) and keys.accepted_in(store, host)
    }
