"""What this host says of files that another host is to remove: ``virt.file_users``."""

from typing import Any

from saltvirt import arguments, terminal
from saltvirt.config import HostSettings
from saltvirt.kvm import lifecycle
from saltvirt.placement.answers import FileUsers
from saltvirt.storage import policies, usage


def file_users(
    conn: Any, settings: HostSettings, paths: object, uuid: object = None
) -> dict[str, FileUsers]:
    """
    Return what here needs some files, by their paths.

    uuid
        A VM whose definitions need nothing. Defaults to none.
    """
    asked = arguments.names("paths", paths)
    name = None if uuid is None else lifecycle.name_of(conn, arguments.uuid("uuid", uuid))
    index = usage.index(conn, settings, but=[] if name is None else [name])
    verdicts = index.verdicts(policies.ASKED, asked)
    return {
        path: FileUsers(
            used_by=[terminal.escaped(reference.reason) for reference in verdict.used_by],
            doubts=[terminal.escaped(reason) for _source, reason in verdict.doubts],
        )
        for path, verdict in verdicts.items()
    }
