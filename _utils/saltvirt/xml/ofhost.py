"""What a domain has of its host beside files of disks and of firmware."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from saltvirt.xml import disk, tpm

# Types of disks that have no path: what they are, for whoever reads of them.
_SOCKET = "behind a socket of this host"
_PATHLESS = {"nvme": "an NVMe device of this host", "vhostuser": _SOCKET}
_PERSISTENT = ("nvdimm", "virtio-pmem")
# Of an emulated one see saltvirt.xml.tpm.state.
_TPMS = ("passthrough", "external")


def disks(root: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield ``(target, what it is)`` of the disks that no file, volume or network has."""
    for vm_disk in map(disk.read, root.iterfind("devices/disk")):
        is_local = any(host.get("transport") == "unix" for host in vm_disk.hosts)
        description = _SOCKET if is_local else _PATHLESS.get(vm_disk.type or "")
        if description is not None:
            yield vm_disk.target.get("dev", "?"), description


def folders(root: ET.Element) -> list[str]:
    """Return the folders that a guest shares with its host, or the sockets by which it does."""
    sources = (filesystem.find("source") for filesystem in root.iterfind("devices/filesystem"))
    paths = (source.get("dir") or source.get("socket") for source in sources if source is not None)
    return [path for path in paths if path]


def memories(root: ET.Element) -> list[str]:
    """Return the files that are a guest's persistent memory, or keep what it notes of a crash."""
    paths = [
        memory.findtext("source/path")
        for memory in root.iterfind("devices/memory")
        if memory.get("model") in _PERSISTENT
    ]
    paths += [pstore.findtext("path") for pstore in root.iterfind("devices/pstore")]
    return [path for path in paths if path]


def has_tpm(root: ET.Element) -> bool:
    """Return whether a TPM is a device, or a program, of the host."""
    backends = (tpm.read(element).backend for element in root.iterfind("devices/tpm"))
    return any(
        backend is not None and backend.attributes.get("type") in _TPMS for backend in backends
    )
