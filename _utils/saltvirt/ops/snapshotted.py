"""Snapshots are deleted, and reverted to, only if that spoils nothing else."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.errors import LibvirtRefused
from saltvirt.image import qcow2
from saltvirt.kvm import lifecycle, snapshots
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.xml.snapshot import Snapshot

_Verdicts = list[tuple[str, Verdict]]


def delete(
    conn: Any,
    settings: HostSettings,
    vm: str,
    names: Sequence[str],
    elsewhere: OtherHostsUsage | None = None,
) -> dict[str, Any]:
    """
    Delete snapshots as :func:`saltvirt.kvm.snapshots.delete` does, all without names.

    elsewhere
        What other hosts said of files on storage that they see. Defaults to nothing.
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
    Return what reverting would do, and whether the files may be written that it writes.

    The plan is that of :func:`saltvirt.kvm.snapshots.plan_revert`. A verdict that is not free is
    raised here already.
    """
    plan = snapshots.plan_revert(conn, vm, snapshot_name)
    call = (
        f"virt.revert_snapshot {_quote_words(vm, plan.to)}{' cleanup=True' if with_cleanup else ''}"
    )
    verdicts: _Verdicts = []
    # Nothing is written into the files of an external one: disks go on above them.
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
    Return whether the files of external snapshots may be merged; raise if one may not.

    What was written since is merged into the file below, and the file that has it is removed.

    call
        The runner's function, with its arguments, that asks all hosts first.
    """
    external_snapshots = [snapshot for snapshot in chosen_snapshots if snapshot.is_external]
    if not any((*snapshot.reverted, *snapshot.above) for snapshot in external_snapshots):
        return []
    if vm in lifecycle.saved(conn):
        reason = "goes on in a file that would be gone with the snapshot"
        raise LibvirtRefused(snapshots.saved_state_message(vm, reason))
    files = {
        lifecycle.find_disk_file(conn, path)
        for snapshot in external_snapshots
        for path in (*snapshot.reverted, *snapshot.above)
    }
    index = usage.index(
        conn,
        settings,
        but=[vm],
        going=sorted(files),
        # Those that go are deleted newest first: what is kept in a file goes before the file does.
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
        for policy, paths in ((policies.MERGE, snapshot.reverted), (policies.DROP, snapshot.above)):
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
    """Raise LibvirtRefused if QEMU would take a snapshot's name for the number of another."""
    for path in target.reverted:
        try:
            internal_snapshots = qcow2.snapshots(path)
        except OSError:
            continue  # libvirt says what of it is missing
        for snapshot in internal_snapshots:
            if snapshot.id == target.name != snapshot.name:
                raise LibvirtRefused(
                    f"QEMU would revert VM {vm!r} to its snapshot {snapshot.name!r}, as that has "
                    "the "
                    f"number {snapshot.id} in {path}, and not to the one that is called so; "
                    "nothing is "
                    "reverted"
                )
