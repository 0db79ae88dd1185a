"""Empty a host for maintenance."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, locate
from saltvirt.cluster.rpc.hostcommands import act
from saltvirt.core import terminal, wire
from saltvirt.core.errors import VirtError
from saltvirt.core.journal.records import ShownRecord
from saltvirt.core.protocol.moveprotocol import LEAVES
from saltvirt.migration.master import (
    evacuationnotes,
    migrate,
    notesignatures,
    parallelmoves,
    rebalance,
    recovery,
)
from saltvirt.placement import evacuation
from saltvirt.placement.answers import HostInfo, MigrationInfo

# Seconds between looks at a host while VMs are on their way in.
_LOOK_S = 3
_STILL_COMING = (
    "still on its way in after {} s; when the virt.init or virt.migrate that brings it is over, "
    "run this again (if that move was interrupted: salt-run virt.settle {})"
)
# On this host alone: salt-run could remove a VM of that name from another host.
_KEPT_DEFINITION = (
    "moved to {}, only its definition was kept: salt {} virt.undefine {} removes that"
)
_INTERRUPTED = "interrupted"
_LEFTOVER = "left by an interrupted virt.init or virt.purge: salt {} virt.purge {} removes it"


class NotAllMoved(VirtError):
    """Some VMs of a host did not move; ``table`` has their names and the reasons."""


def set_maintenance(cloud: Cloud, host: str, state: object) -> dict[str, Any]:
    """Set or clear a host's maintenance flag; return ``{host: state}``."""
    inventory.require_host(cloud, host)
    return {host: _read_answer(cloud, host, "virt.maintenance", bool, state)}


def _read_answer(cloud: Cloud, host: str, fun: str, shape: Any, *args: object) -> Any:
    """Have a host run a function, and return its answer as a type."""
    return wire.read(host, fun, shape, act(cloud, host, fun, *args))


