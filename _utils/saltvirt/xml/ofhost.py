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
    for one in map(disk.read, root.iterfind("devices/disk")):
        is_local = any(there.get("transport") == "unix" for there in one.hosts)
        what = _SOCKET if is_local else _PATHLESS.get(one.type or "")
        if what is not None:
            yield one.target.get("dev", "?"), what


def folders(root: ET.Element) -> list[str]:
    """Return the folders that a guest shares with its host, or the sockets by which it does."""
    sources = (one.find("source") for one in root.iterfind("devices/filesystem"))
    found = (one.get("dir") or one.get("socket") for one in sources if one is not None)
    return [path for path in found if path]


def memories(root: ET.Element) -> list[str]:
    """Return the files that are a guest's persistent memory, or keep what it notes of a crash."""
    found = [
        one.findtext("source/path")
        for one in root.iterfind("devices/memory")
        if one.get("model") in _PERSISTENT
    ]
    found += [one.findtext("path") for one in root.iterfind("devices/pstore")]
    return [path for path in found if path]


def has_tpm(root: ET.Element) -> bool:
    """Return whether a TPM is a device, or a program, of the host."""
    backends = (tpm.read(one).backend for one in root.iterfind("devices/tpm"))
    return any(one is not None and one.attributes.get("type") in _TPMS for one in backends)
