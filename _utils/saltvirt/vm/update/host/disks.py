"""Match a call's disks to a VM's disks, and change these; pure functions."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.core import model
from saltvirt.core.diskbus import find_bus
from saltvirt.core.errors import BadArgument
from saltvirt.core.units import MIB, human
from saltvirt.vm.update.host import listed
from saltvirt.xml.domain import disk, remote
from saltvirt.xml.edit import devicematch

# Suffixes of a disk's file or volume, after the VM's and the disk's names.
_ENDING = re.compile(r"(\.(qcow2|raw|img|qed|vmdk|vdi|vpc|vhdx|iso))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A disk of the call, and its <disk> in the definition; None if it is new."""

    requested: model.Disk
    element: ET.Element | None

    @property
    def now(self) -> disk.Disk | None:
        """The disk in the definition, None if it is new."""
        return None if self.element is None else disk.read(self.element)

    @property
    def target(self) -> str:
        """The target of the disk in the definition, empty if it is new."""
        return "" if self.element is None else listed.target_of(self.element)

    @property
    def is_decided(self) -> bool:
        """Whether the <disk> can be written without facts of the host."""
        vm_disk = self.now
        if vm_disk is None:
            return False
        is_same = _is_medium(vm_disk, self.requested)
        return is_same or not _is_drive(self.requested) or not self.requested.source_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """
    What tells which disk of a VM a call means.

    vm
        The VM's name.
    with_bus
        The names of disks with a bus in the call: a drive on another bus is another drive.
    pools
        What :func:`saltvirt.libvirt.hostfacts.pools` returns.
    default_pool
        The pool of disks that name none.
    backing_by_path
        ``{a disk's file: files of its backing chain in the same folder}``, as external snapshots
        leave them.
    former_names
        Names that the VM had: a rename leaves the names of files and volumes.
    owners_by_path
        ``{a file: the VM's name in its owner mark}`` of the files with a mark of this VM's UUID.
    """

    vm: str
    with_bus: frozenset[str]
    pools: Mapping[str, Mapping[str, Any]]
    default_pool: str | None = None
    backing_by_path: Mapping[str, Sequence[str]] = field(default_factory=dict)
    former_names: tuple[str, ...] = ()
    owners_by_path: Mapping[str, str] = field(default_factory=dict)

    def pair(self, requested: Sequence[model.Disk], elements: Iterable[ET.Element]) -> list[Pair]:
        """Return each disk of a call, paired with the <disk> of the VM that it means."""
        passes = (
            self._has_content,
            self._is_snapshot,
            self._is_partition,
            self._is_same_drive,
        )
        candidates = [element for element in elements if not devicematch.is_seed(element)]
        matches = listed.match(requested, candidates, passes)
        return [
            Pair(requested=requested_disk, element=element)
            for requested_disk, element in zip(requested, matches, strict=True)
        ]

    def has_name(self, name: str, element: ET.Element) -> bool:
        """Return whether a disk has a name, also below the files of external snapshots."""
        requested, vm_disk = model.Disk(name=name, target=""), disk.read(element)
        backing_paths = self.backing_by_path.get(vm_disk.path or "", ())
        return self._has_name(requested, vm_disk) or any(
            self._has_name(requested, replace(vm_disk, source={"file": path}))
            for path in backing_paths
        )

    def find_same(self, requested: model.Disk, elements: Iterable[ET.Element]) -> ET.Element | None:
        """Return the disk of the VM that a new disk would be once more; None for a new drive."""
        if _is_drive(requested):
            return None
        return next(
            (
                element
                for element in elements
                if self._has_content(requested, element) or self._is_snapshot(requested, element)
            ),
            None,
        )

    def _has_content(self, requested: model.Disk, element: ET.Element) -> bool:
        """Return whether a disk has the requested content, by its file's or volume's name."""
        vm_disk = disk.read(element)
        if vm_disk.path is None or vm_disk.device != requested.device:
            return False
        if _is_drive(requested):
            return _is_medium(vm_disk, requested) and self._is_same_drive(requested, element)
        return self._has_name(requested, vm_disk)

    def _has_name(self, requested: model.Disk, vm_disk: disk.Disk) -> bool:
        """Return whether a call means a disk, by the disk's name or a file's."""
        pool_path = str(self.pools.get(requested.pool or "", {}).get("path"))
        path = vm_disk.path or ""
        if file := requested.source_file:
            path = re.sub("/+", "/", path)
            is_remote = vm_disk.type == "network" and path.endswith(f"/{file}")
            return is_remote or path in (file, f"{requested.pool}/{file}", f"{pool_path}/{file}")
        folder, _slash, file_name = path.rpartition("/")
        is_elsewhere = requested.pool and folder not in (requested.pool, pool_path)
        if is_elsewhere and vm_disk.type != "network":
            return False
        names = {self.vm, *self.former_names, self.owners_by_path.get(path, self.vm)}
        return any(_is_named(file_name, f"{name}_{requested.name}") for name in names)

    def _is_snapshot(self, requested: model.Disk, element: ET.Element) -> bool:
        """Return whether a disk is a snapshot's overlay over the requested disk's file."""
        vm_disk = disk.read(element)
        return _may_be_made_for_vm(vm_disk, requested) and any(
            self._has_name(requested, replace(vm_disk, source={"file": path}))
            for path in self.backing_by_path.get(vm_disk.path or "", ())
        )

    def _is_partition(self, requested: model.Disk, element: ET.Element) -> bool:
        """Return whether a disk is in the requested disk's pool, and that is of type "disk"."""
        vm_disk = disk.read(element)
        # Partitions are named after the pool's device, not the VM: match them in their order.
        pool = requested.pool or self.default_pool or ""
        is_in_disk_pool = self.pools.get(pool, {}).get("type") == "disk"
        is_of_pool = is_in_disk_pool and (vm_disk.source or {}).get("pool") == pool
        return is_of_pool and _may_be_made_for_vm(vm_disk, requested)

    def _is_same_drive(self, requested: model.Disk, element: ET.Element) -> bool:
        vm_disk = disk.read(element)
        has_bus = requested.name in self.with_bus
        is_on_bus = not has_bus or vm_disk.target.get("bus") == requested.bus
        return _is_drive(requested) and vm_disk.device == requested.device and is_on_bus


