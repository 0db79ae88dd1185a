"""Checks before a disk is written, copied or removed; a guest may have written its header."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, hostfacts, reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import anybytes, volumes
from saltvirt.storage import diskpaths, policies, sharing, trash, usage
from saltvirt.storage.images import validation
from saltvirt.storage.verdict import Verdict
from saltvirt.xml.storage import pooldisk, storagevolume

_seeded: ContextVar[str | None] = ContextVar("_seeded", default=None)


@contextmanager
def allow_seeding(path: str | Path) -> Iterator[None]:
    """Let a function that the user named write to its disk during the block."""
    token = _seeded.set(os.path.realpath(path))
    try:
        yield
    finally:
        _seeded.reset(token)


def opened_format(settings: HostSettings, path: str | Path) -> str:
    """
    Return the format of a guest's disk; raise if this host must not write to the disk.

    Checks :func:`saltvirt.storage.diskpaths.opened_format`, and that the write spoils nothing else:
    see ``write`` in :mod:`saltvirt.storage.policies`.
    """
    path = str(path)
    fmt = diskpaths.opened_format(settings, path)
    if config.is_local(settings.uri) and not connect.why_missing():
        with connect.open_connection(settings) as conn:
            verdict = _judge_write(conn, settings, path)
    else:
        verdict = _judge_write(None, settings, path)
    verdict.refuse(f"{path} is not written to")
    return fmt


def _judge_write(conn: Any, settings: HostSettings, path: str) -> Verdict:
    verdict = usage.index(conn, settings, beside_files=[path]).verdict(policies.WRITE, path)
    # The record of the running build names the disk that its function seeds.
    is_seeded = os.path.realpath(path) == _seeded.get()
    return verdict.without(policies.COMING) if is_seeded else verdict


# Formats with headers that may name other files, and that are not parsed here.
_NAMING_FORMATS = ("cow", "qcow", "qed", "vmdk")


def refuse_disguised(conn: Any, settings: HostSettings, pool: str, volume: str) -> None:
    """
    Raise StorageError if a copy of a volume could contain files of the host.

    A guest can write a qcow2 header into its raw disk: after a refresh of the pool libvirt takes
    the disk for qcow2, and copies any file that the header names. The definition of a VM tells the
    volume's true format. The header of a volume without a VM may name only volumes and images.
    """
    description = storagevolume.read(anybytes.read_volume_xml(volumes.lookup(conn, pool, volume)))
    if not storagevolume.has_header(description.format) or not description.path:
        return
    fmt = lifecycle.disk_format(conn, description.path)
    if fmt not in (None, description.format):
        raise StorageError(
            f"volume {pool}/{volume} is {fmt} to the VM that has it, and libvirt takes it for "
            f"{description.format} by what is in it, which its guest may have written: a copy "
            "could have files of this host in it; copy the file itself (virt.volume_download)"
        )
    if fmt is None and description.format in _NAMING_FORMATS:
        raise StorageError(
            f"volume {pool}/{volume} is {description.format}, which may name other files of this "
            "host: make it qcow2 by qemu-img convert, once you know what it names, or copy the "
            "file itself (virt.volume_download)"
        )
    is_here = config.is_local(settings.uri) and os.path.isfile(description.path)
    if fmt is None and description.format == "qcow2" and is_here:
        _refuse_references(conn, settings, f"volume {pool}/{volume}", description.path)


def _refuse_references(conn: Any, settings: HostSettings, label: str, path: str) -> None:
    below = [*diskpaths.backing_below(settings), *diskpaths.folders(conn, settings)]
    below += [Path(path).parent, *_devices(conn)]
    try:
        for file_path in diskpaths.chain(path):
            validation.refuse_references(file_path, backing_below=below)
    except (ImageError, OSError) as exc:
        raise StorageError(f"{label} cannot be copied: {exc}") from exc


def _devices(conn: Any) -> Iterator[str]:
    """Yield the devices in pools that are no folders, as an overlay may be based on a device."""
    for name, pool in hostfacts.pools(conn).items():
        if pool["active"] and pool["type"] not in pooldisk.FILES:
            libvirt_volumes = conn.storagePoolLookupByName(name).listAllVolumes()
            yield from (
                path
                for libvirt_volume in libvirt_volumes
                if (path := anybytes.text(libvirt_volume.path)).startswith("/")
            )


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
