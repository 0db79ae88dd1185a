"""Delete snapshots and revert to them, only if that spoils nothing else."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.images import qcow2
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.xml.storage.snapshot import Snapshot

_Verdicts = list[tuple[str, Verdict]]


def delete(
    conn: Any,
    settings: HostSettings,
    vm: str,
    names: Sequence[str],
    elsewhere: OtherHostsUsage | None = None,
) -> dict[str, Any]:
    """
    Delete the named snapshots, by default all; see
    :func:`saltvirt.libvirt.domains.snapshots.delete`.

    elsewhere
        Other hosts' usage of files that they see. Defaults to nothing.
    """
    vm_snapshots = snapshots.read_all(conn, vm).get(vm, [])
    chosen_snapshots = [
        snapshot for snapshot in vm_snapshots if snapshot.name in names or not names
    ]
    call = f"virt.delete_snapshots {_quote_words(vm, *names)}{'' if names else ' all=True'}"
    verdicts = _judge_merges(conn, settings, vm, chosen_snapshots, elsewhere, call)
    return door.delete_snapshots(conn, vm, names, verdicts)


def plan_revert(
    conn: Any,
    settings: HostSettings,
    vm: str,
    snapshot_name: object = None,
    *,
    with_cleanup: bool,
    elsewhere: OtherHostsUsage | None = None,
) -> tuple[snapshots.RevertPlan, _Verdicts]:
    """
    Return the plan of a revert, and the verdicts on the files that it writes.

    The plan is from :func:`saltvirt.libvirt.domains.snapshots.plan_revert`. Raises if a verdict is
    not free.
    """
    plan = snapshots.plan_revert(conn, vm, snapshot_name)
    call = (
        f"virt.revert_snapshot {_quote_words(vm, plan.to)}{' cleanup=True' if with_cleanup else ''}"
    )
    verdicts: _Verdicts = []
    # Reverting to an external snapshot writes into new files above the snapshot's.
    if not plan.target.is_external:
        files = [lifecycle.find_disk_file(conn, path) for path in plan.target.reverted]
        index = usage.index(conn, settings, but=[vm], going=files, other_hosts=elsewhere)
        verdicts = [(plan.to, index.verdict(policies.REVERT, path)) for path in files]
        _refuse(vm, verdicts, call)
        _refuse_number(vm, plan.target)
    if with_cleanup:
        vm_snapshots = snapshots.read_all(conn, vm).get(vm, [])
        newer_snapshots = [snapshot for snapshot in vm_snapshots if snapshot.name in plan.newer]
        verdicts += _judge_merges(conn, settings, vm, newer_snapshots, elsewhere, call)
    return plan, verdicts


def _judge_merges(
    conn: Any,
    settings: HostSettings,
    vm: str,
    chosen_snapshots: Sequence[Snapshot],
    elsewhere: OtherHostsUsage | None,
    call: str,
) -> _Verdicts:
    """
    Return the verdicts on merging the files of external snapshots; raise if one is not free.

    A merge writes the overlay's data into the file below and removes the overlay.

    call
        The call of the runner's function that asks all hosts first.
    """
    external_snapshots = [snapshot for snapshot in chosen_snapshots if snapshot.is_external]
    if not any((*snapshot.reverted, *snapshot.later_files) for snapshot in external_snapshots):
        return []
    if vm in lifecycle.saved(conn):
        reason = "goes on in a file that would be gone with the snapshot"
        raise LibvirtRefused(snapshots.saved_state_message(vm, reason))
    files = {
        lifecycle.find_disk_file(conn, path)
        for snapshot in external_snapshots
        for path in (*snapshot.reverted, *snapshot.later_files)
    }
    index = usage.index(
        conn,
        settings,
        but=[vm],
        going=sorted(files),
        # Snapshots are deleted newest first: an internal one goes before the file that holds it.
        snapshots_going={snapshot.name for snapshot in chosen_snapshots},
        other_hosts=elsewhere,
    )
    verdicts = list(_judge_each(conn, index, external_snapshots))
    _refuse(vm, verdicts, call)
    return verdicts


def _judge_each(
    conn: Any, index: usage.Index, external_snapshots: Iterable[Snapshot]
) -> Iterator[tuple[str, Verdict]]:
    for snapshot in external_snapshots:
        for policy, paths in (
            (policies.MERGE, snapshot.reverted),
            (policies.DROP, snapshot.later_files),
        ):
            for path in paths:
                yield snapshot.name, index.verdict(policy, lifecycle.find_disk_file(conn, path))


def _quote_words(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _refuse(vm: str, verdicts: _Verdicts, call: str) -> None:
    sharing.refuse_unasked(
        [verdict for _name, verdict in verdicts],
        f"the snapshots of VM {vm!r} and its disks stay as they are",
        f"salt-run {call}",
    )
    door.refuse_snapshots(vm, verdicts)


def _refuse_number(vm: str, target: Snapshot) -> None:
    """Raise LibvirtRefused if QEMU would take a snapshot's name for another snapshot's id."""
    for path in target.reverted:
        try:
            internal_snapshots = qcow2.snapshots(path)
        except OSError:
            continue  # libvirt reports the missing file
        for snapshot in internal_snapshots:
            if snapshot.id == target.name != snapshot.name:
                raise LibvirtRefused(
                    f"QEMU would revert VM {vm!r} to its snapshot {snapshot.name!r}, as that has "
                    "the "
                    f"number {snapshot.id} in {path}, and not to the one that is called so; "
                    "nothing is "
                    "reverted"
                )
