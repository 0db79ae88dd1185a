"""The cached images of a host: what is there, who uses it, fetch one, remove what nobody uses."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.image import cache
from saltvirt.kvm import lifecycle
from saltvirt.ops import reservations, storage, trash
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch


def listed(conn: Any, settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return ``{digest: {source, format, virtual_bytes, file_bytes, users, os, ...}}``.

    ``users`` are VMs by name, and overlays in the image folder that belong to no VM by path;
    ``os``, ``has_minion`` and ``has_cloud_init`` are None until the image was looked into.
    """
    used = users(conn, settings)
    out = {}
    for digest, note in cache.every(settings).items():
        look = cache.look_path(settings, digest)
        seen = json.loads(look.read_text()) if look.exists() else {}
        out[digest] = {
            "source": note["source"],
            "format": note["format"],
            "virtual_bytes": note["size_bytes"],
            "file_bytes": note["stat"][0],
            "users": sorted(used.get(digest, ())),
            **{key: seen.get(key) for key in ("os", "has_minion", "has_cloud_init")},
        }
    return out


def users(conn: Any, settings: HostSettings) -> dict[str, set[str]]:
    """Return ``{digest: names}``: which VMs and files are based on which cached image."""
    out: dict[str, set[str]] = {}
    # In this order: the format of a disk that is known is known too.
    disks, overlays, seen = lifecycle.disks(conn), lifecycle.overlays(conn), set()
    for name, paths in disks.items():
        for path in paths:
            seen.add(path)
            # Into a raw disk its guest may have written what looks like the header of an overlay.
            for digest in _cached(settings, storage.chain(path) if path in overlays else [path]):
                out.setdefault(digest, set()).add(name)
    for path in map(str, Path(settings.images).glob("*")):
        if path not in seen:
            for digest in _cached(settings, storage.chain(path)):
                out.setdefault(digest, set()).add(path)
    return _with_trash(settings, out)


def _with_trash(settings: HostSettings, used: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return who uses which image, with what may be brought back from the trash."""
    # Hosts that share the folder have records of their own.
    known = dict.fromkeys(trash.beside([Path(settings.images)]), "another host's entry")
    for path, entry in {**known, **trash.below(settings)}.items():
        for digest in _cached(settings, [path]):
            used.setdefault(digest, set()).add(f"{entry} in the trash")
    return used


def _cached(settings: HostSettings, paths: Iterable[str]) -> Iterator[str]:
    """Yield the digests of those files that are cached images."""
    found = (cache.digest_of(settings, one) for one in paths)
    yield from (digest for digest in found if digest)


def pull(context: Context, image: str, saltenv: str, image_hash: object = None) -> str | None:
    """Have an image in the cache before a VM wants it; return its digest."""
    got = fetch.obtain(context, image, saltenv, image_hash=image_hash)
    return cache.digest_of(context.settings, got.path)


def prune(
    conn: Any, settings: HostSettings, digests: Iterable[str] | None, *, is_dry: bool
) -> dict[str, dict[str, Any]]:
    """
    Remove cached images that nothing on this host uses.

    digests
        Only these; None for all.

    Returns ``{"removed": {digest: bytes}, "kept": {digest: why}}``. Raises StorageError while a VM
    is being built here: its disk may not be there yet; and if nobody can tell what one needs.
    """
    with reservations.host_lock(settings):
        building = sorted(reservations.coming(settings))
        if building:
            raise StorageError(
                f"{', '.join(building)} is being built or moved here; try again when that is over"
            )
        _refuse_unknown(conn, settings)
        known = listed(conn, settings)
        wanted = known if digests is None else [one for one in digests if one in known]
        kept = {
            one: f"used by {', '.join(known[one]['users'])}"
            for one in wanted
            if known[one]["users"]
        }
        out = {one: known[one]["file_bytes"] for one in wanted if one not in kept}
        if not is_dry:
            for digest in out:
                cache.remove(settings, digest)
    return {"removed": out, "kept": kept}


def _refuse_unknown(conn: Any, settings: HostSettings) -> None:
    for why in storage.not_loaded(conn).values():
        raise StorageError(why)
    for entry, why in trash.unreadable(settings).items():
        raise StorageError(f"nobody knows what entry {entry!r} of the trash needs: {why}")
