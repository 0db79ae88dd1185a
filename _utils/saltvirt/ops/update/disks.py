"""Which of a VM's disks a call means, and how they are to be. Nothing is read here."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from saltvirt import model
from saltvirt.errors import BadArgument
from saltvirt.units import MIB, human
from saltvirt.xml import disk, held, remote

# What the name of a disk's file or volume may end in, after the VM's and the disk's.
_ENDING = re.compile(r"(\.(qcow2|raw|img|qed|vmdk|vdi|vpc|vhdx|iso))?")
_PREFIX = re.compile(r"[a-z]+?(?=[a-z]$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A disk of the call, and the one of the definition that it means; None if it is new."""

    wanted: model.Disk
    element: ET.Element | None

    @property
    def now(self) -> disk.Disk | None:
        """What the definition says of it."""
        return None if self.element is None else disk.read(self.element)

    @property
    def is_decided(self) -> bool:
        """Whether nothing is to be asked of the host before it can be written."""
        now = self.now
        if now is None:
            return False
        is_same = _is_medium(now, self.wanted)
        return is_same or not _is_drive(self.wanted) or not self.wanted.source_file


def pairs(
    vm: str,
    current: Sequence[ET.Element],
    wanted: Sequence[model.Disk],
    with_bus: frozenset[str],
    pools: Mapping[str, Mapping[str, Any]],
    default: str | None = None,
    below: Mapping[str, Sequence[str]] | None = None,
) -> list[Pair]:
    """
    Return each disk of a call with the one that it means.

    current
        The <disk> elements of the definition.
    with_bus
        The names of the disks whose bus the call says: a drive on another one is another drive.
    pools
        What :func:`saltvirt.kvm.host.pools` returns.
    default
        The pool of disks that name none.
    below
        ``{a disk's file: those beside it that it is based on}``, as after external snapshots.
    """
    ways = (
        _has_content,
        partial(_is_above, below or {}),
        partial(_is_partition, default),
        _is_drive_of,
    )
    left = [(element, disk.read(element)) for element in current if not held.is_seed(element)]
    found: dict[int, ET.Element] = {}
    for is_same in ways:
        for number, one in enumerate(wanted):
            if number in found:
                continue
            has_bus = one.name in with_bus
            for candidate in left:
                if is_same(vm, candidate[1], one, has_bus, pools):
                    found[number] = candidate[0]
                    left.remove(candidate)
                    break
    return [Pair(wanted=one, element=found.get(number)) for number, one in enumerate(wanted)]


def _is_medium(now: disk.Disk, wanted: model.Disk) -> bool:
    """Return whether a drive has the medium that is wanted."""
    if wanted.elsewhere:
        return remote.same(wanted.elsewhere, now.source or {}, now.hosts)
    return now.path == wanted.source_file


def _is_drive(one: model.Disk) -> bool:
    return one.device in held.DRIVES and not one.image


def _has_content(
    vm: str, now: disk.Disk, wanted: model.Disk, has_bus: bool, pools: Mapping[str, Any]
) -> bool:
    """Return whether a disk has the content that is wanted, by the file's or volume's name."""
    path = now.path
    if path is None or now.device != wanted.device:
        return False
    if _is_drive(wanted):
        return _is_medium(now, wanted) and _is_drive_of(vm, now, wanted, has_bus, pools)
    return _has_name(vm, now, wanted, pools.get(wanted.pool or "") or {})


def _has_name(vm: str, now: disk.Disk, wanted: model.Disk, pool: Mapping[str, Any]) -> bool:
    """Return whether a disk is what a call means by its own name, or by that of a file."""
    if wanted.source_file:
        return _is_named(now, wanted.source_file, wanted.pool, pool)
    place, _slash, last = (now.path or "").rpartition("/")
    is_elsewhere = wanted.pool and place not in (wanted.pool, str(pool.get("path")))
    if is_elsewhere and now.type != "network":
        return False
    own = f"{vm}_{wanted.name}"
    return last.startswith(own) and bool(_ENDING.fullmatch(last.removeprefix(own)))


def _may_be_its_own(now: disk.Disk, wanted: model.Disk) -> bool:
    """Return whether a disk may be one that was made for its VM: no drive, and no given file."""
    return not (wanted.source_file or _is_drive(wanted)) and now.device == wanted.device


def _is_above(
    below: Mapping[str, Sequence[str]],
    vm: str,
    now: disk.Disk,
    wanted: model.Disk,
    _has_bus: bool,
    pools: Mapping[str, Any],
) -> bool:
    """Return whether a disk is what a snapshot has put above the file of one that is wanted."""
    if not _may_be_its_own(now, wanted):
        return False
    pool = pools.get(wanted.pool or "") or {}
    files = (replace(now, source={"file": one}) for one in below.get(now.path or "", ()))
    return any(_has_name(vm, one, wanted, pool) for one in files)


