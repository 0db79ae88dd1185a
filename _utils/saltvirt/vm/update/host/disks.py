"""Match a call's disks to a VM's disks, and change these; pure functions."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from saltvirt.core import model
from saltvirt.core.errors import BadArgument
from saltvirt.core.units import MIB, human
from saltvirt.xml.domain import disk, remote
from saltvirt.xml.domain.diskbus import find_bus
from saltvirt.xml.edit import devicematch

# Suffixes of a disk's file or volume, after the VM's and the disk's names.
_ENDING = re.compile(r"(\.(qcow2|raw|img|qed|vmdk|vdi|vpc|vhdx|iso))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A disk of the call, and its <disk> in the definition; None if it is new."""

    wanted: model.Disk
    element: ET.Element | None

    @property
    def now(self) -> disk.Disk | None:
        """The disk in the definition, None if it is new."""
        return None if self.element is None else disk.read(self.element)

    @property
    def is_decided(self) -> bool:
        """Whether the <disk> can be written without facts of the host."""
        vm_disk = self.now
        if vm_disk is None:
            return False
        is_same = _is_medium(vm_disk, self.wanted)
        return is_same or not _is_drive(self.wanted) or not self.wanted.source_file


def match_disks(
    vm: str,
    elements: Sequence[ET.Element],
    requested: Sequence[model.Disk],
    with_bus: frozenset[str],
    pools: Mapping[str, Mapping[str, Any]],
    default_pool: str | None = None,
    backing_by_path: Mapping[str, Sequence[str]] | None = None,
) -> list[Pair]:
    """
    Return each disk of a call, paired with the <disk> that it means.

    elements
        The <disk> elements of the VM.
    with_bus
        The names of disks with a bus in the call: a drive on another bus is another drive.
    pools
        What :func:`saltvirt.libvirt.hostfacts.pools` returns.
    default_pool
        The pool of disks that name none.
    backing_by_path
        ``{a disk's file: files of its backing chain in the same folder}``, as external snapshots
        leave them.
    """
    matchers = (
        _has_content,
        partial(_is_snapshot_of, backing_by_path or {}),
        partial(_is_partition, default_pool),
        _is_drive_of,
    )
    candidates = [
        (element, disk.read(element)) for element in elements if not devicematch.is_seed(element)
    ]
    elements_by_number: dict[int, ET.Element] = {}
    for is_same in matchers:
        for number, requested_disk in enumerate(requested):
            if number in elements_by_number:
                continue
            has_bus = requested_disk.name in with_bus
            for candidate in candidates:
                if is_same(vm, candidate[1], requested_disk, has_bus, pools):
                    elements_by_number[number] = candidate[0]
                    candidates.remove(candidate)
                    break
    return [
        Pair(wanted=requested_disk, element=elements_by_number.get(number))
        for number, requested_disk in enumerate(requested)
    ]


def _is_medium(vm_disk: disk.Disk, requested: model.Disk) -> bool:
    """Return whether a drive has the requested medium."""
    if requested.elsewhere:
        return remote.is_same_source(requested.elsewhere, vm_disk.source or {}, vm_disk.hosts)
    return vm_disk.path == requested.source_file


def _is_drive(requested: model.Disk) -> bool:
    return requested.device in devicematch.DRIVES and not requested.image


def _has_content(
    vm: str, vm_disk: disk.Disk, requested: model.Disk, has_bus: bool, pools: Mapping[str, Any]
) -> bool:
    """Return whether a disk has the requested content, by its file's or volume's name."""
    path = vm_disk.path
    if path is None or vm_disk.device != requested.device:
        return False
    if _is_drive(requested):
        return _is_medium(vm_disk, requested) and _is_drive_of(
            vm, vm_disk, requested, has_bus, pools
        )
    return _has_name(vm, vm_disk, requested, pools.get(requested.pool or "") or {})


def _has_name(vm: str, vm_disk: disk.Disk, requested: model.Disk, pool: Mapping[str, Any]) -> bool:
    """Return whether a call means a disk, by the disk's name or a file's."""
    if requested.source_file:
        return _is_named(vm_disk, requested.source_file, requested.pool, pool)
    folder, _slash, file_name = (vm_disk.path or "").rpartition("/")
    is_elsewhere = requested.pool and folder not in (requested.pool, str(pool.get("path")))
    if is_elsewhere and vm_disk.type != "network":
        return False
    stem = f"{vm}_{requested.name}"
    return file_name.startswith(stem) and bool(_ENDING.fullmatch(file_name.removeprefix(stem)))


def _may_be_made_for_vm(vm_disk: disk.Disk, requested: model.Disk) -> bool:
    """Return whether a disk may have been made for its VM: no drive, and no given file."""
    return (
        not (requested.source_file or _is_drive(requested)) and vm_disk.device == requested.device
    )


def _is_snapshot_of(
    backing_by_path: Mapping[str, Sequence[str]],
    vm: str,
    vm_disk: disk.Disk,
    requested: model.Disk,
    _has_bus: bool,
    pools: Mapping[str, Any],
) -> bool:
    """Return whether a disk is a snapshot's overlay over the requested disk's file."""
    if not _may_be_made_for_vm(vm_disk, requested):
        return False
    pool = pools.get(requested.pool or "") or {}
    backing_disks = (
        replace(vm_disk, source={"file": path})
        for path in backing_by_path.get(vm_disk.path or "", ())
    )
    return any(_has_name(vm, backing_disk, requested, pool) for backing_disk in backing_disks)


