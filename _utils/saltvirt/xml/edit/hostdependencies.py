"""What a domain uses of its host besides the files of disks and of firmware."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from saltvirt.xml.domain import disk, tpm

# Types of disks without a path, with descriptions for users.
_SOCKET = "behind a socket of this host"
_PATHLESS = {"nvme": "an NVMe device of this host", "vhostuser": _SOCKET}
_PERSISTENT = ("nvdimm", "virtio-pmem")
# For an emulated TPM see saltvirt.xml.domain.tpm.state.
_TPMS = ("passthrough", "external")


def disks(root: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield ``(target, description)`` of the disks that are no file, volume or network disk."""
    for vm_disk in map(disk.read, root.iterfind("devices/disk")):
        is_local = any(host.get("transport") == "unix" for host in vm_disk.hosts)
        description = _SOCKET if is_local else _PATHLESS.get(vm_disk.type or "")
        if description is not None:
            yield vm_disk.target.get("dev", "?"), description


def folders(root: ET.Element) -> list[str]:
    """Return the folders that a guest shares with its host, or the sockets for that."""
    sources = (filesystem.find("source") for filesystem in root.iterfind("devices/filesystem"))
    paths = (source.get("dir") or source.get("socket") for source in sources if source is not None)
    return [path for path in paths if path]


def memories(root: ET.Element) -> list[str]:
    """Return the files of a guest's persistent memory, and of its records of crashes."""
    paths = [
        memory.findtext("source/path")
        for memory in root.iterfind("devices/memory")
        if memory.get("model") in _PERSISTENT
    ]
    paths += [pstore.findtext("path") for pstore in root.iterfind("devices/pstore")]
    return [path for path in paths if path]


def has_tpm(root: ET.Element) -> bool:
    """Return whether a VM's TPM is a device, or a program, of the host."""
    backends = (tpm.read(element).backend for element in root.iterfind("devices/tpm"))
    return any(
        backend is not None and backend.attributes.get("type") in _TPMS for backend in backends
    )
