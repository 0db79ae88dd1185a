"""What this host says of files that another host is to remove: ``virt.file_users``."""

from typing import Any

from saltvirt import arguments, terminal
from saltvirt.config import HostSettings
from saltvirt.kvm import lifecycle
from saltvirt.placement.answers import FileUsers
from saltvirt.storage import policies, sharing, usage
from saltvirt.storage.verdict import Reference


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
    name = None if uuid is None else lifecycle.name_of(conn, arguments.uuid("uuid", uuid))
    but = [name] if name is not None and _is_kept(conn, name) else []
    index = usage.index(conn, settings, but=but)
    verdicts = index.verdicts(policies.ASKED, asked)
    return {
        path: FileUsers(
            used_by=[
                terminal.escaped(reference.reason)
                for reference in verdict.used_by
                if not _is_seen_there(settings, reference)
            ],
            doubts=[terminal.escaped(reason) for _source, reason in verdict.doubts],
        )
        for path, verdict in verdicts.items()
    }


def _is_kept(conn: Any, name: str) -> bool:
    """Return whether a VM is a definition that a move left: any other one may need its files."""
    return lifecycle.moved_to(conn, name) is not None and not lifecycle.is_active(conn, name)


def _is_seen_there(settings: HostSettings, reference: Reference) -> bool:
    """Return whether the host that removes a file sees the file that is based on it."""
    return reference.source == policies.FILE and sharing.is_shared(settings, reference.owner)
