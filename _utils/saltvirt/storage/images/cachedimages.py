"""The cached images of a host and their users: list, fetch and prune them."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, ImageError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import reservations
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.images import cache, fetch, qcow2, removal, source
from saltvirt.storage.verdict import Reference


def list_images(conn: Any, settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return ``{digest: {source, format, virtual_bytes, file_bytes, users, os, ...}}``.

    ``users`` are names of VMs, and paths of overlays that belong to no VM; ``os``, ``has_minion``
    and ``has_cloud_init`` are None until the image was inspected.
    """
    users_by_digest = find_users(conn, settings)
    out = {}
    for digest, note in cache.read_notes(settings).items():
        out[digest] = {
            "source": note["source"],
            "format": note["format"],
            "virtual_bytes": note["size_bytes"],
            "file_bytes": note["stat"][0],
            "users": sorted(users_by_digest.get(digest, ())),
            **read_look(cache.inspection_path(settings, digest)),
        }
    return out


def read_look(look_path: Path) -> dict[str, Any]:
    """Return an image's content from its inspection file; None values without an inspection."""
    notes = json.loads(look_path.read_text()) if look_path.exists() else {}
    system = notes.get("os")
    return {
        # The image chooses this text.
        "os": terminal.one_line(system) if isinstance(system, str) else None,
        **{key: notes.get(key) for key in ("has_minion", "has_cloud_init")},
    }


def find_users(conn: Any, settings: HostSettings) -> dict[str, set[str]]:
    """Return ``{digest: names}`` of the VMs and files that use cached images."""
    out: dict[str, set[str]] = {}
    for path, reference in usage.index(conn, settings).all_references(policies.PRUNE):
        digest = cache.digest_of(settings, path)
        if digest:
            out.setdefault(digest, set()).add(_describe_user(reference))
    return out


def _describe_user(reference: Reference) -> str:
    in_trash = {
        policies.TRASH: f"{reference.owner} in the trash",
        policies.OTHER_TRASH: "another host's entry in the trash",
    }
    # A file's name need not be text.
    return terminal.escape(in_trash.get(reference.source, reference.owner))


def pull(context: Context, image: str, saltenv: str, image_hash: object = None) -> str | None:
    """Fetch an image into the cache before a VM needs it; return its digest."""
    arguments.text("image", image)
    validated_image = fetch.obtain(context, image, saltenv, image_hash=image_hash)
    return cache.digest_of(context.settings, validated_image.path)


def resolve_digests(settings: HostSettings, digests: object) -> list[str] | None:
    """
    Return the full digests of an operator's argument, None if it is None.

    A shortened digest, as in tables, must be the beginning of exactly one image here. A full digest
    of an image that is not here is left out.
    """
    if digests is None:
        return None
    notes_by_digest, out = cache.read_notes(settings), []
    for prefix in arguments.names("digests", digests):
        matches = [digest for digest in notes_by_digest if digest.startswith(prefix)]
        if len(matches) != 1 and not cache.is_digest(prefix):
            problem = "more than one image here begins" if matches else "no image here begins"
            raise BadArgument("digests", f"{problem} with {prefix!r}; see virt.images")
        out += matches[:1]
    return out


def prune(
    conn: Any, settings: HostSettings, digests: Iterable[str] | None, *, is_dry: bool
) -> dict[str, dict[str, Any]]:
    """
    Remove cached images that nothing on this host uses.

    Return ``{"removed": {digest: bytes}, "kept": {digest: reason}}``. Raise StorageError while a VM
    is being built here, as its disk may not exist yet, or if the usage of images is unknown.

    digests
        The images to remove; None for all.
    """
    if not is_dry and sharing.is_shared(settings, cache.folder_path(settings)):
        raise StorageError(
            f"the images in {cache.folder_path(settings)} are on storage that other hosts see, and "
            "VMs there may need them; this host cannot tell; ask all hosts: salt-run "
            f"virt.image_prune{sharing.UNLESS_OWN}"
        )
    removal.note_lost(settings)
    with reservations.host_lock(settings):
        images_by_digest, users_by_digest, unused_digests = _classify_images(
            conn, settings, digests
        )
        if is_dry:
            return _build_answer(
                {digest: images_by_digest[digest]["file_bytes"] for digest in unused_digests},
                users_by_digest,
            )
        drop = prepare_drop(conn, settings)
        result = removal.remove(settings, unused_digests, lambda: find_users(conn, settings), drop)
    return _build_answer(result.removed, {**users_by_digest, **result.kept_users})