def plan_moves(
    cloud: Cloud,
    host: str,
    vms: Mapping[str, MigrationInfo],
    stay_reasons: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return ``(moves, stays)`` of a host's VMs, by the other hosts' current answers.

    vms
        ``{name: answer of virt.migration_info}``.
    stay_reasons
        ``{name: reason}`` of those VMs that must not move; VMs that must be with one of these
        stay, too.
    """
    other_hosts = [other_host for other_host in inventory.all_hosts(cloud) if other_host != host]
    cloud.progress("Searching", detail=terminal.count_text(len(other_hosts), "hypervisor"))
    survey = inventory.survey(cloud, other_hosts, "virt.host_info")

    def place(
        refusals: Mapping[str, Mapping[str, Iterable[str]]],
    ) -> tuple[tuple[dict[str, str], dict[str, str]], dict[str, str]]:
        moves, stays = evacuation.evacuate(
            survey.answers, vms, cloud.settings.weights, refusals, survey.reasons(), stay_reasons
        )
        return (moves, stays), moves

    return rebalance.find_agreed_plan(cloud, list(survey.answers), vms, place)


def dry_run(
    cloud: Cloud,
    host: str,
    with_stopped: bool,
) -> dict[str, Any]:
    """Return what an evacuation would do, and change nothing."""
    inventory.require_host(cloud, host)
    incoming_vms, warnings, unreadable_reasons = _read_incoming(cloud, host)
    stopped_reasons, vms = _split_stopped(cloud, host, incoming_vms, with_stopped)
    moves, stays = plan_moves(cloud, host, vms, stopped_reasons)
    doubtful_vms = locate.find_refused_moves(cloud, dict.fromkeys(moves, host))
    moves = {name: target for name, target in moves.items() if name not in doubtful_vms}
    stays = {**stays, **doubtful_vms}
    nat_warnings = {name: migrate.behind_nat(vms[name], target) for name, target in moves.items()}
    warnings |= {name: warning for name, warning in nat_warnings.items() if warning}
    warnings |= dict.fromkeys(incoming_vms, "on its way in: it is waited for, and then moved too")
    stays = {**unreadable_reasons, **stays}
    return {"host": host, "moves": moves, "stays": stays, "warnings": warnings}


def _read_incoming(cloud: Cloud, host: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """
    Return a host's VMs on their way in, its warnings, and its unreadable VMs.

    Warnings are ``{name: text}`` about leftovers and kept definitions. Unreadable VMs are
    ``{name: reason}`` of VMs of which the host has no more than a record that it cannot read.
    """
    info: HostInfo = _read_answer(cloud, host, "virt.host_info", HostInfo)
    incoming_vms = {*info.building, *info.coming}
    leftovers = set(info.unfinished) - incoming_vms - set(info.vms)
    # A purge cannot remove an unreadable leftover, so the reason replaces that remedy.
    leftover_warnings = {
        name: _LEFTOVER.format(*map(shlex.quote, (host, name))) for name in leftovers
    }
    warnings = {n: info.unreadable.get(n, warning) for n, warning in leftover_warnings.items()}
    warnings |= {
        n: _KEPT_DEFINITION.format(target, *map(shlex.quote, (host, n)))
        for n, target in info.kept.items()
    }
    known_names = {*incoming_vms, *info.vms, *info.kept, *info.unfinished}
    unreadable_reasons = {
        name: reason for name, reason in info.unreadable.items() if name not in known_names
    }
    return sorted(incoming_vms), warnings, unreadable_reasons


def _split_stopped(
    cloud: Cloud,
    host: str,
    incoming_vms: Sequence[str],
    with_stopped: bool,
) -> tuple[dict[str, str], dict[str, MigrationInfo]]:
    """Return ``{name: reason}`` of stopped VMs that stay, and ``{name: facts}`` of all VMs."""
    vms = {name: info for name, info in _read_vms(cloud, host).items() if name not in incoming_vms}
    off_names = {name for name, vm_info in vms.items() if vm_info.state == "shutdown"}
    off_names -= _find_leaving_vms(cloud, host)
    stopped_reasons = {} if with_stopped else dict.fromkeys(sorted(off_names), "it is stopped")
    return stopped_reasons, vms


def _find_leaving_vms(cloud: Cloud, host: str) -> set[str]:
    """Return the VMs of a host that an unfinished move may have left shut off."""
    shape = dict[str, list[ShownRecord]]
    records_by_vm = _read_answer(cloud, host, "virt.migration_state", shape)
    return {
        name
        for name, records in records_by_vm.items()
        if any(record.phase in LEAVES for record in records)
    }


def _read_vms(cloud: Cloud, host: str) -> dict[str, MigrationInfo]:
    """Return ``{name: answer of virt.migration_info}`` of all VMs of a host."""
    shape = dict[str, MigrationInfo]
    vms: dict[str, MigrationInfo] = _read_answer(cloud, host, "virt.migration_info", shape)
    return vms


def evacuate(
    cloud: Cloud,
    host: str,
    *,
    max_parallel: int,
    with_stopped: bool,
    wait_s: float,
    per_host: int = parallelmoves.PER_HOST,
) -> dict[str, Any]:
    """
    Keep new VMs away from a host and move its VMs to other hosts, several at once.

    max_parallel, per_host
        How many VMs move at a time in all, and to one other host.
    wait_s
        How long to wait for VMs on their way in, which then move, too.

    The next run continues an interrupted one. Raises NotAllMoved if a VM was not moved.
    """
    pace = parallelmoves.Pace(max_parallel=max_parallel, per_host=per_host, free=(host,))
    set_maintenance(cloud, host, "on")
    evacuationnotes.renew(cloud, host)
    run = _EvacuationRun(cloud, host, pace, with_stopped)
    reason = None
    try:
        reason = run.until_empty(wait_s)
    except (KeyboardInterrupt, SystemExit):
        reason = _INTERRUPTED
    except (VirtError, OSError) as error:
        if not run.has_begun:
            raise
        reason = str(error)
    return run.result(reason)


class _EvacuationRun:
    """One evacuation: VMs move until a look finds none left to move."""

    def __init__(
        self,
        cloud: Cloud,
        host: str,
        pace: parallelmoves.Pace,
        with_stopped: bool,
    ) -> None:
        self._cloud, self._host = cloud, host
        self._pace, self._with_stopped = pace, with_stopped
        self._done = parallelmoves.Outcome()
        self._stuck: dict[str, str] = {}
        self._stopped: dict[str, str] = {}
        self._unknown: dict[str, str] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the run has tried to move a VM."""
        return bool(self._done.moved or self._done.failed or self._done.gone)

    def until_empty(self, wait_s: float) -> str | None:
        """
        Move all VMs, and those that arrive within ``wait_s``.

        Returns the reason if the run was interrupted. VMs that do not arrive in time count as
        stuck.
        """
        recovery.settle_left(self._cloud, self._host)
        announced_vms: list[str] = []
        waited_s = 0
        while not self._done.is_interrupted:
            start = time.monotonic()
            incoming_vms, leftover_warnings, self._unknown = _read_incoming(self._cloud, self._host)
            self._done.warnings |= leftover_warnings
            if self._round(incoming_vms):
                continue
            if not incoming_vms:
                return None
            if waited_s >= wait_s:
                self._stuck |= {
                    name: _STILL_COMING.format(waited_s, shlex.quote(name)) for name in incoming_vms
                }
                return None
            if incoming_vms != announced_vms:
                detail = (
                    f"at most {wait_s - waited_s} s for {', '.join(incoming_vms)} on the way in"
                )
                self._cloud.progress("Waiting", detail=detail)
            time.sleep(_LOOK_S)
            # A look at a busy host may take longer than the pause.
            looked_s = round(time.monotonic() - start)
            announced_vms, waited_s = incoming_vms, waited_s + max(_LOOK_S, looked_s)
        return _INTERRUPTED

    def _round(self, incoming_vms: Sequence[str]) -> bool:
        """Move the VMs that were not tried yet; return whether there were any."""
        self._stopped, vms = _split_stopped(
            self._cloud, self._host, incoming_vms, self._with_stopped
        )
        untried_names = self._fresh(vms)
        if not untried_names:
            return False
        # VMs that stay are planned, too: other VMs may have to be with them.
        stay_reasons = {**self._done.failed, **self._stuck, **self._stopped}
        stay_reasons = {name: reason for name, reason in stay_reasons.items() if name in vms}
        affected_vms = {name: vms[name] for name in vms if name in {*untried_names, *stay_reasons}}
        moves, stays = plan_moves(self._cloud, self._host, affected_vms, stay_reasons)
        self._stuck |= {name: reason for name, reason in stays.items() if name in untried_names}
        if moves:
            self._move(moves, {name: vms[name].uuid for name in moves})
        return True

    def _fresh(self, vms: Mapping[str, MigrationInfo]) -> set[str]:
        """Return the VMs that have to move and were not tried yet."""
        movable_names = vms.keys() - self._stopped
        # A stuck VM that was removed or stopped meanwhile is no obstacle any more.
        self._stuck = {
            name: reason for name, reason in self._stuck.items() if name in movable_names
        }
        outcome = self._done
        return movable_names - {*outcome.moved, *outcome.failed, *outcome.gone, *self._stuck}

    def _move(self, moves: Mapping[str, str], uuids: evacuationnotes.Uuids) -> None:
        """Move VMs as planned; note their targets first, as any process may die meanwhile."""
        cloud, host = self._cloud, self._host
        note_answers = evacuationnotes.survey_notes(cloud, inventory.all_hosts(cloud)).answers
        notes_by_host = evacuationnotes.select_by_uuid(
            notesignatures.select_proved(cloud.opts, note_answers), uuids
        )
        # The host merely claims that the VMs are its own: the claim proves nothing if another host
        # has a VM of that name.
        rivals = {name: {*lastseen.find_hosts(cloud.opts, name)} - {host} for name in moves}
        busy_names = {name for name in moves if orders.is_at_work(cloud.opts, name)}
        unrivalled_moves = {
            name: target
            for name, target in moves.items()
            if not rivals[name] and name not in busy_names
        }
        changes = {
            name: evacuationnotes.plan_changes(notes_by_host, name, host, target)
            for name, target in unrivalled_moves.items()
        }
        host_notes = {name: change[host] for name, change in changes.items() if host in change}
        evacuationnotes.note(cloud, host, host_notes, uuids)
        notes_by_host = {**notes_by_host, host: {**notes_by_host.get(host, {}), **host_notes}}

        def after(name: str, source: str, target: str) -> str | None:
            if target in rivals[name] and notes_by_host[host].get(name, [])[-1:] != [target]:
                return f"that it was evacuated is not noted: {target} had one of that name before"
            changes = evacuationnotes.plan_changes(notes_by_host, name, source, target)
            changes_by_host = {noting_host: {name: trail} for noting_host, trail in changes.items()}
            reason = evacuationnotes.note_changes(cloud, changes_by_host, uuids)
            return f"it has moved, but that was not noted: {reason}" if reason else None

        outcome = parallelmoves.move(
            cloud,
            {name: (host, target) for name, target in moves.items()},
            pace=self._pace,
            after=after,
        )
        self._done.add(outcome)
        self._forget([*outcome.gone, *outcome.failed])

    def _forget(self, names: Sequence[str]) -> None:
        """Drop the notes of VMs that did not move; keep those of VMs that may still move."""
        # Checked before the VMs are listed: another evacuation may be moving one of them.
        names = [name for name in names if not orders.is_at_work(self._cloud.opts, name)]
        if names:
            present_names = set(_read_vms(self._cloud, self._host)) - _find_leaving_vms(
                self._cloud, self._host
            )
            staying_names = [
                name for name in names if name in present_names or name in self._done.gone
            ]
            evacuationnotes.forget(self._cloud, self._host, staying_names)

    def result(self, reason: str | None) -> dict[str, Any]:
        """Return the result; raise NotAllMoved with it if VMs remain or ``reason`` is given."""
        outcome, stuck_reasons = self._done, {**self._unknown, **self._stuck}
        out = {
            "host": self._host,
            "moved": outcome.moved,
            "stays": {**self._stopped, **stuck_reasons},
            "failed": outcome.failed,
            "warnings": outcome.warnings,
            **({"gone": sorted(outcome.gone)} if outcome.gone else {}),
        }
        remaining_names = sorted({**outcome.failed, **stuck_reasons})
        if not remaining_names and reason is None:
            return out
        names = f"still has {', '.join(remaining_names)}" if remaining_names else "may not be empty"
        reason_text = f" ({reason})" if reason else ""
        error = NotAllMoved(
            f"{self._host} {names}{reason_text}; what moved stays where it is, and the next run "
            f"goes on: salt-run virt.evacuate {shlex.quote(self._host)}"
        )
        error.table = out
        raise error
