"""Empty files on the target of a move, which the source fills."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, files
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.undo import on_failure
from saltvirt.libvirt import hostfacts, reservations
from saltvirt.migration.host.arrivalplan import ComingFile
from saltvirt.storage import diskpaths, door, policies, sharing, usage
from saltvirt.storage.images import cache, tool
from saltvirt.storage.verdict import Verdict


def placeholder(path: Path) -> None:
    """Make an empty file; raise StorageError if it exists already."""
    try:
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def resize(path: str, size_bytes: int) -> None:
    """Set the size of an empty file."""
    try:
        with open(path, "r+b", opener=files.open_no_link) as handle:
            handle.truncate(size_bytes)
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def find_too_small(expected_by_path: Mapping[str, list[Any]]) -> Iterator[str]:
    """
    Yield a reason for each disk that is smaller than it was on the source.

    expected_by_path
        ``{path: [format, virtual bytes]}`` of the disks that libvirt has copied.

    A disk may be larger, as the VM runs here already and may have been resized since. A smaller
    disk is an error: libvirt does not resize a disk during the copy, and QEMU does not copy into a
    smaller disk.
    """
    for path, (fmt, expected_bytes) in expected_by_path.items():
        if not Path(path).exists():
            continue  # reported as missing by the caller
        sizes = diskpaths.measure(path, fmt)
        if sizes is None:
            yield f"its disk {path} cannot be read"
        elif sizes["virtual"] < expected_bytes:
            yield f"its disk {path} has {sizes['virtual']} bytes, not {expected_bytes}"


def make(file: ComingFile) -> None:
    """
    Turn the existing empty file of a disk into the file that the source writes to.

    A disk that libvirt copies becomes an empty overlay or disk.
    """
    path = Path(file.path)
    if file.transfer == "push":
        resize(file.path, file.size_bytes)
        return
    backing = (file.base.path, file.base.format) if file.base else ()
    tool.create(path, file.size_bytes, file.format, *backing)
    files.restrict(path)


def seed(
    conn: Any, settings: HostSettings, disks: Mapping[str, Mapping[str, Any]], force: bool
) -> None:
    """
    Make empty disks for a VM that comes, as Salt 3006 did; ``force`` replaces existing disks.

    All disks are made, or none. ``force`` does not replace a disk that a VM here uses or is to use,
    or that other hosts may use.
    """
    force = arguments.boolean("force", force)
    if arguments.mapping("disks", disks) is None:
        raise BadArgument("disks", "is missing; give the answer of virt.get_disks")
    pools = hostfacts.pools(conn)
    places = {target: _place(target, disk, pools) for target, disk in disks.items()}
    with reservations.host_lock(settings):
        existing_paths = {path for path in places.values() if path.exists()}
        for target, path in sorted(places.items()):
            if path in existing_paths:
                _refuse_taken(settings, target, path, force)
        reservations.refuse_on_record(settings, "", map(str, places.values()))
        disks_by_path = {path: disks[target] for target, path in sorted(places.items())}
        index = usage.index(conn, settings, beside_files=map(str, disks_by_path))
        verdicts = {path: index.verdict(policies.TAKE, str(path)) for path in disks_by_path}
        for path in existing_paths:
            verdicts[path].refuse(f"{path} is there already, and stays")
        _place_all(disks_by_path, existing_paths, verdicts)


def _refuse_taken(settings: HostSettings, target: str, path: Path, force: bool) -> None:
    if not force:
        raise StorageError(f"disk {target}: {path} is there already; force=True replaces it")
    if sharing.is_shared(settings, path) or diskpaths.is_open(path):
        raise StorageError(
            f"disk {target}: {path} may be another host's VM's, as it is on shared storage, or a "
            "QEMU has it open; remove it by hand if it is not"
        )


def _place_all(
    disks: Mapping[Path, Mapping[str, Any]],
    existing_paths: Collection[Path],
    verdicts: Mapping[Path, Verdict],
) -> None:
    """Make the disks beside their places, then rename them; on failure nothing is left."""
    with on_failure() as steps:
        parts = {}
        for path, disk in disks.items():
            path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            if path not in existing_paths:
                placeholder(path)
                steps.undo_with(path.unlink)
            parts[path] = files.part_path(path.parent, path.name)
            steps.undo_with(parts[path].unlink, True)
            _make_empty(parts[path], disk)
        for path, part in parts.items():
            door.replace(part, verdicts[path])


def _make_empty(path: Path, disk: Mapping[str, Any]) -> None:
    backing = disk.get("backing file") or {}
    below = (backing["file"], backing.get("file format") or "qcow2") if backing else ()
    tool.create(path, disk["virtual size"], disk["file format"], *below)
    path.chmod(0o600)


def _place(target: str, disk: Mapping[str, Any], pools: Mapping[str, Mapping[str, Any]]) -> Path:
    """Return the path for a disk of ``virt.get_disks``: the file's, or the volume's here."""
    if not isinstance(disk, Mapping):
        raise BadArgument("disks", f"{target}: {disk!r} is not a mapping, as of virt.get_disks")
    missing_keys = [key for key in ("file", "file format", "virtual size") if key not in disk]
    if missing_keys:
        raise StorageError(
            f"disk {target}: {' and '.join(missing_keys)} not given; or leave it out"
        )
    name = str(disk["file"])
    pool, _slash, volume = name.partition("/")
    folder = str((pools.get(pool) or {}).get("path") or "")
    path = Path(name) if name.startswith("/") else Path(folder, volume)
    if path.is_absolute() and (name == str(path) or path.parent == Path(folder)):
        return path
    raise StorageError(
        f"disk {target}: {name!r} is neither a path nor POOL/VOLUME of a pool that has a folder on "
        "this host; make it by hand, and leave it out"
    )


def pools_of(disks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the pools with disks among their volumes."""
    names = (str(disk["file"]) for disk in disks.values())
    return sorted({name.partition("/")[0] for name in names if not name.startswith("/")})


def image_paths(settings: HostSettings, images: Mapping[str, str]) -> dict[str, str]:
    """Return ``{path here: path on the target}`` from ``{digest: path on the target}``."""
    return {
        cache.find_sendable(settings, digest).path: target_path
        for digest, target_path in images.items()
    }
