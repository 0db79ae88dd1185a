"""The disk with a guest's minion, and the tool that opens it while the VM is off."""

import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.seedmethods import GUESTFS, NBD
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import inspection
from saltvirt.seeding.offline import appliance
from saltvirt.storage import diskpaths
from saltvirt.xml.edit import copied, readdomain

_FORMATS = ("qcow2", "raw")
WITHOUT_GUEST = (
    "with seed=False the VM is renamed without its guest, in which you then rename the minion"
)
_FAILED = "the guest's minion cannot be renamed while the VM is off"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestDisk:
    """The disk with the guest's minion, and the seed method that opens it."""

    path: str
    format: str
    via: str
    use_kvm: bool


def find(conn: Any, settings: HostSettings, root: ET.Element) -> GuestDisk:
    """Return the disk that a VM boots from; raise StorageError if it cannot be written to."""
    path, fmt = _find_file(conn, root)
    if diskpaths.is_open(path):
        raise StorageError(f"{path} is open in another program; stop that first")
    missing_reason = appliance.why_missing(inspection.python(settings))
    if missing_reason and settings.seed.get("allow_host_mount") is not True:
        raise StorageError(f"{_FAILED}: {missing_reason}; {WITHOUT_GUEST}")
    via = NBD.name if missing_reason else GUESTFS.name
    return GuestDisk(path=path, format=fmt, via=via, use_kvm=root.get("type") == "kvm")


def _find_file(conn: Any, root: ET.Element) -> tuple[str, str]:
    """Return the file of a VM's boot disk, and its format by the definition."""
    target = copied.find_boot_target(root)
    for disk in readdomain.disks(root):
        path = lifecycle.find_disk_file(conn, disk.path or "")
        if disk.target.get("dev") != target or not path:
            continue
        # Do not probe: a guest may have written another format's header into a raw disk.
        if disk.format in _FORMATS and os.path.isfile(path):
            return path, str(disk.format)
        raise StorageError(f"{_FAILED}: its disk {path} is no qcow2 or raw file; {WITHOUT_GUEST}")
    raise StorageError(f"{_FAILED}: it has no disk; {WITHOUT_GUEST}")