def _is_partition(
    default: str | None,
    _vm: str,
    now: disk.Disk,
    wanted: model.Disk,
    _has_bus: bool,
    pools: Mapping[str, Any],
) -> bool:
    """Return whether a disk is one of a pool whose partitions have the names of its device."""
    if not _may_be_its_own(now, wanted):
        return False
    # So the first in that pool is the first that is wanted.
    pool = wanted.pool or default or ""
    is_one = (pools.get(pool) or {}).get("type") == "disk"
    return is_one and (now.source or {}).get("pool") == pool


def _is_named(now: disk.Disk, file: str, pool: str | None, known: Mapping[str, Any]) -> bool:
    """Return whether a disk is the file, or the volume of a pool, that a call names."""
    path = re.sub("/+", "/", now.path or "")
    is_remote = now.type == "network" and path.endswith(f"/{file}")
    return is_remote or path in (file, f"{pool}/{file}", f"{known.get('path')}/{file}")


def _is_drive_of(
    _vm: str, now: disk.Disk, wanted: model.Disk, has_bus: bool, _pools: Mapping[str, Any]
) -> bool:
    is_drive = _is_drive(wanted) and now.device == wanted.device
    return is_drive and (not has_bus or now.target.get("bus") == wanted.model)


def targets(found: Sequence[Pair], with_bus: frozenset[str], taken: set[str]) -> list[str]:
    """
    Return the disks' names in the guest: a disk that stays keeps its own.

    taken
        Those that other disks of the VM have.
    """
    used = taken | {one.now.target.get("dev", "") for one in found if one.now and _stays(one)}
    out = []
    for one in found:
        now = one.now
        if now is not None and (_stays(one) or one.wanted.name not in with_bus):
            out.append(now.target.get("dev", ""))
            continue
        out.append(_free(one.wanted, used))
        used.add(out[-1])
    return out


def _stays(one: Pair) -> bool:
    now = one.now
    if now is None:
        return False
    prefix = _PREFIX.match(now.target.get("dev", ""))
    return prefix is not None and prefix[0] == _prefix_of(one.wanted)


def _prefix_of(one: model.Disk) -> str:
    found = _PREFIX.match(one.target)
    return found[0] if found else "vd"


def _free(one: model.Disk, used: set[str]) -> str:
    for letter in "abcdefghijklmnopqrstuvwxyz":
        if (name := _prefix_of(one) + letter) not in used:
            return name
    raise BadArgument("disks", f"more than 26 disks on the bus {one.model!r}")


def written(one: Pair, decided: model.Disk, target: str, has_bus: bool) -> ET.Element:
    """
    Return the <disk> of a disk of the call: a new one, or that of the definition, changed.

    decided
        The disk of the call, with the path that it has on this host.
    """
    if one.element is None:
        return disk.build(disk.of(replace(decided, target=target)))
    now, wanted = disk.read(one.element), one.wanted
    if _is_drive(wanted) and not _is_medium(now, wanted):
        now = held.with_medium(now, disk.of(decided))
    if has_bus and now.target.get("bus") != wanted.model:
        now = replace(now, target={**now.target, "dev": target, "bus": wanted.model})
    said = {"io": wanted.io, "iothread": wanted.iothread_id}
    driver = {key: str(value) for key, value in said.items() if value is not None}
    if wanted.io == "native":
        # Native I/O needs a cache that bypasses the host's.
        driver["cache"] = "none"
    if driver:
        now = replace(now, driver={**(now.driver or {}), **driver})
    return held.amended_disk(one.element, now)


def growth(found: Sequence[Pair], sizes: Mapping[str, int]) -> dict[str, int]:
    """
    Return ``{target: bytes}`` of the disks that are to be larger than they are.

    sizes
        ``{target: bytes}``, what they are.
    """
    return {
        target: wanted for _pair, target, wanted in _sized(found, sizes) if wanted > sizes[target]
    }


def _sized(found: Sequence[Pair], sizes: Mapping[str, int]) -> Iterator[tuple[Pair, str, int]]:
    """Yield ``(disk, target, bytes)`` of the disks whose size the call says, and is known."""
    for pair in found:
        now, size_mib = pair.now, pair.wanted.size_mib
        target = now.target.get("dev", "") if now else ""
        is_disk = pair.wanted.is_sized_by_user and not _is_drive(pair.wanted)
        if is_disk and size_mib and target in sizes:
            yield pair, target, size_mib * MIB


def refuse_smaller(
    found: Sequence[Pair], sizes: Mapping[str, int], with_size: frozenset[str]
) -> None:
    """
    Raise BadArgument if a call says less than the size that a disk has.

    with_size
        The names of the disks whose size the call itself says: a profile is for new disks.
    """
    for pair, target, wanted in _sized(found, sizes):
        if pair.wanted.name in with_size and wanted < sizes[target]:
            raise BadArgument("disks", too_large(pair.wanted, sizes[target]))


def too_large(wanted: model.Disk, size: int) -> str:
    """Return why a disk of some bytes cannot have the size that a call says."""
    asked = human((wanted.size_mib or 0) * MIB)
    return (
        f"disk {wanted.name!r} has {human(size)} and is to have {asked}: a disk is never made "
        f"smaller; leave out its size, or give at least {-(-size // MIB)}"
    )
