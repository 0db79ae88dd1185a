"""Snapshots are deleted, and reverted to, only if that spoils nothing else."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from saltvirt import config
from saltvirt.config import HostSettings
from saltvirt.errors import LibvirtRefused
from saltvirt.image import qcow2
from saltvirt.kvm import lifecycle, snapshots
from saltvirt.ops import outofreach, storage, trashbases
from saltvirt.xml.snapshot import Snapshot


def delete(conn: Any, settings: HostSettings, vm: str, names: Sequence[str]) -> dict[str, Any]:
    """Delete snapshots as :func:`saltvirt.kvm.snapshots.delete` does, all without names."""
    known = snapshots.every(conn, vm).get(vm, [])
    _refuse_merging(conn, settings, vm, [one for one in known if one.name in names or not names])
    return snapshots.delete(conn, vm, names)


def plan_revert(
    conn: Any, settings: HostSettings, vm: str, wanted: object = None, *, with_cleanup: bool
) -> snapshots.Reverting:
    """Return what reverting would do, as :func:`saltvirt.kvm.snapshots.plan_revert` does."""
    plan = snapshots.plan_revert(conn, vm, wanted)
    if not plan.target.is_external:
        # An external one stays as it is: disks go on above it in new files.
        _refuse_based(conn, settings, vm, {plan.to: plan.target.reverted})
        _refuse_number(vm, plan.target)
    if with_cleanup:
        known = snapshots.every(conn, vm).get(vm, [])
        _refuse_merging(conn, settings, vm, [one for one in known if one.name in plan.newer])
    return plan


def needed(conn: Any, *, externally: bool = False, but: str | None = None) -> dict[str, str]:
    """
    Return ``{path: VM}`` of what snapshots go back to, and of what is below that.

    The disks that a VM has itself are not among them: these are in a snapshot, too, that is kept in
    them.

    externally
        Of external snapshots alone: an internal one stays whatever is written beside it. Defaults
        to False.
    but
        The VM whose snapshots do not count. Defaults to none.
    """
    found = {vm: taken for vm, taken in snapshots.every(conn).items() if vm != but}
    own = lifecycle.disks(conn) if found else {}
    out: dict[str, str] = {}
    for vm, taken in sorted(found.items()):
        has = set(map(os.path.realpath, own.get(vm, ())))
        chosen = [one for one in taken if one.is_external or not externally]
        for path in _files(conn, chosen, has):
            out |= {path: vm, os.path.realpath(path): vm}
    return out


def _files(conn: Any, taken: Iterable[Snapshot], own: Collection[str]) -> Iterator[str]:
    """Yield the files that snapshots go back to, but for their own VM's, and what is below them."""
    for one in taken:
        for path in one.reverted:
            file = lifecycle.file_of(conn, path)
            if os.path.realpath(file) not in own:
                yield file
            # Into a raw disk its guest may have written what looks like the header of an overlay.
            yield from [*storage.chain(file)][1:] if path in one.overlays else ()


def _refuse_merging(conn: Any, settings: HostSettings, vm: str, found: Iterable[Snapshot]) -> None:
    """Raise LibvirtRefused if what is written since external snapshots must stay where it is."""
    # What has been written since goes into the file below, and its own goes.
    files = {one.name: (*one.reverted, *one.above) for one in found if one.is_external}
    if not files:
        return
    if vm in lifecycle.saved(conn):
        why = "goes on in a file that would be gone with the snapshot"
        raise LibvirtRefused(snapshots.saved_too(vm, why))
    snapshots.refuse_anothers(conn, vm, files)
    _refuse_based(conn, settings, vm, files)
    # It is written into what was below, and a disk that nobody can read may be based on that.
    unknown = outofreach.reasons(conn, settings, but=vm) if config.is_local(settings.uri) else {}
    for why in unknown.values():
        raise LibvirtRefused(f"a VM may be based on a file of snapshots of VM {vm!r}: {why}")


def _refuse_based(
    conn: Any, settings: HostSettings, vm: str, files: Mapping[str, Sequence[str]]
) -> None:
    """Raise if another VM, or a disk in the trash, is based on one of the files of snapshots."""
    paths = [path for some in files.values() for path in some]
    if not paths:
        return
    # All domains are asked, and all their files read: once, however many snapshots there are.
    below = storage.below_disks(conn, but=vm)
    for name, path in ((name, path) for name, some in files.items() for path in some):
        if path in below or os.path.realpath(path) in below:
            raise LibvirtRefused(
                f"snapshot {name!r} of VM {vm!r} has file {path}, on which a disk of another VM is "
                "based: what that has in it would be spoilt; give it another disk first"
            )
    # Of another machine's libvirt no file is seen.
    if config.is_local(settings.uri):
        trashbases.refuse_needed(settings, [lifecycle.file_of(conn, one) for one in paths])


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
