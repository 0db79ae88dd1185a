"""
<pool>: the place of a storage pool's volumes, and their source.

:func:`differences` ignores what libvirt itself fills in: defaults, and what it has read from the
folder.
"""

import copy
import posixpath
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields
from saltvirt.xml.storage import permissions, poolsource

# The parts of a source that a pool of each type takes.
TAKES = {
    "dir": {"dir"},
    "fs": {"devices", "format"},
    "netfs": {"hosts", "dir", "format"},
    "logical": {"devices", "name", "format"},
    "disk": {"devices", "format"},
    "iscsi": {"hosts", "devices", "auth", "initiator"},
    "iscsi-direct": {"hosts", "devices", "auth", "initiator"},
    "scsi": {"adapter"},
    "mpath": set[str](),
    "rbd": {"hosts", "name", "auth"},
    "sheepdog": {"hosts", "name"},
    "gluster": {"hosts", "dir", "name"},
    "zfs": {"devices", "name"},
    "vstorage": {"devices", "name"},
}
# The parts without which libvirt refuses a pool.
_NEEDS = {
    "fs": ("devices",),
    "netfs": ("hosts", "dir"),
    "disk": ("devices",),
    "iscsi": ("hosts", "devices"),
    "iscsi-direct": ("hosts", "devices", "initiator"),
    "scsi": ("adapter",),
    "rbd": ("hosts",),
    "sheepdog": ("hosts",),
    "gluster": ("hosts",),
}
# Types with devices at a place that libvirt chooses.
_DEVICES = {"logical": "/dev/{}", "zfs": "/dev/zvol/{}"}
# Other places of a volume group's volumes, with each hyphen of a name doubled.
_MAPPED = ("/dev/mapper/", "/dev/disk/by-id/dm-name-")
_MOUNTED = ("fs", "netfs", "vstorage")
_TARGETLESS = (*_DEVICES, "rbd", "sheepdog", "gluster", "iscsi-direct")
# The formats that libvirt writes if none is given; building a disk pool turns "unknown" into "dos".
_FORMATS = {
    "fs": ("auto",),
    "netfs": ("auto",),
    "logical": ("lvm2", "unknown"),
    "disk": ("unknown", "dos"),
}
_POOL_ELEMENTS = {"name", "uuid", "capacity", "allocation", "available", "source", "target"}
_SOURCE_ELEMENTS = {"host", "device", "dir", "adapter", "auth", "name", "format", "initiator"}


@element.declare("pool")
class Pool:
    """The content of a <pool>; ``permissions``: what it has of mode, owner, group and label."""

    type: str = fields.attribute("@type", missing="")
    name: str = fields.text("name", missing="")
    uuid: str | None = fields.text("uuid", default=None)
    source: poolsource.Source = fields.child(default_factory=poolsource.Source)
    target: str | None = fields.text("target/path", default=None)
    permissions: dict[str, str] | None = fields.tagged(
        "target/permissions", *permissions.KEYS, form=permissions.FORM, default=None
    )


build, read = element.build, element.reader(Pool)


def from_call(
    name: str,
    ptype: str,
    target: str | None = None,
    requested_permissions: object = None,
    source: Mapping[str, Any] | None = None,
) -> Pool:
    """
    Return the pool that a call describes; raise BadArgument if it cannot be one.

    source
        ``devices``, ``dir``, ``initiator``, ``adapter``, ``hosts``, ``auth``, ``name``, ``format``;
        keys that pools of this type do not take are ignored. For an ``auth`` with a password the
        pool refers to libvirt's secret of the usage ``pool_NAME``.
    """
    if not isinstance(ptype, str) or ptype not in TAKES:
        raise BadArgument("ptype", f"{ptype!r}; one of {', '.join(TAKES)}")
    if target is not None and not str(target).startswith("/"):
        raise BadArgument("target", f"{target!r} is not an absolute path")
    name = arguments.object_name("pool", name)
    source_options = source or {}
    arguments.refuse_unknown_keys("source", source_options, poolsource.KEYS)
    type_options = {key: source_options.get(key) for key in TAKES[ptype]}
    if "name" in type_options:
        # libvirt's own default.
        type_options["name"] = type_options["name"] or name
    return Pool(
        type=ptype,
        name=name,
        source=poolsource.from_call(name, ptype, type_options),
        target=_target(ptype, target, type_options.get("name")),
        permissions=permissions.from_call(requested_permissions) if _has_folder(ptype) else None,
    )


def _has_folder(ptype: str) -> bool:
    """Return whether libvirt keeps a folder and its permissions for a pool of this type."""
    return ptype not in _TARGETLESS or ptype in _DEVICES


def _target(ptype: str, target: object, source_name: object) -> str | None:
    if ptype in _TARGETLESS:
        return _DEVICES[ptype].format(source_name) if ptype in _DEVICES else None
    return None if target is None else poolsource.clean(str(target))


