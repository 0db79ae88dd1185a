"""What this host says of files that another host is to remove: ``virt.file_users``."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltvirt import arguments, terminal
from saltvirt.config import HostSettings
from saltvirt.kvm import lifecycle
from saltvirt.placement.answers import FileUsers
from saltvirt.storage import policies, sharing, usage


def file_users(
    conn: Any, settings: HostSettings, paths: object, uuid: object = None
) -> dict[str, FileUsers]:
    """
    Return what here needs some files, by their paths.

    uuid
        The VM that is removed: a definition that this host kept of it needs nothing. Defaults to
        none.
    """
    asked = arguments.paths("paths", paths)
    removed = None if uuid is None else arguments.uuid("uuid", uuid)
    name = None if removed is None else lifecycle.name_of(conn, removed)
    but = [name] if name is not None and _is_kept(conn, name) else []
    seen = _seen_there(settings, asked)
    index = usage.index(conn, settings, but=but, seen=seen, uuid=removed)
    verdicts = index.verdicts(policies.ASKED, asked)
    return {
        path: FileUsers(
            used_by=[terminal.escaped(reference.reason) for reference in verdict.used_by],
            doubts=[terminal.escaped(reason) for _source, reason in verdict.doubts],
        )
        for path, verdict in verdicts.items()
    }


def _is_kept(conn: Any, name: str) -> bool:
    """Return whether a VM is a definition that a move left: any other one may need its files."""
    return lifecycle.moved_to(conn, name) is not None and not lifecycle.is_active(conn, name)


def _seen_there(settings: HostSettings, paths: Iterable[str]) -> set[Path]:
    """
    Return the folders that the host which removes files looks through itself.

    It looks beside each of them. Other folders that this host has on shared storage it may not see.
    """
    folders = {Path(os.path.realpath(path)).parent for path in paths if path.startswith("/")}
    return {folder for folder in folders if sharing.is_shared(settings, folder)}
