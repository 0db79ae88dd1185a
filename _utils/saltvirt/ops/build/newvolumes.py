"""Make the volume of a disk in a pool that is no folder, and write an image into it."""

from typing import Any

from saltvirt.errors import StorageError
from saltvirt.image import tool
from saltvirt.kvm import volumes
from saltvirt.kvm.connect import libvirt
from saltvirt.ops.build.plandisks import DiskVolume
from saltvirt.xml.volume import Volume


def make(conn: Any, volume: DiskVolume) -> None:
    """Make a volume; libvirt says why it cannot."""
    if volume.size_bytes is None:
        raise AssertionError(f"volume {volume.where} is there already")
    wanted = Volume(
        name=volume.name, capacity=volume.size_bytes, allocation=0, backing=volume.backing
    )
    try:
        volumes.define(conn, volume.pool, wanted)
    except libvirt.libvirtError as exc:
        raise StorageError(f"cannot make volume {volume.where}: {exc}") from exc


def fill(volume: DiskVolume) -> None:
    """Write the image of a volume that was just made into it, if it has one."""
    if volume.base is None:
        return
    if volume.path is None:
        raise AssertionError(f"volume {volume.where} is no device")
    tool.write_over(volume.base.path, volume.base.format, volume.path)