def refuse_incomplete(pool: Pool) -> None:
    """Raise BadArgument if a pool lacks something that libvirt needs to define it."""
    if pool.target is None and pool.type not in _TARGETLESS:
        raise BadArgument("target", f"is missing; a pool of type {pool.type} has a folder")
    missing = [key for key in _NEEDS.get(pool.type, ()) if not getattr(pool.source, key)]
    if missing:
        raise BadArgument(
            "source", f"{', '.join(missing)}: missing; a pool of type {pool.type} needs it"
        )


def complete(requested: Pool, old: Pool, *, has_source: bool) -> Pool:
    """
    Return the requested pool, with the values of its definition that a call leaves out.

    has_source
        Whether the call gives a source; without one the old one stays.
    """
    is_same_type = requested.type == old.type
    return replace(
        requested,
        uuid=old.uuid,
        target=requested.target or (old.target if is_same_type else None),
        source=requested.source if has_source or not is_same_type else old.source,
    )


def differences(old: Pool, requested: Pool, *, runs: bool = False) -> list[str]:
    """
    Return the keys in which a definition must change: ``type``, ``target``, ``source:hosts``, ...

    runs
        Whether the pool is active. Defaults to False.
    """
    # For a mounted pool libvirt reports the permissions of the file system, which it never sets.
    is_mounted = runs and requested.type in _MOUNTED
    requested_permissions = {} if is_mounted else requested.permissions or {}
    old_permissions = old.permissions or {}
    old_values, new_values = _comparable_values(old), _comparable_values(requested)
    out = [key for key, value in new_values.items() if old_values[key] != value]
    if any(old_permissions.get(key) != value for key, value in requested_permissions.items()):
        out.append("permissions")
    return out


def _comparable_values(pool: Pool) -> dict[str, Any]:
    """Return the values to compare, with libvirt's own defaults filled in."""
    source, kind = pool.source, pool.type
    formats = _FORMATS.get(kind, ())
    adapter = source.adapter
    return {
        "type": kind,
        "target": None if kind in _TARGETLESS else pool.target,
        "source:hosts": [(host.get("name"), host.get("port")) for host in source.hosts],
        "source:devices": [
            (device.get("path"), device.get("part_separator")) for device in source.devices
        ],
        "source:dir": (source.dir or ("/" if kind == "gluster" else None))
        if kind != "dir"
        else None,
        "source:adapter": None if adapter is None else _plain_adapter(adapter),
        "source:auth": source.auth,
        "source:name": (source.name or pool.name) if "name" in TAKES.get(kind, ()) else None,
        "source:format": None if source.format in formats else source.format,
        "source:initiator": source.initiator,
    }


def _plain_adapter(adapter: poolsource.Adapter) -> Any:
    kind = adapter.attributes.get("type") or (
        "fc_host" if "wwnn" in adapter.attributes else "scsi_host"
    )
    address = {key: _number(value) for key, value in (adapter.address or {}).items()}
    # libvirt writes ``managed`` only for an adapter that it has made itself.
    attributes = {**adapter.attributes, "type": kind}
    return attributes, adapter.unique_id, address


def _number(text: str) -> int | str:
    try:
        return int(text, 0)
    except ValueError:
        return text


def build_changed(root: ET.Element, requested: Pool) -> ET.Element:
    """
    Return the requested <pool> with all else of its definition: its UUID, ``<features>``, ...

    Permissions that a call leaves out stay.
    """
    old = read(root)
    merged_permissions = {**(old.permissions or {}), **(requested.permissions or {})}
    new = build(replace(requested, uuid=old.uuid, permissions=merged_permissions or None))
    new.extend(copy.deepcopy(part) for part in root if part.tag not in _POOL_ELEMENTS)
    source, old_source = new.find("source"), root.find("source")
    if source is not None and old_source is not None and old.type == requested.type:
        source.extend(
            copy.deepcopy(element) for element in old_source if element.tag not in _SOURCE_ELEMENTS
        )
    return new


def has_device(pool: Pool, path: str) -> bool:
    """Return whether a path is a volume of a volume group, by any of its names."""
    if pool.target and path.startswith(posixpath.join(pool.target, "")):
        return True
    if pool.type != "logical":
        return False
    group = (pool.source.name or pool.name).replace("-", "--")
    # A name that begins with group-- is of another group.
    return any(
        path.startswith(f"{place}{group}-") and not path.startswith(f"{place}{group}--")
        for place in _MAPPED
    )


def is_same_group(first: Pool, second: Pool) -> bool:
    """Return whether two pools are of the same volume group."""
    return (first.type, first.source.name or first.name) == (
        second.type,
        second.source.name or second.name,
    )


def folder(root: ET.Element) -> str | None:
    """Return the folder of a pool with files as volumes; None for another pool."""
    is_files = root.get("type") in ("dir", "fs", "netfs", "vstorage")
    return root.findtext("target/path") if is_files else None


def volume_path(root: ET.Element, volume: str) -> str | None:
    """Return the path of a volume in a pool with files as volumes; None for another pool."""
    folder_path = folder(root)
    return None if folder_path is None else posixpath.join(folder_path, volume)
