"""Find files of VMs that nothing on this host uses; change nothing."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt.checks.doctor.doctoranswer import LooseFile, SeenVm
from saltvirt.core import terminal
from saltvirt.core.errors import NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.storage import (
    diskpaths,
    ownermark,
    policies,
    seedfiles,
    sharing,
    unreadablechains,
    usage,
)
from saltvirt.vm.show.host import inspect
from saltvirt.xml.edit import readdomain

_LIBVIRT = Path("/var/lib/libvirt/qemu")
_LOGS = Path("/var/log/libvirt/qemu")
# libvirt's own files of VMs: folder, suffix and kind.
_LIBVIRT_FILES = (
    (_LIBVIRT / "nvram", "_VARS.fd", "nvram"),
    (_LIBVIRT / "save", ".save", "managed-save"),
    (_LOGS, "-console.log", "console-log"),
)
_BLOCK = Path("/sys/block")


def find_seen_vms(conn: Any) -> dict[str, SeenVm]:
    """Return all domains, with the files that they and their definitions use."""
    disks = lifecycle.disks(conn)
    out = {}
    for name in query.names(conn):
        try:
            root = readdomain.domain(lifecycle.inactive_xml(conn, name))
        except NoSuchVm:
            continue  # removed meanwhile
        paths = {*disks.get(name, ()), readdomain.firmware_variables(root) or ""} - {""}
        real_paths = {os.path.realpath(path) for path in paths if path.startswith("/")}
        out[name] = SeenVm(uuid=readdomain.uuid(root), files=sorted(paths | real_paths))
    return out


def unreadable(conn: Any, settings: HostSettings) -> dict[str, str]:
    """Return ``{VM: reason}`` of VMs with unknown files; no file is judged then."""
    return {**unreadablechains.reasons(conn, settings), **inspect.unreadable(conn, settings)}


def find_used_files(conn: Any, settings: HostSettings) -> set[str]:
    """Return all files that anything on this host uses, is based on, or has on record."""
    used_files = {
        path for path, _reference in usage.index(conn, settings).all_references(policies.LOOSE)
    }
    used_files |= set(reservations.list_files(settings))
    for vm in find_seen_vms(conn).values():
        used_files |= set(vm.files)
    return used_files | {os.path.realpath(path) for path in used_files if path.startswith("/")}


def _open_files() -> set[str]:
    """Return files that programs or loop devices have open, as not all take QEMU's locks."""
    out = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # the file was closed
                    out.add(str(descriptor.readlink()))
    for backing_file in _BLOCK.glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            out.add(os.fsdecode(backing_file.read_bytes()).strip())
    return out


def unused_files(conn: Any, settings: HostSettings) -> Iterator[LooseFile]:
    """Yield the files of VMs that nothing here uses."""
    folders = diskpaths.folders(conn, settings)
    used_files = find_used_files(conn, settings) | _open_files()
    for folder in folders:
        for path in sorted(folder.iterdir()):
            owner = None if path.is_symlink() or not path.is_file() else ownermark.read_owner(path)
            # On shared storage its VM may be on a host that this master does not know.
            if owner is None or not owner.is_of_this_host:
                continue
            if str(path) in used_files or diskpaths.is_open(path):
                continue
            kind = "seed" if seedfiles.is_seed(path) else "disk"
            yield _file(settings, kind, path, owner.vm, owner.uuid)
    yield from _find_libvirt_files(settings, set(query.names(conn)), used_files)
    yield from tokens(settings)


def tokens(settings: HostSettings) -> Iterator[LooseFile]:
    """Yield the tokens of authorizations."""
    for path in sorted((Path(settings.state_dir) / "tokens").glob("*")):
        yield _file(settings, "token", path, path.name, "")


def _find_libvirt_files(
    settings: HostSettings, vm_names: set[str], used_files: set[str]
) -> Iterator[LooseFile]:
    """Yield libvirt's files of VMs that this host does not have."""
    for folder, suffix, kind in _LIBVIRT_FILES:
        for path in sorted(folder.glob(f"*{suffix}")):
            name = path.name.removesuffix(suffix)
            if name not in vm_names and str(path) not in used_files:
                yield _file(settings, kind, path, name, "")


def _file(settings: HostSettings, kind: str, path: Path, vm: str, uuid: str) -> LooseFile:
    return LooseFile(
        kind=kind,
        path=str(path),
        vm=vm,
        uuid=uuid,
        quiet_s=max(0.0, time.time() - path.stat().st_mtime),
        is_shared=sharing.is_shared(settings, path),
    )


def find_shared_files(settings: HostSettings, paths: Iterable[str]) -> list[str]:
    """Return the files that other hosts may have, too."""
    shared_paths = (
        path for path in paths if path.startswith("/") and sharing.is_shared(settings, path)
    )
    # A file name need not be valid text.
    return sorted(map(terminal.escape, shared_paths))


def find_owner_names(vms_by_name: Mapping[str, SeenVm]) -> list[str]:
    """Return the VMs that domains' files may be made for, by owner marks and by file names."""
    out = set()
    for path in (path for vm in vms_by_name.values() for path in vm.files):
        owner = ownermark.read_owner(path)
        # A disk's file is called NAME_DISK.FORMAT, even if it lost its mark.
        words = Path(path).name.split("_")
        out |= {"_".join(words[:count]) for count in range(1, len(words))}
        out |= {owner.vm} if owner else set()
    return sorted(out)
