"""A VM's disks as ``virt.get_disks`` and ``virt.vm_info`` show them, without subprocesses."""

import copy
import datetime
import os
import posixpath
import re
import stat
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlunsplit

from saltvirt.core.errors import ImageError
from saltvirt.libvirt.storage.diskvolumes import Pools
from saltvirt.storage.images import headers, qcow2
from saltvirt.xml.domain.disk import Backing, Disk
from saltvirt.xml.edit import readdomain
from saltvirt.xml.storage.storagevolume import Volume

# QEMU itself refuses chains that are much longer.
_DEPTH = 64
_ZVOL = "/dev/zvol/"
# QEMU takes such a prefix for a protocol; remote files are not read here.
_PROTOCOL = re.compile("[^/]*:")
_UNREADABLE = {"error": "the file is missing or cannot be read"}


class Disks:
    """The disks of many VMs: pools are listed once, and a shared base image is read once."""

    def __init__(self, conn: Any) -> None:
        self._pools = Pools(conn)
        self._below: dict[tuple[str, str], dict[str, Any]] = {}

    def describe(
        self, root: ET.Element, blocks: Mapping[str, Mapping[str, int]]
    ) -> dict[str, dict[str, Any]]:
        """
        Return ``{target: {file, type, file format, virtual size, disk size, ...}}``; in bytes.

        blocks
            ``{target: {capacity, allocation, physical}}`` of a running VM.

        Empty drives are left out. A volume is ``POOL/VOLUME``, with the sizes from its pool; a
        remote medium is its URL. A file has the facts of its header: ``cluster size``,
        ``snapshots`` and ``backing file``, which has the same facts of the file below.
        """
        return {
            disk.target["dev"]: self._disk(disk, blocks.get(disk.target["dev"]))
            for disk in readdomain.disks(root)
            if disk.path
        }

    def _disk(self, disk: Disk, stats: Mapping[str, int] | None) -> dict[str, Any]:
        path = disk.path or ""
        if disk.type == "file" and path.startswith(_ZVOL):
            return {"file": path, "zfs": True}
        out: dict[str, Any] = {"file": path, "type": disk.device}
        if "type" in (disk.driver or {}):
            out["file format"] = disk.format
        named_volume = self._pools.volume(disk)
        if named_volume is not None and named_volume[1] is None and disk.type == "file":
            # The pool does not run; the file's header may be readable all the same.
            return {**out, **self._of_here(disk, stats), "file": named_volume[0]}
        if named_volume is not None:
            return {**out, "file": named_volume[0], **_describe_volume(disk, named_volume[1])}
        if disk.type == "network":
            return {**out, "file": _describe_remote(disk), **_running_sizes(stats, {})}
        return {**out, **self._of_here(disk, stats)}

    def _of_here(self, disk: Disk, stats: Mapping[str, int] | None) -> dict[str, Any]:
        is_file = disk.type == "file"
        facts = self._of_file(disk.path or "", disk.format, _DEPTH) if is_file else {}
        # Only QEMU may be able to read the file; libvirt still knows a running VM's sizes.
        chain = _describe_chain(disk.backing)
        if facts is None and stats is None:
            return {**chain, **_UNREADABLE}
        return {**chain, **(facts or {}), **_running_sizes(stats, facts or {})}

    def _of_file(self, path: str, fmt: str, depth: int) -> dict[str, Any] | None:
        """Return the facts of a file's header and backing chain; None if it cannot be read."""
        if fmt not in ("raw", "qcow2"):
            return _read_foreign_sizes(path, fmt)
        try:
            status = os.stat(path)
            header, snapshots = _read_header(path, status.st_mode) if fmt == "qcow2" else (None, [])
        # The name may be no valid path, by its length or its characters.
        except (OSError, ValueError, ImageError):
            return None
        out: dict[str, Any] = {
            "virtual size": header.size_bytes if header else status.st_size,
            "disk size": status.st_blocks * 512,
            "cluster size": header.cluster_bytes if header else None,
        }
        if snapshots:
            out["snapshots"] = [_describe_snapshot(snapshot) for snapshot in snapshots]
        if header and header.backing_file:
            out["backing file"] = self._of_backing(path, header, depth - 1)
        return out

    def _of_backing(self, path: str, header: qcow2.Header, depth: int) -> dict[str, Any]:
        name, fmt = header.backing_file or "", header.backing_format or ""
        if _PROTOCOL.match(name):
            return {"file": name, "file format": fmt}
        backing_path = posixpath.join(posixpath.dirname(path), name)
        backing = {"file": backing_path, "file format": fmt}
        if not depth:
            return backing
        # Without a stated format, QEMU probes for a header too.
        path_and_format = backing_path, fmt or "qcow2"
        if path_and_format not in self._below:
            self._below[path_and_format] = self._of_file(*path_and_format, depth) or _UNREADABLE
        return {**backing, **copy.deepcopy(self._below[path_and_format])}