def _is_named(file_name: str, stem: str) -> bool:
    """Return whether a file or volume has a name, with or without the suffix of a format."""
    return file_name.startswith(stem) and bool(_ENDING.fullmatch(file_name.removeprefix(stem)))


def _may_be_made_for_vm(vm_disk: disk.Disk, requested: model.Disk) -> bool:
    """Return whether a disk may have been made for its VM: no drive, and no given file."""
    return (
        not (requested.source_file or _is_drive(requested)) and vm_disk.device == requested.device
    )


def _is_medium(vm_disk: disk.Disk, requested: model.Disk) -> bool:
    """Return whether a drive has the requested medium."""
    if requested.elsewhere:
        return remote.is_same_source(requested.elsewhere, vm_disk.source or {}, vm_disk.hosts)
    return vm_disk.path == requested.source_file


def _is_drive(requested: model.Disk) -> bool:
    return requested.device in devicematch.DRIVES and not requested.image


def assign_targets(
    pairs: Sequence[Pair], with_bus: frozenset[str], other_targets: set[str]
) -> list[str]:
    """
    Return the targets of the disks; a disk that stays keeps its target unless its bus changes.

    other_targets
        The targets of the VM's other disks.
    """
    used_targets = other_targets | {pair.target for pair in pairs if _keeps_target(pair)}
    out = []
    for pair in pairs:
        has_bus = pair.requested.name in with_bus
        if pair.element is not None and (_keeps_target(pair) or not has_bus):
            out.append(pair.target)
        else:
            out.append(find_bus(pair.requested.bus).free_target(used_targets))
            used_targets.add(out[-1])
    return out


def _keeps_target(pair: Pair) -> bool:
    return find_bus(pair.requested.bus).has_target(pair.target)


def build_element(pair: Pair, resolved_disk: model.Disk, target: str, has_bus: bool) -> ET.Element:
    """
    Return a new <disk> for a disk of the call, or the definition's <disk>, changed.

    resolved_disk
        The disk of the call, with its path on this host.
    """
    if pair.element is None:
        return disk.build(disk.from_call(replace(resolved_disk, target=target)))
    vm_disk, requested = disk.read(pair.element), pair.requested
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
        size_mib = pair.requested.size_mib
        is_disk = pair.requested.is_sized_by_user and not _is_drive(pair.requested)
        if is_disk and size_mib and pair.target in sizes:
            yield pair, pair.target, size_mib * MIB


def refuse_smaller(
    pairs: Sequence[Pair], sizes: Mapping[str, int], with_size: frozenset[str]
) -> None:
    """
    Raise BadArgument if a call gives a size below a disk's present size.

    with_size
        The names of disks with a size in the call itself; a profile's sizes are for new disks.
    """
    for pair, target, new_bytes in _find_sized(pairs, sizes):
        if pair.requested.name in with_size and new_bytes < sizes[target]:
            raise BadArgument("disks", describe_too_large(pair.requested, sizes[target]))


def describe_too_large(requested: model.Disk, size: int) -> str:
    """Return the message that a disk of ``size`` bytes is larger than requested."""
    requested_size = human((requested.size_mib or 0) * MIB)
    return (
        f"disk {requested.name!r} has {human(size)}, and the call gives {requested_size}: a disk "
        f"is never made smaller; leave out its size, or give at least {-(-size // MIB)}"
    )
