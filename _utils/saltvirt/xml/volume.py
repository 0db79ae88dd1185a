"""<volume>: what a pool keeps."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.units import size_bytes
from saltvirt.xml import disk, leaf, permissions, tag

TYPES = ("file", "block", "dir", "network", "netdir", "ploop")
# What libvirt copies as it is: a medium to install from is a raw disk, and so is a partition,
# whatever kind of one it is.
_RAW = (
    *("raw", "iso", "none", "linux", "fat16", "fat32", "extended"),
    *("linux-swap", "linux-lvm", "linux-raid"),
)
# libvirt's number, and what it takes at most.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What a volume is based on."""

    path: str
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What a <volume> says; sizes in bytes. ``key`` and ``path`` are libvirt's to say."""

    name: str
    type: str | None = None
    key: str | None = None
    capacity: int
    allocation: int | None = None
    path: str | None = None
    format: str | None = None
    permissions: dict[str, str] | None = None
    is_nocow: bool = False
    backing: Backing | None = None


def is_raw(fmt: str | None) -> bool:
    """Return whether nothing in a volume that libvirt says to be of a format is a header to it."""
    return fmt is None or fmt in _RAW


def of(
    name: str,
    size: object,
    *,
    allocation: object = 0,
    format: object = None,
    type: object = None,
    given_permissions: object = None,
    backing_store: object = None,
    nocow: object = False,
) -> Volume:
    """Return the volume that a call asks for, with sizes in MiB unless they say their unit."""
    if not isinstance(name, str):
        raise BadArgument("name", f"{name!r} cannot name a volume")
    if type is not None and type not in TYPES:
        raise BadArgument("type", f"{type!r}; one of {', '.join(TYPES)}")
    return Volume(
        name=arguments.object_name("volume", name),
        type=None if type is None else str(type),
        capacity=size_of("size", size),
        allocation=size_of("allocation", allocation or 0),
        format=None if format is None else str(format),
        permissions=permissions.of(given_permissions),
        is_nocow=arguments.boolean("nocow", nocow or False),
        backing=_backing(backing_store),
    )


def size_of(argument: str, value: object) -> int:
    """Return a size in bytes, from MiB or a text with its unit."""
    found = size_bytes(value, argument)
    if found > _MOST:
        raise BadArgument(argument, f"{value!r} is more than libvirt can count")
    return found


def _backing(value: object) -> Backing | None:
    given = arguments.mapping("backing_store", value)
    if not given:
        return None
    arguments.refuse_unknown_keys("backing_store", given, ("path", "format"))
    if not given.get("path") or not given.get("format"):
        raise BadArgument(
            "backing_store", "give its path and its format: a format that is guessed is unsafe"
        )
    return Backing(path=str(given["path"]), format=str(given["format"]))


def build(volume: Volume) -> ET.Element:
    """Return the <volume>."""
    allocation = volume.allocation
    return tag(
        "volume",
        {"type": volume.type},
        tag("name", text=volume.name),
        leaf("key", volume.key),
        tag("capacity", {"unit": "bytes"}, text=volume.capacity),
        None if allocation is None else tag("allocation", {"unit": "bytes"}, text=allocation),
        tag(
            "target",
            None,
            leaf("path", volume.path),
            _format(volume.format),
            permissions.build(volume.permissions),
            tag("nocow") if volume.is_nocow else None,
        ),
        None
        if volume.backing is None
        else tag(
            "backingStore",
            None,
            tag("path", text=volume.backing.path),
            _format(volume.backing.format),
        ),
    )


def _format(kind: str | None) -> ET.Element | None:
    return None if kind is None else tag("format", {"type": kind})


def read(root: ET.Element) -> Volume:
    """Return what a <volume> says, as libvirt writes it: sizes in bytes."""
    target, backing = root.find("target"), root.find("backingStore")
    below = None if backing is None else backing.findtext("path")
    return Volume(
        name=root.findtext("name", ""),
        type=root.get("type"),
        key=root.findtext("key"),
        capacity=int(root.findtext("capacity", "0")),
        allocation=_whole(root.findtext("allocation")),
        path=root.findtext("target/path"),
        format=_read_format(target),
        permissions=permissions.read(root.find("target/permissions")),
        is_nocow=root.find("target/nocow") is not None,
        backing=Backing(path=below, format=_read_format(backing)) if below else None,
    )


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _read_format(element: ET.Element | None) -> str | None:
    kind = None if element is None else element.find("format")
    return None if kind is None else kind.get("type")


def describe(volume: Volume, used_by: list[str]) -> dict[str, Any]:
    """Return ``{type, key, path, capacity, allocation, used_by, backing_store, format}``."""
    backing = volume.backing
    return {
        "type": volume.type if volume.type in TYPES else "unknown",
        "key": volume.key,
        "path": volume.path,
        "capacity": volume.capacity,
        "allocation": volume.allocation,
        "used_by": used_by,
        "backing_store": backing and {"path": backing.path, "format": backing.format},
        "format": volume.format,
    }


def differences(there: Volume, wanted: Volume) -> list[str]:
    """Return what a volume that is there cannot be made without losing it: its format, its base."""
    out = []
    # Of what is in a volume group, say, libvirt knows no format, whatever was asked for.
    if there.format is not None and wanted.format not in (None, there.format):
        out.append("format")
    if not _is_same_base(there.backing, wanted.backing):
        out.append("backing store")
    return out


def _is_same_base(there: Backing | None, wanted: Backing | None) -> bool:
    if there is None or wanted is None:
        return there is wanted
    return there.path == wanted.path and there.format in (None, wanted.format)


def used(root: ET.Element) -> set[tuple[str, ...]]:
    """
    Return where the disks of a <domain>, and all that it says is below them, are.

    Each is ``("path", where)``, with the name of what lies elsewhere for a path as libvirt has it
    of volumes of RBD, or ``("volume", pool, name)``.
    """
    found = (source for one in root.iterfind("devices/disk") for source in one.iter("source"))
    return {where for source in found for where in _where(source)}


def _where(source: ET.Element) -> Iterator[tuple[str, ...]]:
    pool, name = source.get("pool"), source.get("volume")
    if pool and name:
        yield "volume", pool, name
    for key in ("file", "dev", "name"):
        path = source.get(key)
        if path:
            yield "path", path


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPlace:
    """Where a disk of a <domain> that is no file is: ``source`` and ``hosts`` are attributes."""

    type: str
    device: str
    is_readonly: bool
    source: dict[str, str]
    hosts: tuple[dict[str, str], ...]


def place_of(one: disk.Disk) -> DiskPlace:
    """Return where a disk is that is no file."""
    return DiskPlace(
        type=one.type or "",
        device=one.device,
        source=one.source or {},
        hosts=one.hosts,
        is_readonly=one.is_readonly,
    )


def places(root: ET.Element) -> list[DiskPlace]:
    """Return where the disks of a <domain> are that are no files; empty drives are nowhere."""
    return [
        DiskPlace(
            type=one.get("type", ""),
            device=one.get("device", "disk"),
            is_readonly=one.find("readonly") is not None,
            source=dict(source.attrib),
            hosts=tuple(dict(host.attrib) for host in source.iterfind("host")),
        )
        for one in root.iterfind("devices/disk")
        for source in one.iterfind("source")
        if one.get("type") in ("volume", "block", "network")
    ]
