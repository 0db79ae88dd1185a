"""Snapshots are deleted, and reverted to, only if that spoils nothing else."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.errors import LibvirtRefused
from saltvirt.image import qcow2
from saltvirt.kvm import lifecycle, snapshots
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.sharing import Elsewhere
from saltvirt.storage.verdict import Verdict
from saltvirt.xml.snapshot import Snapshot

_Verdicts = list[tuple[str, Verdict]]


def delete(
    conn: Any,
    settings: HostSettings,
    vm: str,
    names: Sequence[str],
    elsewhere: Elsewhere | None = None,
) -> dict[str, Any]:
    """
    Delete snapshots as :func:`saltvirt.kvm.snapshots.delete` does, all without names.

    elsewhere
        What other hosts said of files on storage that they see. Defaults to nothing.
    """
    known = snapshots.every(conn, vm).get(vm, [])
    chosen = [one for one in known if one.name in names or not names]
    call = f"virt.delete_snapshots {_words(vm, *names)}{'' if names else ' all=True'}"
    verdicts = _merging(conn, settings, vm, chosen, elsewhere, call)
    return door.delete_snapshots(conn, vm, names, verdicts)


def plan_revert(
    conn: Any,
    settings: HostSettings,
    vm: str,
    wanted: object = None,
    *,
    with_cleanup: bool,
    elsewhere: Elsewhere | None = None,
) -> tuple[snapshots.Reverting, _Verdicts]:
    """
    Return what reverting would do, and whether the files may be written that it writes.

    The plan is that of :func:`saltvirt.kvm.snapshots.plan_revert`. A verdict that is not free is
    raised here already.
    """
    plan = snapshots.plan_revert(conn, vm, wanted)
    call = f"virt.revert_snapshot {_words(vm, plan.to)}{' cleanup=True' if with_cleanup else ''}"
    verdicts: _Verdicts = []
    # Nothing is written into the files of an external one: disks go on above them.
    if not plan.target.is_external:
        files = [lifecycle.file_of(conn, path) for path in plan.target.reverted]
        index = usage.index(conn, settings, but=[vm], going=files, elsewhere=elsewhere)
        verdicts = [(plan.to, index.verdict(policies.REVERT, path)) for path in files]
        _refuse(vm, verdicts, call)
        _refuse_number(vm, plan.target)
    if with_cleanup:
        known = snapshots.every(conn, vm).get(vm, [])
        newer = [one for one in known if one.name in plan.newer]
        verdicts += _merging(conn, settings, vm, newer, elsewhere, call)
    return plan, verdicts


def _merging(
    conn: Any,
    settings: HostSettings,
    vm: str,
    chosen: Sequence[Snapshot],
    elsewhere: Elsewhere | None,
    call: str,
) -> _Verdicts:
    """
    Return whether the files of external snapshots may be merged; raise if one may not.

    What was written since is merged into the file below, and the file that has it is removed.

    call
        The runner's function, with its arguments, that asks all hosts first.
    """
    external = [one for one in chosen if one.is_external]
    if not any((*one.reverted, *one.above) for one in external):
        return []
    if vm in lifecycle.saved(conn):
        why = "goes on in a file that would be gone with the snapshot"
        raise LibvirtRefused(snapshots.saved_too(vm, why))
    files = {
        lifecycle.file_of(conn, path) for one in external for path in (*one.reverted, *one.above)
    }
    index = usage.index(
        conn,
        settings,
        but=[vm],
        going=sorted(files),
        # Those that go are deleted newest first: what is kept in a file goes before the file does.
        snapshots_going={one.name for one in chosen},
        elsewhere=elsewhere,
    )
    verdicts = list(_of_each(conn, index, external))
    _refuse(vm, verdicts, call)
    return verdicts


def _of_each(
    conn: Any, index: usage.Index, external: Iterable[Snapshot]
) -> Iterator[tuple[str, Verdict]]:
    for one in external:
        for policy, paths in ((policies.MERGE, one.reverted), (policies.DROP, one.above)):
            for path in paths:
                yield one.name, index.verdict(policy, lifecycle.file_of(conn, path))


def _words(*words: str) -> str:
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
            found = qcow2.snapshots(path)
        except OSError:
            continue  # libvirt says what of it is missing
        for one in found:
            if one.id == target.name != one.name:
                raise LibvirtRefused(
                    f"QEMU would revert VM {vm!r} to its snapshot {one.name!r}, as that has the "
                    f"number {one.id} in {path}, and not to the one that is called so; nothing is "
                    "reverted"
                )
