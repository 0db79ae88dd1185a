"""Pools of folders, and their files as volumes; a move has another host's files written so."""

import os
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path

import libvirt
from saltvirt.storage import diskpaths

from swarmkit.standin import texts
from swarmkit.standin.refusals import Refusing, check, refusal


def made(text):
    """Return ``(name, pool as it is kept)`` of XML; only a folder's can be made."""
    root = ET.fromstring(text)
    if root.get("type") != "dir":
        raise refusal("NO_SUPPORT", f"pool type '{root.get('type')}' is not supported")
    folder = root.findtext("target/path")
    if not folder:
        raise refusal("XML_ERROR", "XML error: missing storage pool target path")
    if root.find("uuid") is None:
        root.insert(1, ET.Element("uuid"))
        root.find("uuid").text = str(uuid.uuid4())
    kept = {"uuid": root.findtext("uuid"), "xml": texts.written(root), "folder": folder}
    return root.findtext("name"), kept


class Pool(Refusing):
    """A pool that runs, and is forgotten when it is ended."""

    def __init__(self, conn, name, own):
        self._conn, self._name, self._uuid = conn, name, own

    @property
    def _now(self):
        found = self._conn.store.read().get("pools", {}).get(self._name)
        if found is None or found["uuid"] != self._uuid:
            text = f"Storage pool not found: no storage pool with matching uuid '{self._uuid}'"
            raise refusal("NO_STORAGE_POOL", text)
        return found

    def name(self):
        """Return its name."""
        return self._name

    def UUIDString(self):  # noqa: N802
        """Return its UUID."""
        return self._uuid

    def XMLDesc(self, _flags=0):  # noqa: N802
        """Return its XML."""
        return self._now["xml"]

    def isActive(self):  # noqa: N802
        """Return that it runs."""
        self._now  # noqa: B018
        return 1

    def isPersistent(self):  # noqa: N802
        """Return that it is forgotten when it is ended."""
        self._now  # noqa: B018
        return 0

    def autostart(self):
        """Return that it does not start with its host."""
        self._now  # noqa: B018
        return 0

    def info(self):
        """Return ``[state, capacity, allocation, available]`` in bytes."""
        disk = os.statvfs(self._conn.real(self._now["folder"]))
        size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        return [libvirt.VIR_STORAGE_POOL_RUNNING, size, size - free, free]

    def refresh(self, _flags=0):
        """Look again at what is in its folder: the stand-in always does."""
        self._now  # noqa: B018
        return 0

    def destroy(self):
        """End it; its files stay."""
        check("poolDestroy")
        self._now  # noqa: B018
        with self._conn.changing() as whole:
            whole["pools"].pop(self._name, None)
        return 0


class Volume(Refusing):
    """A file in a pool's folder."""

    def __init__(self, pool, conn, path):
        self._pool, self._conn, self._path = pool, conn, path

    def name(self):
        """Return its name in its pool."""
        return Path(self._path).name

    def path(self):
        """Return its path on its host."""
        return self._path

    def key(self):
        """Return its path, by which libvirt knows it."""
        return self._path

    def storagePoolLookupByVolume(self):  # noqa: N802
        """Return its pool."""
        return self._pool

    def XMLDesc(self, _flags=0):  # noqa: N802
        """Return its XML."""
        path = Path(self._conn.real(self._path))
        size = path.stat().st_size
        root = ET.Element("volume", type="file")
        for name, text in (("name", self.name()), ("key", self._path)):
            ET.SubElement(root, name).text = text
        for name in ("capacity", "allocation"):
            ET.SubElement(root, name, unit="bytes").text = str(size)
        target = ET.SubElement(root, "target")
        ET.SubElement(target, "path").text = self._path
        ET.SubElement(target, "format", type="qcow2" if path.suffix == ".qcow2" else "raw")
        return texts.written(root)

    def upload(self, stream, offset, _length, _flags=0):
        """Have what is sent by a stream written into the file."""
        check("upload")
        stream.open(self._conn.real(self._path), offset)
        return 0


class Stream:
    """A stream into a file, with libvirt's own loop of sending."""

    def __init__(self):
        self._handle = None

    def open(self, path, offset):
        """Write from a place of a file on."""
        self._handle = open(path, "r+b")  # noqa: SIM115
        self._handle.seek(offset)

    def send(self, data):
        """Write bytes."""
        return self._handle.write(data)

    def sendHole(self, length, _flags=0):  # noqa: N802
        """Leave bytes out."""
        self._handle.seek(length, os.SEEK_CUR)
        return 0

    sparseSendAll = libvirt.virStream.sparseSendAll  # noqa: N815

    def finish(self):
        """End it when all was sent."""
        self._handle.close()
        return 0

    abort = finish


def volume(conn, path):
    """Return the volume that a path is, None if it is in no pool."""
    for name, one in conn.store.read().get("pools", {}).items():
        if str(Path(path).parent) == one["folder"] and Path(conn.real(path)).is_file():
            return Volume(Pool(conn, name, one["uuid"]), conn, path)
    return None


def block_info(conn, disk):
    """Return ``[capacity, allocation, physical]`` of a domain's disk in bytes."""
    path = conn.real(disk.path)
    sizes = diskpaths.measure(path, disk.format)
    if sizes is None:
        raise refusal("SYSTEM_ERROR", f"failed to stat '{disk.path}': No such file or directory")
    return [sizes["virtual"], sizes["actual"], sizes["actual"]]
