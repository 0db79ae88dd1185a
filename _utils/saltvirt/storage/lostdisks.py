"""Find the disk files of VMs of a lost host, on storage that this host sees, too."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.placement.answers import SharedDisk
from saltvirt.storage import diskpaths, ownermark, seedfiles, sharing


def find_shared_disks(
    conn: Any, settings: HostSettings, vm_names: Collection[str]
) -> dict[str, list[SharedDisk]]:
    """Return ``{VM: files}`` of these VMs in the folders for disks that other hosts see, too."""
    disks_by_name: dict[str, list[SharedDisk]] = {}
    for folder in diskpaths.folders(conn, settings):
        if not sharing.is_shared(settings, folder):
            continue
        for path in sorted(folder.iterdir()):
            name = _find_vm(path, vm_names)
            if name is not None:
                disk = SharedDisk(path=str(path), is_open=diskpaths.is_open(path))
                disks_by_name.setdefault(name, []).append(disk)
    return disks_by_name


def _find_vm(path: Path, vm_names: Collection[str]) -> str | None:
    """Return which of some VMs a file is a disk of, by its mark, else by its name."""
    if path.is_symlink() or not path.is_file() or seedfiles.is_seed(path):
        return None
    owner = ownermark.read_owner(path)
    if owner is not None:
        return owner.vm if owner.vm in vm_names else None
    # NAME_DISK.FORMAT: of VMs web and web_1 the longer name counts.
    matching_names = [name for name in vm_names if path.name.startswith(f"{name}_")]
    return max(matching_names, key=len, default=None)
