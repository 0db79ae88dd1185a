"""Tell another host whether this host uses the files it is about to remove: ``virt.file_users``."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, terminal
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import lifecycle
from saltvirt.placement.answers import FileUsers
from saltvirt.storage import policies, sharing, usage


def file_users(
    conn: Any, settings: HostSettings, paths: object, uuid: object = None
) -> dict[str, FileUsers]:
    """
    Return ``{path: users on this host}``.

    uuid
        The VM that another host removes: its kept definition here is no user. Defaults to none.
    """
    file_paths = arguments.paths("paths", paths)
    removed_uuid = None if uuid is None else arguments.uuid("uuid", uuid)
    name = None if removed_uuid is None else lifecycle.name_of(conn, removed_uuid)
    excluded_vms = [name] if name is not None and _is_kept_definition(conn, name) else []
    seen_folders = _find_seen_folders(settings, file_paths)
    index = usage.index(
        conn, settings, excluded_vms=excluded_vms, searched_folders=seen_folders, uuid=removed_uuid
    )
    verdicts = index.verdicts(policies.ASKED, file_paths)
    return {
        path: FileUsers(
            used_by=[terminal.escape(reference.reason) for reference in verdict.used_by],
            doubts=[terminal.escape(reason) for _source, reason in verdict.doubts],
        )
        for path, verdict in verdicts.items()
    }


def _is_kept_definition(conn: Any, name: str) -> bool:
    """Return whether a VM is only a definition kept after a move: such a VM uses no files."""
    return lifecycle.moved_to(conn, name) is not None and not lifecycle.is_active(conn, name)


def _find_seen_folders(settings: HostSettings, paths: Iterable[str]) -> set[Path]:
    """
    Return the shared folders of files that another host removes.

    The removing host searches these folders itself. It may not see other shared folders of this
    host.
    """
    folders = {Path(os.path.realpath(path)).parent for path in paths if path.startswith("/")}
    return {folder for folder in folders if sharing.is_shared(settings, folder)}