def begin(conn: Any, settings: HostSettings, digests: Iterable[str] | None) -> dict[str, Any]:
    """Begin to remove images that :func:`prune` would, until :func:`end`; return also ``begun``."""
    removal.note_lost(settings)
    with reservations.host_lock(settings):
        _images, users_by_digest, unused_digests = _classify_images(conn, settings, digests)
        begun_digests = removal.begin(settings, unused_digests)
    return {**_build_answer({}, users_by_digest), "begun": begun_digests}


def find_used(conn: Any, settings: HostSettings, digests: Iterable[str]) -> dict[str, Any]:
    """Return which of some images are ``kept``, because something on this host uses them."""
    _refuse_unknown(conn, settings)
    users_by_digest = find_users(conn, settings)
    return _build_answer(
        {}, {digest: users_by_digest[digest] for digest in digests if digest in users_by_digest}
    )


def end(conn: Any, settings: HostSettings, digests: Collection[str]) -> dict[str, Any]:
    """Remove these images of :func:`begin`, keep the others; return the same as :func:`prune`."""
    removal.keep_all_but(settings, digests)
    with reservations.host_lock(settings):
        try:
            _refuse_unknown(conn, settings)
        except StorageError:
            removal.keep_all_but(settings, ())
            raise
        users_by_digest = find_users(conn, settings)
        result = removal.end(settings, digests, users_by_digest, prepare_drop(conn, settings))
    return _build_answer(result.removed, result.kept_users)


def prepare_drop(conn: Any, settings: HostSettings) -> Callable[[str], None]:
    """Return a function that removes a cached image's file if nothing on this host needs it."""
    index = usage.index(conn, settings)
    # Read now: once an image's note is gone, another host may fetch it anew into a shared folder.
    index.references(policies.PRUNE)

    def drop(path: str) -> None:
        door.remove(index.verdict(policies.PRUNE, path))

    return drop


def _classify_images(
    conn: Any, settings: HostSettings, digests: Iterable[str] | None
) -> tuple[dict[str, dict[str, Any]], dict[str, Collection[str]], list[str]]:
    """Return ``(images by digest, users by digest, unused digests)``."""
    busy_vms = sorted(reservations.read_coming_vms(settings))
    if busy_vms:
        raise StorageError(
            f"{', '.join(busy_vms)} is being built or moved here; try again when that is over"
        )
    _refuse_unknown(conn, settings)
    images_by_digest = list_images(conn, settings)
    chosen_digests = images_by_digest if digests is None else digests
    users_by_digest = {
        digest: images_by_digest[digest]["users"]
        for digest in chosen_digests
        if digest in images_by_digest
    }
    return (
        images_by_digest,
        {digest: user_names for digest, user_names in users_by_digest.items() if user_names},
        [digest for digest, user_names in users_by_digest.items() if not user_names],
    )


def _build_answer(
    bytes_by_digest: Mapping[str, int], users_by_digest: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Any]]:
    return {
        "removed": dict(bytes_by_digest),
        "kept": {
            digest: f"used by {', '.join(sorted(user_names))}"
            for digest, user_names in users_by_digest.items()
        },
    }


def _refuse_unknown(conn: Any, settings: HostSettings) -> None:
    usage.index(conn, settings).refuse_doubts(policies.PRUNE, "no image is removed")


def shown_images(conn: Any, settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return :func:`saltvirt.storage.images.cachedimages.list_images`, and golden images without a
    cached copy.

    ``virt.image_prune`` removes the cached copy of a golden image, never the image itself.
    """
    return {**dict(_golden_rows(settings)), **list_images(conn, settings)}


def _golden_rows(settings: HostSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``(digest, row)`` of golden images in the image folder with an indexed digest."""
    index = source.Index(cache.folder_path(settings) / "index.json")
    for path in sorted(Path(settings.images, "golden").glob("*.qcow2")):
        try:
            digest = source.remembered_digest(str(path), "base", {}, index)
            header = qcow2.read(path)
            file_bytes = path.stat().st_size
        except (ImageError, OSError):
            continue
        if digest is not None and header is not None:
            yield (
                digest,
                {
                    "source": f"{path} (golden image; the cache has no copy of it)",
                    "format": "qcow2",
                    "virtual_bytes": header.size_bytes,
                    "file_bytes": file_bytes,
                    "users": [],
                    **read_look(cache.inspection_path(settings, digest)),
                },
            )
