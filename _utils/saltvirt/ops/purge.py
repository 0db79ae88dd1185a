"""Remove a VM with everything that was made for it, and never anything else."""

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from saltvirt import records
from saltvirt.config import HostSettings
from saltvirt.errors import NameTaken, NoSuchVm, StorageError
from saltvirt.image import cache
from saltvirt.kvm import lifecycle
from saltvirt.ops import reservations, storage, unfinished
from saltvirt.ops.seeding import submission
from saltvirt.xml import read


def purge(
    conn: Any, settings: HostSettings, name: str, *, dirs: bool = False, removables: bool = False
) -> None:
    """
    Remove a VM: stop it, forget it, remove its disks, seed, console log and unused token.

    A disk that another VM uses, or that another VM's disk is based on, stays, and so does
    every cached image. ``removables`` removes cdrom and floppy images too; ``dirs`` removes the
    folders that are empty afterwards. One that was interrupted is finished by the next.
    """
    with ExitStack() as holding:
        with reservations.host_lock(settings):
            reservations.refuse_moving(settings, name)
            if name in reservations.coming(settings):
                raise NameTaken(f"VM {name!r} is being built on this host; wait until that is over")
            was_begun = unfinished.settle_one(conn, settings, name)
            held = holding.enter_context(records.held(reservations.folder(settings), "purge", name))
            if held is None:
                raise NameTaken(f"VM {name!r} is being purged on this host by another job")
            if not lifecycle.is_defined(conn, name):
                if not was_begun:
                    raise NoSuchVm(name)
                cache.sweep(settings)
                return
            paths = own_files(conn, settings, name, removables)
            domain = lifecycle.uuid(conn, name)
            held.begin(uuid.uuid4().hex, "removing", uuid=domain, paths=paths)
        _remove(conn, settings, name, paths)
        reservations.end(settings, held)
    if dirs:
        _remove_empty(settings, paths)


def _remove(conn: Any, settings: HostSettings, name: str, paths: list[str]) -> None:
    lifecycle.destroy(conn, name)
    lifecycle.undefine(conn, name)
    submission.forget(settings, name)
    # The definition must not come back with a crash when the files are gone.
    storage.settle_definitions()
    unfinished.remove_log(name)
    try:
        unfinished.remove(conn, settings, paths)
    except StorageError as exc:
        raise StorageError(f"the VM is gone, but {exc}; purge it once more then") from exc


def own_files(conn: Any, settings: HostSettings, name: str, removables: bool) -> list[str]:
    """Return the files that belong to this VM alone."""
    root = read.domain(lifecycle.xml(conn, name))
    used = storage.in_use(conn, but=name)
    out = []
    for disk in read.disk_sources(root):
        path = disk["path"]
        is_removable = disk["device"] in ("cdrom", "floppy")
        if path is None or disk["type"] != "file" or (is_removable and not removables):
            continue
        if not storage.is_shared(settings, path, used):
            out.append(path)
    return out


def _remove_empty(settings: HostSettings, paths: list[str]) -> None:
    for folder in {Path(path).parent for path in paths} - {Path(settings.images)}:
        if not any(folder.iterdir()):
            folder.rmdir()
