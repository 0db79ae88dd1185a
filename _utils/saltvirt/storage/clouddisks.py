"""Disks that stay when salt-cloud removes their VM, because other disks are based on them."""

import os
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts, reservations
from saltvirt.libvirt.storage import volumes
from saltvirt.storage import policies, sharing, trash, usage


def hold_host_files(settings: HostSettings) -> AbstractContextManager[None]:
    """Keep this host from taking files into use, or into the trash, during the block."""
    return reservations.host_lock(settings) if _can_read_files(settings) else nullcontext()


def find_needed(conn: Any, settings: HostSettings, name: str, paths: Sequence[str]) -> set[str]:
    """
    Return the files of a VM that something else needs; call it under the host's lock.

    Raises StorageError if this host cannot tell, or if other hosts must be asked.
    """
    if not _can_read_files(settings):
        _refuse_unreadable_trash(conn, name)
        return set()
    index = usage.index(conn, settings, excluded_vms=[name], removed_files=paths)
    verdicts = index.verdicts(policies.CLOUD, paths)
    sharing.refuse_unasked(
        verdicts.values(), "nothing is removed", f"salt-run virt.purge {shlex.quote(name)}"
    )
    for verdict in verdicts.values():
        if verdict.doubts:
            verdict.refuse(f"VM {name!r} is not removed")
    return {path for path, verdict in verdicts.items() if verdict.used_by}


def _can_read_files(settings: HostSettings) -> bool:
    # Only root can read the records and the files.
    return config.is_local(settings.uri) and os.geteuid() == 0


def _refuse_unreadable_trash(conn: Any, name: str) -> None:
    """Raise StorageError if a host has a trash: its files cannot be read from here."""
    for pool, pool_info in sorted(hostfacts.pools(conn).items()):
        # libvirt lists folders as volumes, too.
        if pool_info["active"] and trash.FOLDER in volumes.names(conn, pool):
            raise StorageError(
                f"disks in the trash of the host of VM {name!r} (pool {pool!r}) may be based on "
                "its disks, which only root of that host can tell, so nothing is removed; remove "
                f"it there: salt HOST virt.purge {name}, or empty the trash: virt.trash_empty"
            )
