"""Actions of the states that act on every VM matching a name pattern."""

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import LibvirtRefused, VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import power as switch
from saltvirt.libvirt.domains import query, snapshots
from saltvirt.storage import chains, door, snapshotguard
from saltvirt.storage.verdict import Verdict
from saltvirt.vm.power.host import startlock


@dataclass(slots=True)
class Outcome:
    """The matched VMs, the changes made or planned, and the VMs on which the action failed."""

    matched: list[str] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    ignored: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def changes(self, section: str) -> dict[str, Any]:
        """Return the state's changes, as 3006 had them."""
        rows_by_section = {section: self.changed, "ignored": self.ignored}
        return {key: rows for key, rows in rows_by_section.items() if rows}

    def state_change(self, changes: dict[str, Any], comment: str) -> StateChange:
        """Return what the state did; it fails after any failure, even if others succeeded."""
        issues = "; ".join(f"{row['domain']}: {row['issue']}" for row in self.ignored)
        unchanged = "No changes had happened"
        return StateChange(
            changes, comment, unchanged=unchanged, failure=issues or None, warnings=self.warnings
        )


def act_on_matching(
    settings: HostSettings, pattern: str, act: Callable[[Any, str, str], dict[str, Any] | None]
) -> Outcome:
    """
    Act on each VM matching the pattern; a failure on one VM does not stop the others.

    Raises VirtError if no VM matches.

    act
        Takes the connection, the name and the state of a VM; returns its changes, or None.
    """
    out = Outcome()
    with connect.open_connection(settings, readonly=False) as conn:
        states = query.states(conn)
        out.matched = sorted(fnmatch.filter(states, arguments.text("name", pattern)))
        if not out.matched:
            raise VirtError(f"no VM's name matches {pattern!r}")
        for name in out.matched:
            try:
                row = act(conn, name, states[name])
            except (VirtError, connect.libvirt.libvirtError) as exc:
                out.ignored.append({"domain": name, "issue": str(exc)})
            else:
                out.changed += [] if row is None else [{"domain": name, **row}]
    return out


def power(
    settings: HostSettings, pattern: str, function: str, *, is_test: bool, is_off: bool
) -> Outcome:
    """
    Call ``shutdown``, ``stop`` or ``reboot`` for each VM matching the pattern.

    is_off
        Whether the state wants VMs off: VMs that are off already are skipped.
    """
    action = {"stop": "destroy"}.get(function, function)

    def act(conn: Any, name: str, state: str) -> dict[str, Any] | None:
        if is_off and state == "shutdown":
            return None
        if is_test:
            switch.refuse(conn, name, action)
        else:
            switch.act(conn, name, action)
        return {function: True}

    return act_on_matching(settings, pattern, act)


def take_snapshots(
    settings: HostSettings, pattern: str, suffix: object, *, is_test: bool, is_external: bool
) -> Outcome:
    """Take a snapshot of each VM matching the pattern."""

    def act(conn: Any, name: str, _state: str) -> dict[str, Any]:
        snapshot_name = snapshots.new_name(name, None, suffix)
        if is_test:
            # The name contains the time at which the snapshot is taken: True stands for it.
            obstacle = chains.why_not(conn, name, is_external=is_external)
            if obstacle:
                raise LibvirtRefused(obstacle)
            return {"snapshot": True}
        with startlock.allow_start(conn, settings, name):
            chains.take(conn, name, snapshot_name, is_external=is_external, is_quiesced=False)
        return {"snapshot": snapshot_name}

    return act_on_matching(settings, pattern, act)


def revert(
    settings: HostSettings,
    pattern: str,
    snapshot_name: str | None,
    *,
    with_cleanup: bool,
    is_test: bool,
) -> Outcome:
    """Revert each VM matching the pattern."""
    warnings: list[str] = []

    def planned(conn: Any, name: str) -> tuple[snapshots.RevertPlan, list[tuple[str, Verdict]]]:
        return snapshotguard.plan_revert(
            conn, settings, name, snapshot_name, with_cleanup=with_cleanup
        )

    def act(conn: Any, name: str, _state: str) -> dict[str, Any]:
        if is_test:
            plan, _verdicts = planned(conn, name)
            result = snapshots.describe_revert(plan, with_cleanup=with_cleanup)
        else:
            with startlock.allow_start(conn, settings, name):
                plan, verdicts = planned(conn, name)
                result = door.revert(conn, name, plan, verdicts, with_cleanup=with_cleanup)
        warnings.extend(result.get("warnings", ()))
        return {"current": result["reverted"], "deleted": result["deleted"]}

    out = act_on_matching(settings, pattern, act)
    out.warnings = warnings
    return out
