"""Find the disk files of VMs of a lost host, on storage that this host sees, too."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.placement.answers import SharedDisk
from saltvirt.storage import diskpaths, ownermark, seedfiles, sharing


def find_shared_disks(
    conn: Any, settings: HostSettings, vm_names: Collection[str]
) -> dict[str, list[SharedDisk]]:
    """
    Return ``{VM: files}`` of these VMs in folders that other hosts see, too.

    These are the folders for disks that hosts share, and those of ``virt:shared_paths`` with the
    folders in them: the lost host alone may have had a pool there.
    """
    disk_folders = [
        folder
        for folder in diskpaths.folders(conn, settings)
        if sharing.is_shared(settings, folder)
    ]
    disks_by_name: dict[str, list[SharedDisk]] = {}
    for folder in dict.fromkeys([*disk_folders, *_list_declared(settings)]):
        for path in sorted(folder.iterdir()):
            name = _find_vm(path, vm_names, is_for_disks=folder in disk_folders)
            if name is not None:
                disk = SharedDisk(path=str(path), is_open=diskpaths.is_open(path))
                disks_by_name.setdefault(name, []).append(disk)
    return disks_by_name


def _list_declared(settings: HostSettings) -> Iterator[Path]:
    """Yield the folders of ``virt:shared_paths``, and the folders in them that can be listed."""
    for shared_path in map(Path, map(os.path.realpath, settings.shared_paths)):
        if not shared_path.is_dir():
            continue
        yield shared_path
        for folder in sorted(shared_path.iterdir()):
            is_plain = not folder.name.startswith(".") and folder.is_dir()
            if is_plain and not folder.is_symlink() and os.access(folder, os.R_OK | os.X_OK):
                yield folder


def _find_vm(path: Path, vm_names: Collection[str], *, is_for_disks: bool) -> str | None:
    """
    Return which of some VMs a file is a disk of, by its mark, else by its name.

    is_for_disks
        Whether the folder is one for disks. In others the end of the name counts, too.
    """
    if path.is_symlink() or not path.is_file() or seedfiles.is_seed(path):
        return None
    owner = ownermark.read_owner(path)
    if owner is not None:
        return owner.vm if owner.vm in vm_names else None
    if not is_for_disks and not diskpaths.is_measured(path.suffix.removeprefix(".")):
        return None
    # NAME_DISK.FORMAT: of VMs web and web_1 the longer name counts.
    matching_names = [name for name in vm_names if path.name.startswith(f"{name}_")]
    return max(matching_names, key=len, default=None)
