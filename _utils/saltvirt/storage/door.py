"""
The only functions that remove or overwrite files and volumes that may hold a VM's data.

Each function takes the :class:`~saltvirt.storage.verdict.Verdict` on the file, and refuses unless
the file is free. Files that hold no VM's data (locks, records, partial files, certificates) are
exempt; ``tests/conventions/test_door.py`` lists them.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.libvirt.domains import snapshots
from saltvirt.libvirt.storage import diskvolumes, transfer, volumes
from saltvirt.storage.verdict import Verdict


def remove(verdict: Verdict) -> None:
    """Remove a free file for good; ignore a missing file."""
    verdict.refuse(f"{verdict.path} is not removed")
    files.unlink(verdict.path)


def put_away(verdict: Verdict, place: Path) -> None:
    """
    Move a file into the trash.

    A file in use stays. Doubts do not keep a file, as the trash can restore it.
    """
    if verdict.used_by:
        verdict.refuse(f"{verdict.path} is not moved into the trash")
    Path(verdict.path).rename(place)
    files.sync_folder(place.parent)
    files.sync_folder(Path(verdict.path).parent)


def bring_back(place: Path, path: str) -> None:
    """
    Move a file from the trash back to its path, unless another file has that path now.

    Raises StorageError if the file cannot be moved.
    """
    try:
        try:
            if not is_back(place, path):
                # Link, not rename: another host that shares the folder may create ``path`` now.
                os.link(place, path)
        except OSError as exc:
            if exc.errno not in files.NO_LINKS:
                raise
            place.rename(path)
        files.sync_folder(Path(path).parent)
        files.unlink(place)
    except OSError as exc:
        raise StorageError(f"cannot bring {path} back from {place}: {exc.strerror}") from exc


def is_back(place: Path, path: str) -> bool:
    """Return whether an interrupted job restored a file, but did not remove it from the trash."""
    return os.path.lexists(path) and not Path(path).is_symlink() and place.samefile(path)


def remove_trashed(place: Path) -> None:
    """Remove a file from the trash for good; ``place`` is its path there."""
    try:
        files.unlink(place)
    except OSError as exc:
        raise StorageError(f"cannot remove {place}: {exc.strerror}") from exc


def replace(part: Path, verdict: Verdict) -> None:
    """Move a finished file to the path of a free or missing file."""
    verdict.refuse(f"{verdict.path} is not replaced")
    part.rename(verdict.path)
    files.sync_folder(Path(verdict.path).parent)


def delete_volume(
    conn: Any,
    pool: str,
    volume: str,
    check: Callable[[], Iterable[Verdict]],
    *,
    is_dry: bool = False,
) -> None:
    """Delete a free volume; call ``check`` once libvirt has found the volume."""

    def refuse() -> None:
        _refuse(check(), f"volume {pool}/{volume} stays")

    volumes.delete(conn, pool, volume, refuse, is_dry=is_dry)


def drop_volume(conn: Any, pool: str, volume: str, verdict: Verdict) -> str | None:
    """Delete a free volume, if it exists; return the reason if libvirt fails."""
    verdict.refuse(f"volume {pool}/{volume} stays")
    return diskvolumes.remove(conn, pool, volume)


def resize_volume(
    conn: Any,
    pool: str,
    volume: str,
    capacity: Any,
    check: Callable[[bool], Iterable[Verdict]],
    *,
    shrinks: bool,
) -> None:
    """Resize a volume; ``check`` gets whether the volume shrinks."""

    def refuse(is_cut: bool) -> None:
        _refuse(check(is_cut), f"volume {pool}/{volume} stays")

    volumes.resize(conn, pool, volume, capacity, shrinks=shrinks, check=refuse)


def write_volume(
    conn: Any, pool: str, volume: str, file: str, verdicts: Iterable[Verdict], **part: Any
) -> None:
    """Write a file's content into a free volume."""
    _refuse(verdicts, f"volume {pool}/{volume} stays")
    transfer.upload(conn, pool, volume, file, **part)


def wipe_volume(
    conn: Any,
    pool: str,
    volume: str,
    algorithm: str,
    verdicts: Iterable[Verdict],
    *,
    is_dry: bool = False,
) -> None:
    """Overwrite a free volume."""
    _refuse(verdicts, f"volume {pool}/{volume} is not wiped")
    if not is_dry:
        volumes.wipe(conn, pool, volume, algorithm)


def delete_snapshots(
    conn: Any, vm: str, names: Any, verdicts: Iterable[tuple[str, Verdict]]
) -> dict[str, Any]:
    """Delete snapshots; the verdicts are on the files that libvirt merges and removes."""
    refuse_snapshots(vm, verdicts)
    return snapshots.delete(conn, vm, names)


def revert(
    conn: Any,
    vm: str,
    plan: snapshots.RevertPlan,
    verdicts: Iterable[tuple[str, Verdict]],
    *,
    with_cleanup: bool,
) -> dict[str, Any]:
    """Revert to a snapshot; the verdicts are on the files that libvirt writes and removes."""
    refuse_snapshots(vm, verdicts)
    return snapshots.revert(conn, vm, plan, with_cleanup=with_cleanup)


def _refuse(verdicts: Iterable[Verdict], outcome: str) -> None:
    for verdict in verdicts:
        verdict.refuse(outcome)


def refuse_snapshots(vm: str, verdicts: Iterable[tuple[str, Verdict]]) -> None:
    """Raise LibvirtRefused if a file of a VM's snapshots is not free."""
    for name, verdict in verdicts:
        outcome = f"file {verdict.path} of snapshot {name!r} of VM {vm!r} stays as it is"
        verdict.refuse(outcome, LibvirtRefused)
