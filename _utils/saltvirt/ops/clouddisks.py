"""Which disks stay of a VM that salt-cloud removes, as others are based on them."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from saltvirt import config
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.kvm import host, volumes
from saltvirt.ops import ownvolumes, snapshotted, storage, trash, trashbases


def alone(settings: HostSettings) -> AbstractContextManager[None]:
    """Have nobody here begin to use files, or move them to the trash, in the block."""
    return ownvolumes.none_begun(settings) if _is_seen(settings) else nullcontext()


def needed(conn: Any, settings: HostSettings, name: str, paths: Sequence[str]) -> set[str]:
    """
    Return those of a VM's files that a disk in the trash, or another VM's, is based on.

    It is called under the host's lock. Another VM's are its snapshots, and the disks of one that is
    made or goes, too. Raises StorageError if nobody here can tell.
    """
    if not _is_seen(settings):
        _refuse_unseen(conn, name)
        return set()
    for entry, why in trashbases.unknown(settings).items() if paths else ():
        raise StorageError(f"nobody knows what entry {entry!r} of the trash needs: {why}")
    folders = {*storage.folders(conn, settings), *(Path(path).parent for path in paths)}
    known = {*ownvolumes.below_records(settings), *storage.based(conn, but=name)}
    known |= snapshotted.needed(conn, but=name).keys()
    known |= {*trashbases.below(settings), *trashbases.beside(folders)}
    return {path for path in paths if storage.known_as(path, known) is not None}


def _is_seen(settings: HostSettings) -> bool:
    # Records and files are root's.
    return config.is_local(settings.uri) and os.geteuid() == 0


def _refuse_unseen(conn: Any, name: str) -> None:
    """Raise StorageError if a host has a trash whose files cannot be read from here."""
    for pool, it in sorted(host.pools(conn).items()):
        # libvirt calls folders volumes, too.
        if it["active"] and trash.FOLDER in volumes.names(conn, pool):
            raise StorageError(
                f"disks in the trash of the host of VM {name!r} (pool {pool!r}) may be based on "
                "its disks, which only root of that host can tell, so nothing is removed; remove "
                f"it there: salt HOST virt.purge {name}, or empty the trash: virt.trash_empty"
            )
