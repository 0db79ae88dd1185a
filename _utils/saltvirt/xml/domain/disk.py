"""<disk>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.core import model
from saltvirt.xml import attributes_of, bag, leaf, tag, texts
from saltvirt.xml.domain import source


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """A file below a <disk>, as its definition names it."""

    type: str | None = None
    format: str | None = None
    source: dict[str, str]
    below: "Backing | None" = None

    @property
    def path(self) -> str | None:
        """The path of the file."""
        return source.path(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """The login for the server of a disk; ``secret`` are that element's attributes."""

    username: str | None = None
    secret: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """
    The content of a <disk>; ``driver``, ``source`` and ``target`` are their elements' attributes.

    ``hosts`` are the source's servers, ``auth`` is the login there, by a secret.
    """

    type: str | None = "file"
    device: str = "disk"
    driver: dict[str, str] | None = None
    source: dict[str, str] | None = None
    hosts: tuple[dict[str, str], ...] = ()
    auth: Auth | None = None
    backing: Backing | None = None
    target: dict[str, str] = field(default_factory=dict)
    is_readonly: bool = False
    serial: str | None = None

    @property
    def path(self) -> str | None:
        """The place of its content; None for an empty drive."""
        return source.path(self.source)

    @property
    def format(self) -> str:
        """Its format; libvirt takes a missing one for raw."""
        return (self.driver or {}).get("type", "raw")


def from_call(disk: model.Disk) -> Disk:
    """Return a disk, or an empty drive; the format is always given, so it is never probed."""
    is_drive = disk.device in ("cdrom", "floppy")
    remote_source = disk.elsewhere
    if disk.path is None and remote_source is None and not is_drive:
        raise AssertionError(f"disk {disk.name} has no path yet")
    driver = {
        "name": "qemu",
        "type": disk.format or "raw",
        **(_driver_of_3006(disk) if disk.is_3006 else _usual_driver(disk, is_drive)),
        "iothread": disk.iothread_id,
    }
    source_disk = _remote_disk(remote_source) if remote_source else _local_disk(disk.path)
    return replace(
        source_disk,
        device=disk.device,
        driver=texts(driver),
        target={"dev": disk.target, "bus": disk.bus},
        is_readonly=disk.device == "cdrom",
    )


def _driver_of_3006(disk: model.Disk) -> dict[str, str | None]:
    return {"io": disk.io or "native", "cache": "none"}


def _usual_driver(disk: model.Disk, is_drive: bool) -> dict[str, str | None]:
    # Native I/O needs a cache that bypasses the host's.
    cache = "none" if disk.io == "native" else None
    return {"io": disk.io, "cache": cache, "discard": None if is_drive else "unmap"}


def _local_disk(path: str | None) -> Disk:
    """Return a disk that is a file or a device of the host, or an empty drive."""
    if path is None:
        return Disk()
    is_block = path.startswith("/dev/")
    return Disk(type="block" if is_block else "file", source={"dev" if is_block else "file": path})


def _remote_disk(remote_source: model.RemoteSource) -> Disk:
    auth = _auth(remote_source.auth)
    return Disk(
        type=remote_source.type,
        source=dict(remote_source.source),
        hosts=remote_source.hosts,
        auth=auth,
    )


def _auth(attributes: dict[str, str] | None) -> Auth | None:
    if attributes is None:
        return None
    secret = {key: value for key, value in attributes.items() if key != "username"}
    return Auth(username=attributes["username"], secret=secret)


def seed(path: str, target: str) -> Disk:
    """
    Return the disk of a NoCloud seed.

    A virtio disk, because cloud kernels have no AHCI; writable, because the guest wipes its private
    key off it. The format is in the file's name, and not probed: the guest may write anything.
    """
    return Disk(
        driver={"name": "qemu", "type": "qcow2" if path.endswith(".qcow2") else "raw"},
        source={"file": path},
        target={"dev": target, "bus": "virtio"},
        serial="saltvirt-seed",
    )


def build(disk: Disk) -> ET.Element:
    """Return the <disk>."""
    return tag(
        "disk",
        {"type": disk.type, "device": disk.device},
        bag("driver", disk.driver),
        None
        if disk.source is None
        else tag(
            "source",
            disk.source,
            *(tag("host", host) for host in disk.hosts),
            None
            if disk.auth is None
            else tag("auth", {"username": disk.auth.username}, tag("secret", disk.auth.secret)),
        ),
        _build_backing(disk.backing),
        tag("target", disk.target),
        tag("readonly") if disk.is_readonly else None,
        leaf("serial", disk.serial),
    )


def read(element: ET.Element) -> Disk:
    """Return the content of a <disk>."""
    source_ = element.find("source")
    source_tag = tag("source") if source_ is None else source_
    return Disk(
        type=element.get("type"),
        device=element.get("device", "disk"),
        driver=attributes_of(element.find("driver")),
        source=attributes_of(source_),
        hosts=tuple(dict(host.attrib) for host in source_tag.findall("host")),
        auth=_read_auth(source_tag.find("auth")),
        backing=_read_backing(element.find("backingStore")),
        target=attributes_of(element.find("target")) or {},
        is_readonly=element.find("readonly") is not None,
        serial=element.findtext("serial") or None,
    )


def _read_auth(auth: ET.Element | None) -> Auth | None:
    if auth is None:
        return None
    secret = attributes_of(auth.find("secret")) or {}
    return Auth(username=auth.get("username"), secret=secret)


def _build_backing(backing: Backing | None) -> ET.Element | None:
    if backing is None:
        return None
    kind = tag("format", {"type": backing.format}) if backing.format is not None else None
    source_ = tag("source", backing.source)
    return tag("backingStore", {"type": backing.type}, kind, source_, _build_backing(backing.below))


def _read_backing(store: ET.Element | None) -> Backing | None:
    # An empty element marks the end of the chain.
    origin = attributes_of(store.find("source")) if store is not None else None
    if store is None or origin is None:
        return None
    kind = store.find("format")
    return Backing(
        type=store.get("type"),
        format=kind.get("type") if kind is not None else None,
        source=origin,
        below=_read_backing(store.find("backingStore")),
    )


def describe(disk: Disk) -> dict[str, Any]:
    """Return ``{target, device, type, path, format, backing, is_readonly}``."""
    backing = disk.backing
    return {
        "target": disk.target.get("dev"),
        "device": disk.device,
        "type": disk.type,
        "path": disk.path,
        "format": disk.format,
        "backing": backing and {"path": backing.path, "format": backing.format},
        "is_readonly": disk.is_readonly,
    }
