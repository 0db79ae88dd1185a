"""
Existing disks: a VM that was undefined or lost gets its disks back.

As in Salt 3006, a file or volume with the name of a VM's disk is that disk. A build takes it as it
is if it is sound and no other VM's; undoing the build does not remove it.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.model import Disk, Requirements, Vm
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import NOCLOUD
from saltvirt.core.units import MIB
from saltvirt.libvirt.domains import lifecycle
from saltvirt.placement import resources
from saltvirt.storage import chains, diskpaths, ownermark, policies, seedfiles, sharing, usage
from saltvirt.storage.diskpaths import Place
from saltvirt.storage.images import validation
from saltvirt.storage.images.validation import ValidatedImage

_FORMATS = ("qcow2", "raw")


@dataclass(frozen=True, slots=True)
class _CandidateFile:
    """A path that a disk may have, and its format there."""

    path: str
    format: str


def find_existing_files(
    context: Context, conn: Any, vm: Vm, places: Mapping[str, Place]
) -> dict[str, ValidatedImage]:
    """
    Return the existing files of the disks to be made, by disk name.

    Raise StorageError if a file cannot be taken.

    places
        The disks' locations, by disk name.
    """
    disk_candidates = [
        (disk, _find_candidates(context.settings, vm.name, disk, places)) for disk in vm.disks
    ]
    paths = [candidate.path for _disk, candidates in disk_candidates for candidate in candidates]
    refuse_used(conn, context.settings, vm.name, paths)
    for path in paths:
        # Disk "a" may have the same path as a disk called "a.qcow2".
        if paths.count(path) > 1:
            raise StorageError(f"two disks of VM {vm.name!r} would be {path}; rename one of them")
    return {
        disk.name: _validate_candidate(context, vm.name, disk, candidates)
        for disk, candidates in disk_candidates
        if candidates
    }


def find_seed(context: Context, conn: Any, name: str) -> str | None:
    """Return the path of the seed that a former VM of this name had, None if there is none."""
    path = seedfiles.path(context.settings.images, name, NOCLOUD)
    if path is None or not os.path.lexists(path):
        return None
    if not Path(path).is_file() or Path(path).is_symlink():
        raise StorageError(f"seed {path} is there already, and is not a file; remove it")
    refuse_used(conn, context.settings, name, [path])
    try:
        _validate_file(context.settings, _CandidateFile(path, "qcow2"))
    except ImageError as exc:
        raise StorageError(f"seed {path} is there already ({exc}); remove it") from exc
    return path


def reduce_requirements(
    settings: HostSettings, vm: Vm, places: Mapping[str, Place], requirements: Requirements
) -> Requirements:
    """Return a VM's requirements, counting an existing disk only by its possible growth."""
    disk_mib, stock_amounts = requirements.disk_mib, Counter(dict(requirements.stocks))
    for disk in vm.disks:
        for candidate in _find_candidates(settings, vm.name, disk, places):
            sizes = diskpaths.measure(candidate.path, candidate.format)
            if sizes is None:
                continue
            final_bytes = max(sizes["virtual"], _requested_bytes(disk))
            growth_mib = max(0, final_bytes - sizes["actual"]) // MIB - (disk.size_mib or 0)
            if disk.pool and resources.is_named(disk.pool):
                stock_amounts[resources.pool(disk.pool)] += growth_mib
            else:
                disk_mib += growth_mib
            break
    needed_stocks = {name: max(0, mib) for name, mib in stock_amounts.items()}
    return replace(
        requirements, disk_mib=max(0, disk_mib), stocks=tuple(sorted(needed_stocks.items()))
    )


def _requested_bytes(disk: Disk) -> int:
    return disk.size_mib * MIB if disk.size_mib and disk.is_sized_by_user else 0


def _find_candidates(
    settings: HostSettings, vm: str, disk: Disk, places: Mapping[str, Place]
) -> list[_CandidateFile]:
    if disk.name not in places:
        return []
    candidates_by_path = {
        candidate.path: candidate
        for candidate in _list_candidates(settings, vm, disk, places[disk.name])
    }
    return [
        candidate for candidate in candidates_by_path.values() if os.path.lexists(candidate.path)
    ]


def _list_candidates(
    settings: HostSettings, vm: str, disk: Disk, place: Place
) -> Iterator[_CandidateFile]:
    """Yield the paths that a disk may have: ours, and those of Salt 3006."""
    stem = f"{vm}_{disk.name}"
    formats = (disk.format,) if disk.format else _FORMATS
    folders = [place.folder]
    if not disk.pool:
        # Salt 3006 ignored virt:storagepool.
        folders.append(Path(settings.images))
    for folder in folders:
        for fmt in formats:
            yield _CandidateFile(str(folder / f"{stem}.{fmt}"), fmt)
    if place.pool:
        # Salt 3006 named volumes without a suffix; in such a pool they are qcow2.
        yield _CandidateFile(str(place.folder / stem), disk.format or "qcow2")


