"""
Departures: VMs that are leaving this host, and what is still here of those that have left.

A departure is a file, locked by the job that moves the VM. If that job is killed, libvirt goes on
with the migration by itself; then the file says what to remove here once the VM is there.
"""

import json
import logging
from contextlib import contextmanager
from pathlib import Path

from saltvirt import locks
from saltvirt.errors import NameTaken, StorageError
from saltvirt.kvm import lifecycle, migrate
from saltvirt.ops import purge, storage

log = logging.getLogger(__name__)


def _folder(settings):
    return Path(settings.state_dir) / "departures"


@contextmanager
def departing(conn, settings, name):
    """Yield how to note what a VM leaves; raise NameTaken if another job moves it, or has begun."""
    settle(conn, settings)
    path, begun = _folder(settings) / f"{name}.json", []
    with locks.held(path, wait=False, is_done=lambda: not begun) as handle:
        if handle is None:
            raise NameTaken(f"VM {name!r} is being migrated by another job at this moment")
        handle.seek(0)
        if handle.read():
            begun.append("by a job that was killed")
            raise NameTaken(f"a move of VM {name!r}, whose job was killed, is not settled; "
                            "wait until both hosts answer and libvirt has ended it")  # fmt: skip

        def note(uuid, uri, paths):
            handle.truncate(0)
            json.dump({"name": name, "uuid": uuid, "uri": uri, "paths": sorted(paths)}, handle)
            handle.flush()

        yield note


def settle(conn, settings):
    """
    Remove what is still here of VMs whose job was killed, if the other host has them.

    Nothing is removed as long as the other host cannot be asked or does not have the VM.
    """
    for path in sorted(_folder(settings).glob("*.json")):
        ending = []
        with locks.held(path, wait=False, is_done=lambda: bool(ending)) as handle:  # noqa: B023
            if handle is not None and _is_settled(conn, handle):
                ending.append("well")


def _is_settled(conn, handle):
    handle.seek(0)
    text = handle.read()
    return not text or _settled(conn, json.loads(text))


def _settled(conn, left):
    name = left["name"]
    if lifecycle.is_defined(conn, name):
        return not migrate.status(conn, name)
    if not _has_arrived(left):
        return False
    clear(name, set(left["paths"]) - lifecycle.disks_in_use(conn))
    return True


def _has_arrived(left):
    try:
        with migrate.target(left["uri"]) as other:
            return lifecycle.has_arrived(other, left["uuid"])
    except migrate.MigrationFailed as exc:
        log.warning("files of %s stay for now: %s", left["name"], exc)
        return False


def clear(name, paths):
    """Remove what a VM that is elsewhere now had here alone."""
    for path in paths:
        try:
            storage.remove(path)
        except OSError as exc:
            why = f"VM {name!r} has moved, but {path} is still here: {exc.strerror}"
            raise StorageError(why) from exc
    purge.remove_log(name)
