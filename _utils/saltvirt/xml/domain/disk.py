"""<disk>."""

from dataclasses import replace
from typing import Any

from saltvirt.core import model
from saltvirt.xml import element, fields, texts
from saltvirt.xml.domain import source

SEED_BUS = "virtio"


@element.declare("backingStore")
class Backing:
    """A file below a <disk>, as its definition names it."""

    type: str | None = fields.attribute("@type", default=None)
    format: str | None = fields.attribute("format/@type", default=None)
    # An element without a source marks the end of the chain.
    source: dict[str, str] = fields.bag("source", is_needed=True)
    below: "Backing | None" = fields.child(default=None)

    @property
    def path(self) -> str | None:
        """The path of the file."""
        return source.path(self.source)


@element.declare("auth")
class Auth:
    """The login for the server of a disk; ``secret`` are that element's attributes."""

    username: str | None = fields.attribute("@username", default=None)
    secret: dict[str, str] = fields.bag("secret", default_factory=dict)


@element.declare("disk")
class Disk:
    """
    The content of a <disk>; ``driver``, ``source`` and ``target`` are their elements' attributes.

    ``hosts`` are the source's servers, ``auth`` is the login there, by a secret.
    """

    type: str | None = fields.attribute("@type", default="file")
    device: str = fields.attribute("@device", missing="disk", default="disk")
    driver: dict[str, str] | None = fields.bag("driver", default=None)
    source: dict[str, str] | None = fields.bag("source", default=None)
    hosts: tuple[dict[str, str], ...] = fields.values("source/host", default=())
    auth: Auth | None = fields.child("source", default=None)
    backing: Backing | None = fields.child(default=None)
    target: dict[str, str] = fields.bag("target", default_factory=dict)
    is_readonly: bool = fields.presence("readonly", default=False)
    serial: str | None = fields.text("serial", default=None)

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
        target={"dev": target, "bus": SEED_BUS},
        serial="saltvirt-seed",
    )


build, read = element.build, element.reader(Disk)


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