def _validate_candidate(
    context: Context, vm: str, disk: Disk, candidates: list[_CandidateFile]
) -> ValidatedImage:
    paths = " and ".join(candidate.path for candidate in candidates)
    if len(candidates) > 1:
        raise StorageError(
            f"disk {disk.name!r}: {paths} are there already, and nothing says which of them is the "
            "disk; say its format, or give it as source_file"
        )
    settings, (candidate,) = context.settings, candidates
    subject = f"disk {disk.name!r}: {candidate.path} is there already"
    _refuse_other_owner(settings, vm, candidate.path, subject)
    sharing.refuse_unseen_users(context, candidate.path, vm, f"{vm}_{disk.name}", subject)
    if diskpaths.is_open(candidate.path):
        raise StorageError(
            f"{subject}, and another program has it open, a VM mostly; stop that, or choose "
            "another name"
        )
    try:
        return _validate_file(settings, candidate)
    except ImageError as exc:
        raise StorageError(
            f"{subject}, and cannot be taken as the disk ({exc}); say its "
            "format if it has another, mend it, or move it away"
        ) from exc


def _refuse_other_owner(settings: HostSettings, vm: str, path: str, subject: str) -> None:
    """Raise StorageError if a file may be another VM's, by its owner mark."""
    owner = ownermark.read_owner(path)
    if owner is None:
        return
    if owner.vm != vm:
        raise StorageError(
            f"{subject}, and was made for VM {owner.vm!r}; choose another name for the disk, or "
            "for the VM, or give it as source_file"
        )
    if not owner.is_of_this_host or sharing.is_shared(settings, path):
        raise StorageError(
            f"{subject}, and it was made for VM {owner.vm!r} (UUID {owner.uuid}), which another "
            "host may have under another name; if none has that UUID, give it as source_file"
        )


def _validate_file(settings: HostSettings, candidate: _CandidateFile) -> ValidatedImage:
    file = Path(candidate.path)
    if not file.is_file():
        raise ImageError("it is not a regular file")
    if candidate.format == "raw":
        # Do not probe: a guest may have written another format's header into a raw disk.
        size = file.stat().st_size
        if size < 512:
            raise ImageError("it is shorter than a disk's first block")
        return ValidatedImage(path=candidate.path, format="raw", size_bytes=size)
    validated_image = validation.validate(
        candidate.path, backing_below=diskpaths.backing_below(settings)
    )
    if validated_image.format != candidate.format:
        raise ImageError(f"it is {validated_image.format}, not {candidate.format}")
    chains.refuse_too_deep("a disk that is there already", candidate.path)
    return validated_image


def adopt(conn: Any, name: str) -> None:
    """Remove other VMs' owner marks from the disks of a VM."""
    uuid = lifecycle.uuid(conn, name)
    for path in lifecycle.disks(conn).get(name, ()):
        owner = ownermark.read_owner(path)
        # With the mark of a removed VM, a disk would count as a leftover once it is detached.
        if owner is not None and owner.uuid != uuid:
            ownermark.unmark(path)


def refuse_used(conn: Any, settings: HostSettings, name: str, paths: Iterable[str]) -> None:
    """Raise StorageError if anything but a VM's own record uses a file that the VM is to get."""
    paths = list(paths)
    index = usage.index(conn, settings, doubt_exempt=[name], beside_files=_add_real_paths(paths))
    for path in paths:
        verdict = index.verdict(policies.TAKE, path)
        # The VM's own build record names the files, too.
        verdict.without(policies.COMING, name).refuse(f"{path} is there already, and stays")


def _add_real_paths(paths: Iterable[str]) -> list[str]:
    return [name for path in paths for name in (path, os.path.realpath(path))]


def refuse_base(conn: Any, settings: HostSettings, disks: Iterable[Disk], paths: list[str]) -> None:
    """
    Raise StorageError if a file that the user names for a disk is a backing file.

    Writing to it would damage all overlays. After an external snapshot, a state may still name the
    old file; the VM must not go back to it.

    paths
        The paths of the disks, in their order.
    """
    index = usage.index(conn, settings, beside_files=paths)
    for disk, path in zip(disks, paths, strict=True):
        if disk.device == "disk":
            index.verdict(policies.BASE, path).refuse(
                f"disk {disk.name!r}: {path} would be written to (an image is given as image, and "
                "of a disk with snapshots the newest file as source_file)"
            )
