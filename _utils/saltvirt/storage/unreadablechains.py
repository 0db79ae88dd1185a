"""VMs with a disk whose backing chain cannot be read: any file may be below that disk."""

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.image import cache
from saltvirt.kvm import host, lifecycle, query
from saltvirt.ops import storage
from saltvirt.xml import read

# What a name in a header is that leads to a network, once it is taken for a path.
_NETWORK = re.compile("/([a-z][a-z+]*:/|(nbd|rbd|sheepdog):)")


def reasons(conn: Any, settings: HostSettings, but: str | None = None) -> dict[str, str]:
    """
    Return ``{VM: why, and what to do}`` of the VMs whose backing chains cannot be read.

    but
        The VM that is left out. Defaults to none.

    A definition that this host kept of a VM that has moved needs nothing here.
    """
    known = query.definitions(conn, with_next=True)
    kept = {*_kept(conn, known), but}
    # The last is what is said: what libvirt has not loaded comes before all.
    found = {
        **{name: _no_pool(name, volume) for name, volume in _of_no_pool(conn, known)},
        **{name: _no_file(name, path, why) for name, path, why in _away(conn, settings)},
    }
    return {
        **{name: why for name, why in found.items() if name not in kept},
        **{name: why for name, why in storage.not_loaded(conn).items() if name != but},
    }


def _no_file(name: str, path: str, why: str) -> str:
    return (
        f"nobody knows what disk {path} of VM {name!r} is based on, as it {why}; or if it is gone "
        "for good, remove that VM (virt.purge), or the disk from it (virt.update)"
    )


def _no_pool(name: str, volume: str) -> str:
    return (
        f"nobody knows what volume {volume} of VM {name!r} is based on, as this host has no such "
        "pool: define it again (virt.pool_running); or if it is gone for good, remove that VM "
        "(virt.purge), or the disk from it (virt.update)"
    )


def _kept(conn: Any, known: Iterable[query.Definition]) -> Iterator[str]:
    for one in known:
        # Somebody may have started it all the same.
        is_noted = read.ours(one.root)["moved_to"] is not None
        if is_noted and not lifecycle.is_active(conn, one.name):
            yield one.name


def _away(conn: Any, settings: HostSettings) -> Iterator[tuple[str, str, str]]:
    """Yield VMs, each with a file that may have others below it and is out of reach, and why."""
    overlays = lifecycle.overlays(conn)
    for name, paths in sorted(lifecycle.disks(conn).items()):
        for path in (one for one in sorted(paths & overlays) if one.startswith("/")):
            yield from ((name, one, why) for one, why in of_disk(settings, path))


def of_disk(
    settings: HostSettings, path: str, home: Path | None = None
) -> Iterator[tuple[str, str]]:
    """
    Yield ``(file, why, and what to do)`` of a disk and what is below it, if it is out of reach.

    home
        The folder from which the names in its header are seen, if that is not its own.
    """
    for one, why in storage.walked(path, home):
        # An image itself is based on nothing, and what a network has is no file.
        if cache.digest_of(settings, one) is not None or _NETWORK.search(one):
            continue
        if not os.path.exists(one):
            yield one, "is not there: mount its file system"
        elif why is not None:
            yield one, f"cannot be read ({why}): let root of this host read it, or mend it"


def _of_no_pool(conn: Any, known: Iterable[query.Definition]) -> Iterator[tuple[str, str]]:
    """Yield VMs, each with a volume that may have others below it, of a pool that is gone."""
    pools = host.pools(conn)
    for one in known:
        for disk in (disk for root in (one.root, one.next_root) for disk in _volumes(root)):
            if disk["path"].partition("/")[0] not in pools:
                yield one.name, disk["path"]


def _volumes(root: ET.Element | None) -> Iterator[dict[str, Any]]:
    for disk in [] if root is None else read.disk_sources(root):
        if disk["type"] == "volume" and disk["path"] and disk["format"] != "raw":
            yield disk
