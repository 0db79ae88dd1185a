"""Empty a host for maintenance."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saltvirt import terminal, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import (
    agreement,
    finding,
    hints,
    inventory,
    migrate,
    notes,
    orders,
    proofs,
    several,
)
from saltvirt.fleet import moves as settling
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act
from saltvirt.placement import evacuation
from saltvirt.placement.answers import HostInfo, MigrationInfo
from saltvirt.protocol import LEAVES
from saltvirt.records import Shown

# How often a host is looked at while VMs are on their way in.
_LOOK_S = 3
_STILL_COMING = (
    "still on its way in after {} s; when the virt.init or virt.migrate that brings it is over, "
    "run this again (if that move was interrupted: salt-run virt.settle {})"
)
# On this host alone: by now another may have a VM of that name, which salt-run would remove.
_KEPT = "moved to {}, only its definition was kept: salt {} virt.undefine {} removes that"
_INTERRUPTED = "interrupted"
_UNFINISHED = "left by an interrupted virt.init or virt.purge: salt {} virt.purge {} removes it"


class NotAllMoved(VirtError):
    """Some VMs of a host did not move; ``table`` says which, and why."""


def set_maintenance(cloud: Cloud, host: str, state: object) -> dict[str, Any]:
    """Set or clear a host's flag; return ``{host: state}``."""
    inventory.one(cloud, host)
    said = act(cloud, host, "virt.maintenance", state)
    return {host: wire.read(host, "virt.maintenance", bool, said)}


