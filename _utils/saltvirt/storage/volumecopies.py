"""Check that a volume may be copied: libvirt trusts headers, which a guest may have written."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import anybytes, volumes
from saltvirt.storage import diskpaths
from saltvirt.storage.images import validation
from saltvirt.xml.storage import pooldisk, storagevolume

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
