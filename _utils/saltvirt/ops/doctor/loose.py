"""Files of VMs that nothing on this host uses; they are only looked at."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt import room
from saltvirt.config import HostSettings
from saltvirt.errors import NoSuchVm
from saltvirt.kvm import lifecycle, query
from saltvirt.ops import inspect, outofreach, owned, reservations, storage, trashbases
from saltvirt.ops.seeding import seedfiles
from saltvirt.placement.doctor import LooseFile, SeenVm
from saltvirt.xml import read

_LIBVIRT = Path("/var/lib/libvirt/qemu")
_LOGS = Path("/var/log/libvirt/qemu")
# Where libvirt itself puts what it keeps of a VM, how that is called, and what it is.
_NAMED = (
    (_LIBVIRT / "nvram", "_VARS.fd", "nvram"),
    (_LIBVIRT / "save", ".save", "managed-save"),
    (_LOGS, "-console.log", "console-log"),
)
_BLOCK = Path("/sys/block")
# File systems that several hosts have: of networks, of clusters; of FUSE nobody knows.
_NETWORKED = {
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "gfs2", "ocfs2", "gpfs", "lustre", "afs", "9p"),
    *("fuse", "fuseblk", "virtiofs", "glusterfs", "beegfs", "orangefs"),
}


def vms(conn: Any) -> dict[str, SeenVm]:
    """Return all domains, with the files that they and their definitions use."""
    disks = lifecycle.disks(conn)
    out = {}
    for name in query.names(conn):
        try:
            root = read.domain(lifecycle.kept_xml(conn, name))
        except NoSuchVm:
            continue  # it has gone since
        paths = {*disks.get(name, ()), read.firmware_variables(root) or ""} - {""}
        real = {os.path.realpath(path) for path in paths if path.startswith("/")}
        out[name] = SeenVm(uuid=read.uuid(root), files=sorted(paths | real))
    return out


def unreadable(conn: Any, settings: HostSettings) -> dict[str, str]:
    """Return ``{VM: why}`` of what nobody here can tell the files of: then none is judged."""
    return {**outofreach.reasons(conn, settings), **inspect.unreadable(conn, settings)}


def used(conn: Any, settings: HostSettings, there: Iterable[Path]) -> set[str]:
    """
    Return all files that anything on this host uses, is based on, or has on record.

    That is more than domains: a disk that no domain has may be an operator's, and has a base too.
    """
    # Before the domains: what is on record no more is defined by then.
    found = set(reservations.every_file(settings))
    found |= storage.in_use(conn) | set(trashbases.below(settings)) | trashbases.beside(there)
    for folder in there:
        for path in map(str, folder.iterdir()):
            if os.path.isfile(path):
                found |= set(list(storage.chain(path))[1:])
    for one in vms(conn).values():
        found |= set(one.files)
    return found | {os.path.realpath(path) for path in found if path.startswith("/")}


def _open_files() -> set[str]:
    """Return what any program has open, and what loop devices are: not all take QEMU's locks."""
    out = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            for one in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # it has been closed
                    out.add(str(one.readlink()))
    for one in _BLOCK.glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            out.add(one.read_text().strip())
    return out


def files(conn: Any, settings: HostSettings) -> Iterator[LooseFile]:
    """Yield the files of VMs that nothing here uses."""
    there = storage.folders(conn, settings)
    is_used = used(conn, settings, there) | _open_files()
    for folder in there:
        for path in sorted(folder.iterdir()):
            owner = None if path.is_symlink() or not path.is_file() else owned.of(path)
            # On storage that hosts share it may be a host's that this master knows nothing of.
            if owner is None or not owner.is_of_this_host:
                continue
            if str(path) in is_used or storage.is_open(path):
                continue
            kind = "seed" if seedfiles.is_seed(path) else "disk"
            yield _file(settings, kind, path, owner.vm, owner.uuid)
    yield from _named(settings, set(query.names(conn)), is_used)
    for path in sorted((Path(settings.state_dir) / "tokens").glob("*")):
        yield _file(settings, "token", path, path.name, "")


def _named(settings: HostSettings, known: set[str], is_used: set[str]) -> Iterator[LooseFile]:
    """Yield what libvirt keeps of VMs that this host has not."""
    for folder, end, kind in _NAMED:
        for path in sorted(folder.glob(f"*{end}")):
            name = path.name.removesuffix(end)
            if name not in known and str(path) not in is_used:
                yield _file(settings, kind, path, name, "")


def _file(settings: HostSettings, kind: str, path: Path, vm: str, uuid: str) -> LooseFile:
    return LooseFile(
        kind=kind,
        path=str(path),
        vm=vm,
        uuid=uuid,
        bytes=room.taken(path),
        quiet_s=max(0.0, time.time() - path.stat().st_mtime),
        is_shared=is_shared(settings, path),
    )


def is_shared(settings: HostSettings, path: str | Path) -> bool:
    """Return whether other hosts may have a file too."""
    return storage.is_declared(settings, str(path)) or _is_networked(Path(path))


def _is_networked(path: Path) -> bool:
    """Return whether a file is on a file system that several hosts may have."""
    while not path.exists():
        path = path.parent
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    # btrfs and some others number their parts otherwise than their mounts: those are local.
    return _mounts().get(wanted, "").partition(".")[0] in _NETWORKED


def _mounts() -> dict[str, str]:
    """Return ``{device: kind of file system}`` of what is mounted."""
    out = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words, _dash, rest = line.partition(" - ")
        out[words.split()[2]] = rest.split()[0]
    return out


def shared(settings: HostSettings, paths: Iterable[str]) -> list[str]:
    """Return those of some files that other hosts may have too."""
    return sorted(path for path in paths if path.startswith("/") and is_shared(settings, path))


def made_for(known: Mapping[str, SeenVm]) -> list[str]:
    """Return whose the files may be that domains use: by their marks, and by their names."""
    out = set()
    for path in (path for one in known.values() for path in one.files):
        owner = owned.of(path)
        # A disk is called NAME_DISK.FORMAT, whatever became of its mark.
        words = Path(path).name.split("_")
        out |= {"_".join(words[:count]) for count in range(1, len(words))}
        out |= {owner.vm} if owner else set()
    return sorted(out)