def _read_foreign_sizes(path: str, fmt: str) -> dict[str, Any] | None:
    """Return the sizes of a file of another format; the file's length is not its virtual size."""
    try:
        status = os.stat(path)
        sizes = headers.foreign_sizes(path, fmt) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None
    known_sizes = {"virtual size": sizes.virtual, "cluster size": sizes.cluster} if sizes else {}
    return {**known_sizes, "disk size": status.st_blocks * 512}


def _running_sizes(stats: Mapping[str, int] | None, facts: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes that QEMU reports; prefer the disk size found on the file itself."""
    if not stats:
        return {}
    return {
        "virtual size": stats["capacity"],
        "disk size": facts.get("disk size", stats["allocation"]),
    }


def _describe_remote(disk: Disk) -> str:
    """Return a remote medium as its URL, any other disk of a network as ``PROTOCOL:NAME``."""
    source = disk.source or {}
    protocol, name = source.get("protocol", ""), source.get("name", "")
    if disk.device != "cdrom" or not disk.hosts:
        return f"{protocol}:{name}" if name else protocol
    host = disk.hosts[0].get("name", "")
    port = disk.hosts[0].get("port")
    authority = f"{host}:{port}" if port else host
    return urlunsplit((protocol, authority, name, source.get("query", ""), ""))


def _describe_volume(disk: Disk, volume: Volume | None) -> dict[str, Any]:
    if volume is None:
        return {}
    sizes = {"virtual size": volume.capacity, "disk size": volume.allocation}
    if disk.backing is not None or volume.backing is None:
        return {**sizes, **_describe_chain(disk.backing)}
    kind = {"file format": volume.backing.format} if volume.backing.format else {}
    return {**sizes, "backing file": {"file": volume.backing.path, **kind}}


def _describe_chain(backing: Backing | None) -> dict[str, Any]:
    """Return the backing chain that libvirt reports for a disk."""
    if backing is None:
        return {}
    backing_file = {"file": backing.path, "file format": backing.format or ""}
    return {"backing file": {**backing_file, **_describe_chain(backing.below)}}


def _read_header(path: str, mode: int) -> tuple[qcow2.Header | None, list[qcow2.Snapshot]]:
    if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
        # Opening a pipe would block until a writer opens it.
        raise ImageError(f"{path} is not a file")
    header = qcow2.read(path)
    return header, qcow2.snapshots(path) if header and header.has_snapshots else []


def _describe_snapshot(snapshot: qcow2.Snapshot) -> dict[str, Any]:
    clock = datetime.datetime.min + datetime.timedelta(microseconds=snapshot.vm_clock_ns // 1000)
    return {
        "id": snapshot.id,
        "tag": snapshot.name,
        "vmsize": snapshot.vm_state_bytes,
        "date": datetime.datetime.fromtimestamp(snapshot.time_s).isoformat(),
        "vmclock": clock.time().isoformat(),
    }
