"""The cached images of a host: what is there, who uses it, fetch one, remove what nobody uses."""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt import arguments, terminal
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, StorageError
from saltvirt.image import cache, removal
from saltvirt.kvm import lifecycle, query
from saltvirt.ops import outofreach, reservations, storage, trashbases
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.xml import read

# ``{VM: paths}``
_Disks = Mapping[str, set[str]]


def listed(conn: Any, settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return ``{digest: {source, format, virtual_bytes, file_bytes, users, os, ...}}``.

    ``users`` are VMs by name, and overlays in folders of VMs that belong to no VM by path;
    ``os``, ``has_minion`` and ``has_cloud_init`` are None until the image was looked into.
    """
    used = users(conn, settings)
    out = {}
    for digest, note in cache.every(settings).items():
        out[digest] = {
            "source": note["source"],
            "format": note["format"],
            "virtual_bytes": note["size_bytes"],
            "file_bytes": note["stat"][0],
            "users": sorted(used.get(digest, ())),
            **looked(cache.look_path(settings, digest)),
        }
    return out


def looked(look: Path) -> dict[str, Any]:
    """Return what was found in an image, of the file that keeps it; None each if nobody looked."""
    said = json.loads(look.read_text()) if look.exists() else {}
    system = said.get("os")
    return {
        # An image may call its system as it likes.
        "os": terminal.one_line(system) if isinstance(system, str) else None,
        **{key: said.get(key) for key in ("has_minion", "has_cloud_init")},
    }


def users(conn: Any, settings: HostSettings) -> dict[str, set[str]]:
    """Return ``{digest: names}``: which VMs and files are based on which cached image."""
    out: dict[str, set[str]] = {}
    # Once: what a VM is given after this is a file of no VM, which is wanted too.
    folders, disks = storage.folders(conn, settings), lifecycle.disks(conn)
    for user, files in (*_of_vms(conn, disks), *_of_no_vm(folders, disks)):
        for digest in _cached(settings, files):
            out.setdefault(digest, set()).add(user)
    return _with_trash(settings, folders, out)


def _of_vms(conn: Any, disks: _Disks) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield VMs, each with a disk and what is below that, or with a file that it boots from."""
    # In this order: the format of a disk that is known is known too.
    overlays = lifecycle.overlays(conn)
    for name, paths in disks.items():
        for path in paths:
            # Into a raw disk its guest may have written what looks like the header of an overlay.
            yield name, storage.chain(path) if path in overlays else [path]
    # What was fetched to boot from is in the cache itself.
    for one in query.definitions(conn, with_next=True):
        for root in (one.root, one.next_root):
            if root is not None:
                yield one.name, read.boot_files(root)


def _of_no_vm(folders: Iterable[Path], disks: _Disks) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the files of folders that are no VM's disks, each with what is below it."""
    known = {os.path.realpath(path) for paths in disks.values() for path in paths}
    for path in (str(one) for folder in folders for one in folder.iterdir()):
        if os.path.realpath(path) not in known:
            yield path, storage.chain(path)


def _with_trash(
    settings: HostSettings, folders: list[Path], used: dict[str, set[str]]
) -> dict[str, set[str]]:
    """Return who uses which image, with what may be brought back from the trash."""
    # Hosts that share a folder have records of their own.
    known = dict.fromkeys(trashbases.beside(folders), "another host's entry")
    for path, entry in {**known, **trashbases.below(settings)}.items():
        for digest in _cached(settings, [path]):
            used.setdefault(digest, set()).add(f"{entry} in the trash")
    return used


def _cached(settings: HostSettings, paths: Iterable[str]) -> Iterator[str]:
    """Yield the digests of those files that are cached images."""
    found = (cache.digest_of(settings, one) for one in paths)
    yield from (digest for digest in found if digest)


def pull(context: Context, image: str, saltenv: str, image_hash: object = None) -> str | None:
    """Have an image in the cache before a VM wants it; return its digest."""
    arguments.text("image", image)
    got = fetch.obtain(context, image, saltenv, image_hash=image_hash)
    return cache.digest_of(context.settings, got.path)


def named(settings: HostSettings, digests: object) -> list[str] | None:
    """
    Return the digests that somebody has typed, None if nobody has typed any.

    What is shorter, as tables show it, is the beginning of one that is here; of a whole one that is
    not here there is nothing to be removed.
    """
    if digests is None:
        return None
    known, out = cache.every(settings), []
    for one in arguments.names("digests", digests):
        found = [digest for digest in known if digest.startswith(one)]
        if len(found) != 1 and not cache.is_digest(one):
            many = "more than one image here begins" if found else "no image here begins"
            raise BadArgument("digests", f"{many} with {one!r}; see virt.images")
        out += found[:1]
    return out


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
    removal.note_lost(settings)
    with reservations.host_lock(settings):
        known, used, unused = _seen(conn, settings, digests)
        if is_dry:
            return _said({one: known[one]["file_bytes"] for one in unused}, used)
        done = removal.remove(settings, unused, lambda: users(conn, settings))
    return _said(done.removed, {**used, **done.kept})


def begin(conn: Any, settings: HostSettings, digests: Iterable[str] | None) -> dict[str, Any]:
    """Begin what :func:`end` ends, as :func:`prune` would; return ``begun`` as well."""
    removal.note_lost(settings)
    with reservations.host_lock(settings):
        _known, used, unused = _seen(conn, settings, digests)
        begun = removal.begin(settings, unused)
    return {**_said({}, used), "begun": begun}


def used_now(conn: Any, settings: HostSettings, digests: Iterable[str]) -> dict[str, Any]:
    """Return what of some images is ``kept``, as something on this host uses it."""
    _refuse_unknown(conn, settings)
    found = users(conn, settings)
    return _said({}, {one: found[one] for one in digests if one in found})


def end(settings: HostSettings, digests: Collection[str]) -> dict[str, Any]:
    """Remove those images of :func:`begin`, keep the others; return what :func:`prune` does."""
    removal.keep_all_but(settings, digests)
    done = removal.end(settings, digests, {})
    return _said(done.removed, done.kept)


def _seen(
    conn: Any, settings: HostSettings, digests: Iterable[str] | None
) -> tuple[dict[str, dict[str, Any]], dict[str, Collection[str]], list[str]]:
    """Return the images of this host, who uses which, and which nobody uses."""
    building = sorted(reservations.coming(settings))
    if building:
        raise StorageError(
            f"{', '.join(building)} is being built or moved here; try again when that is over"
        )
    _refuse_unknown(conn, settings)
    known = listed(conn, settings)
    return known, *_split(known, known if digests is None else digests)


def _said(
    removed: Mapping[str, int], used: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Any]]:
    return {
        "removed": dict(removed),
        "kept": {one: f"used by {', '.join(sorted(who))}" for one, who in used.items()},
    }


def _split(
    known: Mapping[str, Mapping[str, Any]], digests: Iterable[str]
) -> tuple[dict[str, Collection[str]], list[str]]:
    """Return which images are used, ``{digest: users}``, and which are not; others are unknown."""
    of_all = {one: known[one]["users"] for one in digests if one in known}
    return {one: who for one, who in of_all.items() if who}, [
        one for one, who in of_all.items() if not who
    ]


def _refuse_unknown(conn: Any, settings: HostSettings) -> None:
    for why in outofreach.reasons(conn, settings).values():
        raise StorageError(why)
    for entry, why in trashbases.unknown(settings).items():
        raise StorageError(f"nobody knows what entry {entry!r} of the trash needs: {why}")
