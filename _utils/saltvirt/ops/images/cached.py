"""The cached images of a host: what is there, who uses it, fetch one, remove what nobody uses."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt import arguments, terminal
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, StorageError
from saltvirt.image import cache, removal
from saltvirt.ops import reservations
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.verdict import Reference


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
    for path, reference in usage.index(conn, settings).every(policies.PRUNE):
        digest = cache.digest_of(settings, path)
        if digest:
            out.setdefault(digest, set()).add(_shown(reference))
    return out


def _shown(reference: Reference) -> str:
    in_trash = {
        policies.TRASH: f"{reference.owner} in the trash",
        policies.OTHER_TRASH: "another host's entry in the trash",
    }
    # The name of a file need not be text.
    return terminal.escaped(in_trash.get(reference.source, reference.owner))


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
    if not is_dry and sharing.is_shared(settings, cache.where(settings)):
        raise StorageError(
            f"the images in {cache.where(settings)} are on storage that other hosts see, and VMs "
            "there may need them; this host cannot tell; ask all hosts: salt-run virt.image_prune"
            f"{sharing.UNLESS_OWN}"
        )
    removal.note_lost(settings)
    with reservations.host_lock(settings):
        known, used, unused = _seen(conn, settings, digests)
        if is_dry:
            return _said({one: known[one]["file_bytes"] for one in unused}, used)
        drop = dropping(conn, settings)
        done = removal.remove(settings, unused, lambda: users(conn, settings), drop)
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


def end(conn: Any, settings: HostSettings, digests: Collection[str]) -> dict[str, Any]:
    """Remove those images of :func:`begin`, keep the others; return what :func:`prune` does."""
    removal.keep_all_but(settings, digests)
    with reservations.host_lock(settings):
        try:
            _refuse_unknown(conn, settings)
        except StorageError:
            removal.keep_all_but(settings, ())
            raise
        used = users(conn, settings)
        done = removal.end(settings, digests, used, dropping(conn, settings))
    return _said(done.removed, done.kept)


def dropping(conn: Any, settings: HostSettings) -> Callable[[str], None]:
    """Return what removes the file of a cached image that nothing on this host needs."""
    index = usage.index(conn, settings)
    # Read now: while an image has no note any more, another host may fetch it into this folder.
    index.references(policies.PRUNE)

    def drop(path: str) -> None:
        door.remove(index.verdict(policies.PRUNE, path))

    return drop


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
    usage.index(conn, settings).refuse_doubts(policies.PRUNE, "no image is removed")
