"""Fill a host again with the VMs that evacuations moved away from it."""

from typing import Any

from saltvirt.fleet import inventory, notes, several
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.evacuate import NotAllMoved, set_maintenance
from saltvirt.fleet.hosts import act


def dry_run(cloud: Cloud, host: str) -> dict[str, Any]:
    """Return what :func:`restore` would do; nothing is changed."""
    inventory.hosts(cloud, host=host)
    _noted, away = _looked(cloud, host)
    return {
        "host": host,
        "moves": dict.fromkeys(away.back, host),
        "failed": away.unsure,
        "gone": away.gone,
        "elsewhere": away.elsewhere,
    }


def restore(
    cloud: Cloud,
    host: str,
    *,
    max_parallel: int,
) -> dict[str, Any]:
    """
    Let a host take VMs again, and bring back those that are where evacuations have put them.

    Those that somebody has moved by hand since are left there, and named once, as are those that
    were removed. One that did not come is brought by the next call.
    """
    set_maintenance(cloud, host, "off")
    noted, away = _looked(cloud, host)
    if away.over:
        act(cloud, host, "virt.evacuated", dict.fromkeys(away.over))

    def after(name: str, source: str, _to: str) -> str | None:
        changes = notes.followed(noted, name, source, host)
        # Its own last: until then it is known that the VM was to come here.
        order = sorted(changes, key=lambda one: one == host)
        failed = notes.tell(cloud, {one: {name: changes[one]} for one in order})
        why = "; ".join(failed.values())
        return f"it is home, but not all have noted that: {why}" if why else None

    moves = {name: (at, host) for name, at in away.back.items()}
    done = several.move(cloud, moves, max_parallel=max_parallel, is_fixed=True, after=after)
    if done.gone:
        notes.tell(cloud, {host: dict.fromkeys(done.gone)})
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
            f"there is fixed, run this again: salt-run virt.restore {host}"
        )
        error.table = out
        raise error
    return out


def _looked(cloud: Cloud, host: str) -> tuple[dict[str, dict[str, list[str]]], notes.Away]:
    """Return ``(notes of all hosts, the Away of this one)``."""
    own = notes.listed(host, act(cloud, host, "virt.evacuated"))
    if not own:
        return {}, notes.Away()
    every = inventory.every(cloud)
    cloud.progress("Searching", detail=f"{len(own)} VMs on {len(every)} hypervisors")
    asked = notes.heard(cloud, every)
    noted = {**asked.answers, host: own}
    found = inventory.survey(cloud, every, "virt.host_info")
    there = {one: set(info.vms) for one, info in found.answers.items()}
    silent = {*asked.reasons(), *found.reasons()}
    return noted, notes.away(noted, host, there, silent)
