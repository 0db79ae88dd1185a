"""Files of VMs that nothing on this host uses; they are only looked at."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt import room, terminal
from saltvirt.config import HostSettings
from saltvirt.errors import NoSuchVm
from saltvirt.kvm import lifecycle, query
from saltvirt.ops import inspect, owned, reservations, storage
from saltvirt.ops.seeding import seedfiles
from saltvirt.placement.doctor import LooseFile, SeenVm
from saltvirt.storage import policies, sharing, unreadablechains, usage
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
    """Return ``{VM: why}`` of the VMs whose files this host cannot tell: none is judged then."""
    return {**unreadablechains.reasons(conn, settings), **inspect.unreadable(conn, settings)}


def used(conn: Any, settings: HostSettings) -> set[str]:
    """Return all files that anything on this host uses, is based on, or has on record."""
    found = {path for path, _reference in usage.index(conn, settings).every(policies.LOOSE)}
    found |= set(reservations.every_file(settings))
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
            out.add(os.fsdecode(one.read_bytes()).strip())
    return out


def files(conn: Any, settings: HostSettings) -> Iterator[LooseFile]:
    """Yield the files of VMs that nothing here uses."""
    there = storage.folders(conn, settings)
    is_used = used(conn, settings) | _open_files()
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
    yield from tokens(settings)


def tokens(settings: HostSettings) -> Iterator[LooseFile]:
    """Yield the tokens of authorizations."""
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
        is_shared=sharing.is_shared(settings, path),
    )


def shared(settings: HostSettings, paths: Iterable[str]) -> list[str]:
    """Return those of some files that other hosts may have too."""
    found = (path for path in paths if path.startswith("/") and sharing.is_shared(settings, path))
    # The name of a file need not be text.
    return sorted(map(terminal.escaped, found))


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
