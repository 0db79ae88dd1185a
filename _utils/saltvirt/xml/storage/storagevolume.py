"""<volume>: a volume of a pool."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.units import size_bytes
from saltvirt.xml import element, fields, tag
from saltvirt.xml.domain import disk
from saltvirt.xml.storage import permissions

TYPES = ("file", "block", "dir", "network", "netdir", "ploop")
# Formats with a header that may name other files. The others have none: an ISO, and libvirt's names
# for partitions and LUNs by their content (linux, gpt).
_WITH_HEADERS = "bochs cloop dmg vpc vdi vhd ploop cow qcow qcow2 qed vmdk".split()
# The limit of libvirt's number.
_MOST = 2**63 - 1


def _write_bytes(size: ET.Element, amount: int) -> None:
    size.set("unit", "bytes")
    size.text = str(amount)


# A size as libvirt writes it.
_BYTES = fields.Form(lambda size: int(size.text) if size.text else None, _write_bytes)


@element.declare("backingStore")
class Backing:
    """The file below a volume."""

    path: str = fields.text("path", is_needed=True)
    format: str | None = fields.attribute("format/@type", default=None)


@element.declare("volume")
class Volume:
    """The content of a <volume>; sizes in bytes. libvirt sets ``key`` and ``path``."""

    type: str | None = fields.attribute("@type", default=None)
    name: str = fields.text("name", missing="")
    key: str | None = fields.text("key", default=None)
    capacity: int = fields.value("capacity", _BYTES, missing=0)
    allocation: int | None = fields.value("allocation", _BYTES, default=None)
    path: str | None = fields.text("target/path", default=None)
    format: str | None = fields.attribute("target/format/@type", default=None)
    permissions: dict[str, str] | None = fields.tagged(
        "target/permissions", *permissions.KEYS, form=permissions.FORM, default=None
    )
    is_nocow: bool = fields.presence("target/nocow", default=False)
    backing: Backing | None = fields.child(default=None)


read = element.reader(Volume)


def build(volume: Volume) -> ET.Element:
    """Return the <volume>, with the <target> that libvirt's schema demands, even an empty one."""
    volume_element = element.build(volume)
    if volume_element.find("target") is None:
        volume_element.append(tag("target"))
    return volume_element


def from_call(
    name: str,
    size: object,
    *,
    allocation: object = 0,
    format: object = None,
    type: object = None,
    requested_permissions: object = None,
    backing_store: object = None,
    nocow: object = False,
) -> Volume:
    """Return the volume that a call describes; sizes are in MiB unless they have a unit."""
    if not isinstance(name, str) or not name.strip() or "\n" in name:
        raise BadArgument("name", f"{name!r} cannot name a volume: give a text without line breaks")
    if type is not None and type not in TYPES:
        raise BadArgument("type", f"{type!r}; one of {', '.join(TYPES)}")
    return Volume(
        # The name of a volume of RBD or ZFS may have slashes.
        name=name,
        type=None if type is None else str(type),
        capacity=size_of("size", size),
        allocation=size_of("allocation", allocation or 0),
        format=None if format is None else str(format),
        permissions=permissions.from_call(requested_permissions),
        is_nocow=arguments.boolean("nocow", nocow or False),
        backing=_backing(backing_store),
    )


def has_header(fmt: str | None) -> bool:
    """Return whether libvirt follows the header when it copies a volume of a format."""
    return fmt in _WITH_HEADERS


def size_of(argument: str, value: object) -> int:
    """Return a size in bytes, from MiB or a text with its unit."""
    size = size_bytes(value, argument)
    if size > _MOST:
        raise BadArgument(argument, f"{value!r} is above libvirt's limit, {_MOST} bytes")
    return size


def _backing(value: object) -> Backing | None:
    options = arguments.mapping("backing_store", value)
    if not options:
        return None
    arguments.refuse_unknown_keys("backing_store", options, ("path", "format"))
    if not options.get("path") or not options.get("format"):
        raise BadArgument(
            "backing_store", "give its path and its format: a format that is guessed is unsafe"
        )
    return Backing(path=str(options["path"]), format=str(options["format"]))


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


def differences(current: Volume, requested: Volume) -> list[str]:
    """Return the parts that cannot change without losing an existing volume: format, base."""
    out = []
    # libvirt knows no format of a volume in a volume group, for example, even if one was requested.
    if current.format is not None and requested.format not in (None, current.format):
        out.append("format")
    if not _is_same_base(current.backing, requested.backing):
        out.append("backing store")
    return out


def _is_same_base(current: Backing | None, requested: Backing | None) -> bool:
    if current is None or requested is None:
        return current is requested
    return current.path == requested.path and current.format in (None, requested.format)


def find_used_locations(root: ET.Element) -> set[tuple[str, ...]]:
    """
    Return the places of the disks of a <domain>, and of the chains below them in its XML.

    Each is ``("path", name)``, also for a name that is no path, such as libvirt's of volumes of
    RBD, or ``("volume", pool, name)``.
    """
    sources = (
        source for element in root.iterfind("devices/disk") for source in element.iter("source")
    )
    return {location for source in sources for location in _find_locations(source)}


def _find_locations(source: ET.Element) -> Iterator[tuple[str, ...]]:
    pool, name = source.get("pool"), source.get("volume")
    if pool and name:
        yield "volume", pool, name
    for key in ("file", "dev", "name"):
        path = source.get(key)
        if path:
            yield "path", path


def places(root: ET.Element) -> list[disk.Disk]:
    """Return the disks of a <domain> that are no files, without empty drives."""
    return [
        vm_disk
        for vm_disk in map(disk.read, root.iterfind("devices/disk"))
        if vm_disk.source is not None and vm_disk.type in ("volume", "block", "network")
    ]
