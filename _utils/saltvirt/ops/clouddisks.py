"""Which disks stay of a VM that salt-cloud removes, as those in the trash are based on them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saltvirt import config
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.kvm import host, volumes
from saltvirt.ops import storage, trash


def needed(conn: Any, settings: HostSettings, name: str, paths: Sequence[str]) -> set[str]:
    """
    Return those of a VM's files that a disk in the trash, or another VM's, is based on.

    Raises StorageError if nobody here can tell.
    """
    # Records and files are root's.
    if not config.is_local(settings.uri) or os.geteuid() != 0:
        _refuse_unseen(conn, name)
        return set()
    for entry, why in trash.unknown(settings).items() if paths else ():
        raise StorageError(f"nobody knows what entry {entry!r} of the trash needs: {why}")
    folders = {*storage.folders(conn, settings), *(Path(path).parent for path in paths)}
    known = {*trash.below(settings), *trash.beside(folders), *storage.based(conn, but=name)}
    return {path for path in paths if storage.known_as(path, known) is not None}


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