def planned(
    cloud: Cloud,
    host: str,
    wanted: Mapping[str, MigrationInfo],
    staying: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return ``(moves, stays)`` of VMs of a host, as the hosts are now.

    wanted
        ``{name: answer of virt.migration_info}``.
    staying
        ``{name: why}`` of those of them that are not to be moved; whoever must be with one of
        them stays too.
    """
    others = [one for one in inventory.every(cloud) if one != host]
    cloud.progress("Searching", detail=terminal.counted(len(others), "hypervisor"))
    found = inventory.survey(cloud, others, "virt.host_info")

    def place(
        refused: Mapping[str, Mapping[str, Iterable[str]]],
    ) -> tuple[tuple[dict[str, str], dict[str, str]], dict[str, str]]:
        moves, stays = evacuation.evacuate(
            found.answers, wanted, cloud.settings.weights, refused, found.reasons(), staying
        )
        return (moves, stays), moves

    return agreement.reach(cloud, list(found.answers), wanted, place)


def dry_run(
    cloud: Cloud,
    host: str,
    with_stopped: bool,
) -> dict[str, Any]:
    """Return what an evacuation would do; nothing is changed."""
    inventory.one(cloud, host)
    coming, warnings, unknown = _coming(cloud, host)
    stopped, wanted = _sorted(cloud, host, coming, with_stopped)
    moves, stays = planned(cloud, host, wanted, stopped)
    refused = finding.doubtful(cloud, dict.fromkeys(moves, host))
    moves = {name: to for name, to in moves.items() if name not in refused}
    stays = {**stays, **refused}
    told = {name: migrate.behind_nat(wanted[name], to) for name, to in moves.items()}
    warnings |= {name: why for name, why in told.items() if why}
    warnings |= dict.fromkeys(coming, "on its way in: it is waited for, and then moved too")
    stays = {**unknown, **stays}
    return {"host": host, "moves": moves, "stays": stays, "warnings": warnings}


def _coming(cloud: Cloud, host: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """
    Return the names of the VMs on their way in, and of others ``{name: what is left}``.

    And ``{name: why}`` of those that its libvirt does not know of, and that it still has.
    """
    said = act(cloud, host, "virt.host_info")
    info: HostInfo = wire.read(host, "virt.host_info", HostInfo, said)
    coming = {*info.building, *info.coming}
    left = set(info.unfinished) - coming - set(info.vms)
    # What cannot be read no purge removes: it ends with the same line.
    unfinished = {name: _UNFINISHED.format(*map(shlex.quote, (host, name))) for name in left}
    warnings = {n: info.unreadable.get(n, why) for n, why in unfinished.items()}
    warnings |= {n: _KEPT.format(at, *map(shlex.quote, (host, n))) for n, at in info.kept.items()}
    known = {*coming, *info.vms, *info.kept, *info.unfinished}
    unknown = {name: why for name, why in info.unreadable.items() if name not in known}
    return sorted(coming), warnings, unknown


def _sorted(
    cloud: Cloud,
    host: str,
    coming: Sequence[str],
    with_stopped: bool,
) -> tuple[dict[str, str], dict[str, MigrationInfo]]:
    """Return ``({name: why} of those that may stay, {name: facts} of all that are there)``."""
    here = {name: one for name, one in _vms(cloud, host).items() if name not in coming}
    is_off = {name for name, moving in here.items() if moving.state == "shutdown"}
    is_off -= _leaving(cloud, host)
    stopped = {} if with_stopped else dict.fromkeys(sorted(is_off), "it is stopped")
    return stopped, here


def _leaving(cloud: Cloud, host: str) -> set[str]:
    """Return the VMs of a host that a move of theirs, which is not over, may have left off."""
    fun = "virt.migration_state"
    moves = wire.read(host, fun, dict[str, list[Shown]], act(cloud, host, fun))
    return {name for name, known in moves.items() if any(o.phase in LEAVES for o in known)}


def _vms(cloud: Cloud, host: str) -> dict[str, MigrationInfo]:
    """Return ``{name: answer of virt.migration_info}`` of all VMs of a host."""
    said = act(cloud, host, "virt.migration_info")
    vms: dict[str, MigrationInfo] = wire.read(
        host, "virt.migration_info", dict[str, MigrationInfo], said
    )
    return vms


def evacuate(
    cloud: Cloud,
    host: str,
    *,
    max_parallel: int,
    with_stopped: bool,
    wait_s: float,
    per_host: int = several.PER_HOST,
) -> dict[str, Any]:
    """
    Keep new VMs away from a host and move its own to others, several at once.

    max_parallel, per_host
        How many move at a time in all, and to one of the other hosts.
    wait_s
        For how long VMs that are on their way in are waited for; then they are moved too.

    What was interrupted goes on when it is run again. Raises NotAllMoved if a VM was not moved.
    """
    pace = several.Pace(max_parallel=max_parallel, per_host=per_host, free=(host,))
    set_maintenance(cloud, host, "on")
    notes.renew(cloud, host)
    run = _Run(cloud, host, pace, with_stopped)
    why = None
    try:
        why = run.until_empty(wait_s)
    except (KeyboardInterrupt, SystemExit):
        why = _INTERRUPTED
    except (VirtError, OSError) as error:
        if not run.has_begun:
            raise
        why = str(error)
    return run.result(why)


class _Run:
    """One evacuation: what is there is moved, until a look finds nothing more that could be."""

    def __init__(
        self,
        cloud: Cloud,
        host: str,
        pace: several.Pace,
        with_stopped: bool,
    ) -> None:
        self._cloud, self._host = cloud, host
        self._pace, self._with_stopped = pace, with_stopped
        self._done = several.Outcome()
        self._stuck: dict[str, str] = {}
        self._stopped: dict[str, str] = {}
        self._unknown: dict[str, str] = {}

    @property
    def has_begun(self) -> bool:
        """Whether any VM was tried to be moved."""
        return bool(self._done.moved or self._done.failed or self._done.gone)

    def until_empty(self, wait_s: float) -> str | None:
        """
        Move all VMs, and those that come meanwhile, which are waited for so long.

        Returns why that ended before it was known that nothing more comes, None if it is known.
        """
        settling.settle_left(self._cloud, self._host)
        told: list[str] = []
        waited_s = 0
        while not self._done.is_interrupted:
            begun = time.monotonic()
            coming, left, self._unknown = _coming(self._cloud, self._host)
            self._done.warnings |= left
            if self._round(coming):
                continue
            if not coming:
                return None
            if waited_s >= wait_s:
                self._stuck |= {
                    name: _STILL_COMING.format(waited_s, shlex.quote(name)) for name in coming
                }
                return None
            if coming != told:
                detail = f"at most {wait_s - waited_s} s for {', '.join(coming)} on the way in"
                self._cloud.progress("Waiting", detail=detail)
            time.sleep(_LOOK_S)
            # To look at a busy host may take longer than that.
            looked_s = round(time.monotonic() - begun)
            told, waited_s = coming, waited_s + max(_LOOK_S, looked_s)
        return _INTERRUPTED

    def _round(self, coming: Sequence[str]) -> bool:
        """Move what has not been tried; return whether there was anything."""
        self._stopped, here = _sorted(self._cloud, self._host, coming, self._with_stopped)
        fresh = self._fresh(here)
        if not fresh:
            return False
        # They are there, and so are those that must be with them.
        staying = {**self._done.failed, **self._stuck, **self._stopped}
        staying = {name: why for name, why in staying.items() if name in here}
        wanted = {name: here[name] for name in here if name in {*fresh, *staying}}
        moves, stays = planned(self._cloud, self._host, wanted, staying)
        self._stuck |= {name: why for name, why in stays.items() if name in fresh}
        if moves:
            self._move(moves, {name: here[name].uuid for name in moves})
        return True

    def _fresh(self, here: Mapping[str, MigrationInfo]) -> set[str]:
        """Return which of the VMs that are there have to move and were not tried yet."""
        left = here.keys() - self._stopped
        # One that had to stay, and was removed or stopped meanwhile, is in nobody's way any more.
        self._stuck = {name: why for name, why in self._stuck.items() if name in left}
        done = self._done
        return left - {*done.moved, *done.failed, *done.gone, *self._stuck}

    def _move(self, moves: Mapping[str, str], uuids: notes.Uuids) -> None:
        """Move VMs as planned; where they go is noted before they do, as nobody knows who dies."""
        cloud, host = self._cloud, self._host
        heard = notes.heard(cloud, inventory.every(cloud)).answers
        noted = notes.of_vms(proofs.proved(cloud.opts, heard), uuids)
        # It is this host's word that they are its own: nothing is proved by that alone where
        # another has one of that name.
        rivals = {name: {*hints.where(cloud.opts, name)} - {host} for name in moves}
        busy = {name for name in moves if orders.is_at_work(cloud.opts, name)}
        alone = {name: to for name, to in moves.items() if not rivals[name] and name not in busy}
        changes = {name: notes.followed(noted, name, host, to) for name, to in alone.items()}
        own = {name: change[host] for name, change in changes.items() if host in change}
        notes.note(cloud, host, own, uuids)
        noted = {**noted, host: {**noted.get(host, {}), **own}}

        def after(name: str, source: str, to: str) -> str | None:
            if to in rivals[name] and noted[host].get(name, [])[-1:] != [to]:
                return f"that it was evacuated is not noted: {to} had one of that name before"
            changes = notes.followed(noted, name, source, to)
            failed = notes.tell(cloud, {one: {name: at} for one, at in changes.items()}, uuids)
            why = "; ".join(failed.values())
            return f"it has moved, but that was not noted: {why}" if why else None

        done = several.move(
            cloud,
            {name: (host, to) for name, to in moves.items()},
            pace=self._pace,
            after=after,
        )
        self._done.add(done)
        self._forget([*done.gone, *done.failed])

    def _forget(self, names: Sequence[str]) -> None:
        """Take back the notes of VMs that did not move; that of a VM which may yet move stays."""
        # Before it is looked where they are: another evacuation may be moving one at this moment.
        names = [name for name in names if not orders.is_at_work(self._cloud.opts, name)]
        if names:
            here = set(_vms(self._cloud, self._host)) - _leaving(self._cloud, self._host)
            staying = [name for name in names if name in here or name in self._done.gone]
            notes.forget(self._cloud, self._host, staying)

    def result(self, why: str | None) -> dict[str, Any]:
        """Return what was done, or raise NotAllMoved with it; ``why`` it ended before its end."""
        done, stuck = self._done, {**self._unknown, **self._stuck}
        out = {
            "host": self._host,
            "moved": done.moved,
            "stays": {**self._stopped, **stuck},
            "failed": done.failed,
            "warnings": done.warnings,
            **({"gone": sorted(done.gone)} if done.gone else {}),
        }
        left = sorted({**done.failed, **stuck})
        if not left and why is None:
            return out
        names = f"still has {', '.join(left)}" if left else "may not be empty"
        because = f" ({why})" if why else ""
        error = NotAllMoved(
            f"{self._host} {names}{because}; what moved stays where it is, and the next run goes on"
            f": salt-run virt.evacuate {shlex.quote(self._host)}"
        )
        error.table = out
        raise error