def _is_partition(
    default_pool: str | None,
    _vm: str,
    vm_disk: disk.Disk,
    requested: model.Disk,
    _has_bus: bool,
    pools: Mapping[str, Any],
) -> bool:
    """Return whether a disk is in the requested disk's pool, and that is of type "disk"."""
    if not _may_be_made_for_vm(vm_disk, requested):
        return False
    # Partitions are named after the pool's device, not the VM: match them in their order.
    pool = requested.pool or default_pool or ""
    is_in_disk_pool = (pools.get(pool) or {}).get("type") == "disk"
    return is_in_disk_pool and (vm_disk.source or {}).get("pool") == pool


def _is_named(
    vm_disk: disk.Disk, file: str, pool: str | None, pool_info: Mapping[str, Any]
) -> bool:
    """Return whether a disk is the file or pool volume that a call names."""
    path = re.sub("/+", "/", vm_disk.path or "")
    is_remote = vm_disk.type == "network" and path.endswith(f"/{file}")
    return is_remote or path in (file, f"{pool}/{file}", f"{pool_info.get('path')}/{file}")


def _is_drive_of(
    _vm: str, vm_disk: disk.Disk, requested: model.Disk, has_bus: bool, _pools: Mapping[str, Any]
) -> bool:
    is_drive = _is_drive(requested) and vm_disk.device == requested.device
    return is_drive and (not has_bus or vm_disk.target.get("bus") == requested.bus)


def assign_targets(
    pairs: Sequence[Pair], with_bus: frozenset[str], other_targets: set[str]
) -> list[str]:
    """
    Return the targets of the disks; a disk that stays keeps its target unless its bus changes.

    other_targets
        The targets of the VM's other disks.
    """
    used_targets = other_targets | {
        pair.now.target.get("dev", "") for pair in pairs if pair.now and _keeps_target(pair)
    }
    out = []
    for pair in pairs:
        vm_disk = pair.now
        if vm_disk is not None and (_keeps_target(pair) or pair.wanted.name not in with_bus):
            out.append(vm_disk.target.get("dev", ""))
            continue
        out.append(find_bus(pair.wanted.bus).free_target(used_targets))
        used_targets.add(out[-1])
    return out


def _keeps_target(pair: Pair) -> bool:
    target = pair.now.target.get("dev", "") if pair.now else ""
    return find_bus(pair.wanted.bus).has_target(target)


def build_element(pair: Pair, resolved_disk: model.Disk, target: str, has_bus: bool) -> ET.Element:
    """
    Return a new <disk> for a disk of the call, or the definition's <disk>, changed.

    resolved_disk
        The disk of the call, with its path on this host.
    """
    if pair.element is None:
        return disk.build(disk.from_call(replace(resolved_disk, target=target)))
    vm_disk, requested = disk.read(pair.element), pair.wanted
    if _is_drive(requested) and not _is_medium(vm_disk, requested):
        vm_disk = devicematch.with_medium(vm_disk, disk.from_call(resolved_disk))
    if has_bus and vm_disk.target.get("bus") != requested.bus:
        vm_disk = replace(vm_disk, target={**vm_disk.target, "dev": target, "bus": requested.bus})
    io_options = {"io": requested.io, "iothread": requested.iothread_id}
    driver = {key: str(value) for key, value in io_options.items() if value is not None}
    if requested.io == "native":
        # Native I/O must bypass the host's page cache.
        driver["cache"] = "none"
    if driver:
        vm_disk = replace(vm_disk, driver={**(vm_disk.driver or {}), **driver})
    return devicematch.amend_disk_copy(pair.element, vm_disk)


def growth(pairs: Sequence[Pair], sizes: Mapping[str, int]) -> dict[str, int]:
    """
    Return ``{target: new bytes}`` of the disks to be grown.

    sizes
        ``{target: bytes}`` at present.
    """
    return {
        target: new_bytes
        for _pair, target, new_bytes in _find_sized(pairs, sizes)
        if new_bytes > sizes[target]
    }


def _find_sized(pairs: Sequence[Pair], sizes: Mapping[str, int]) -> Iterator[tuple[Pair, str, int]]:
    """Yield ``(disk, target, requested bytes)`` of disks with a known present size."""
    for pair in pairs:
        vm_disk, size_mib = pair.now, pair.wanted.size_mib
        target = vm_disk.target.get("dev", "") if vm_disk else ""
        is_disk = pair.wanted.is_sized_by_user and not _is_drive(pair.wanted)
        if is_disk and size_mib and target in sizes:
            yield pair, target, size_mib * MIB


def refuse_smaller(
    pairs: Sequence[Pair], sizes: Mapping[str, int], with_size: frozenset[str]
) -> None:
    """
    Raise BadArgument if a call gives a size below a disk's present size.

    with_size
        The names of disks with a size in the call itself; a profile's sizes are for new disks.
    """
    for pair, target, new_bytes in _find_sized(pairs, sizes):
        if pair.wanted.name in with_size and new_bytes < sizes[target]:
            raise BadArgument("disks", describe_too_large(pair.wanted, sizes[target]))


def describe_too_large(requested: model.Disk, size: int) -> str:
    """Return the message that a disk of ``size`` bytes is larger than requested."""
    requested_size = human((requested.size_mib or 0) * MIB)
    return (
        f"disk {requested.name!r} has {human(size)} and is to have {requested_size}: a disk is "
        "never made "
        f"smaller; leave out its size, or give at least {-(-size // MIB)}"
    )
