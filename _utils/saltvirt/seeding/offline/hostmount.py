"""
Mount a guest's disk by this host's kernel, and unmount it again, by qemu-nbd and mount.

The operator must have allowed that; ``guestmount.py`` mounts a disk without the host's kernel.
"""

import logging
import os
import re
import stat
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from saltvirt.core import undo
from saltvirt.core.errors import BadArgument, SeedError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding.offline.worker import nbd

log = logging.getLogger(__name__)
_OPTIONS = "nodev,nosuid,noexec"
_PACKAGES = {
    "guestunmount": "guestmount",
    "qemu-nbd": "qemu-utils",
    "mount": "mount",
    "umount": "mount",
}


def run(argv: Sequence[object], subject: object) -> None:
    """Run a program; if it fails, raise SeedError with ``subject`` and a line of its output."""
    try:
        result = subprocess.run(
            list(map(str, argv)),
            capture_output=True,
            text=True,
            # mount prints names and labels that the guest has chosen.
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )
    except FileNotFoundError:
        package = _PACKAGES[str(argv[0])]
        raise SeedError(f"{argv[0]} is missing on this host; install {package}") from None
    except subprocess.TimeoutExpired as exc:
        raise SeedError(f"{subject}: {argv[0]} did not end within 300 s") from exc
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        # guestunmount's first line is the cause; the processes with open files follow.
        line_index = 0 if argv[0] == "guestunmount" else -1
        raise SeedError(f"{subject}: {lines[line_index] if lines else result.returncode}")


def refuse_others(folder: Path) -> None:
    """Refuse a folder that another user could replace by a link before the mount."""
    for parent in (path for path in (folder, *folder.parents) if path.exists()):
        # A symbolic link's own mode has all bits set, so links are refused.
        parent_stat = parent.lstat()
        # In a sticky folder like /tmp, all users may create entries, but not replace root's.
        is_shared = parent_stat.st_mode & 0o022 and not parent_stat.st_mode & stat.S_ISVTX
        if parent_stat.st_uid != 0 or is_shared:
            raise StorageError(
                f"{parent} is not root's alone, so that others could have {folder} lead elsewhere; "
                "give another root"
            )


def connect(image: str, fmt: str) -> str:
    """Attach a disk to this host's kernel; return the device."""
    try:
        with nbd.free() as device:
            run(
                [
                    "qemu-nbd",
                    "--fork",
                    "--persistent",
                    f"--connect={device}",
                    f"--format={fmt}",
                    image,
                ],
                f"{image} cannot be attached",
            )
            with undo.on_failure() as steps:
                steps.undo_with(disconnect, device)
                nbd.wait_attached(device)
    except nbd.Unusable as exc:
        raise SeedError(str(exc)) from exc
    return device


def disconnect(device: str) -> None:
    """Detach a disk from this host's kernel."""
    run(["qemu-nbd", "--disconnect", device], f"{device} cannot be detached")


def mount_device(settings: HostSettings, device: str, root: str | None) -> dict[str, str]:
    """Mount the mountable partitions of a device, or the device; return ``{folder: device}``."""
    if not re.fullmatch(r"/dev/nbd\d+", str(device)) or not Path(device).is_block_device():
        raise BadArgument(
            "nbd", f"{device!r} is not an nbd device of this host; see qemu_nbd.connect"
        )
    base = Path(os.path.realpath(root or Path(settings.state_dir, "guests", str(uuid.uuid4()))))
    refuse_others(base)
    out, errors = {}, []
    for part in nbd.parts(device):
        folder = base / Path(part).name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_others(folder)
        try:
            run(["mount", "-o", _OPTIONS, part, folder], part)
            out[str(folder)] = part
        except SeedError as exc:
            errors.append(str(exc))
            folder.rmdir()
    if not out:
        with suppress(OSError):
            base.rmdir()
        raise SeedError(f"nothing on {device} can be mounted: {'; '.join(errors)}")
    return out


def clear(devices_by_folder: Mapping[str, str]) -> dict[str, str]:
    """Undo :func:`mount_device`, and detach its devices; return the folders still mounted."""
    for part in devices_by_folder.values():
        if not re.fullmatch(r"/dev/nbd\d+(p\d+)?", str(part)):
            raise BadArgument("mnt", f"{part!r} is not an nbd device; give what was mounted")
    still_mounted, devices = {}, set()
    for folder, part in devices_by_folder.items():
        try:
            run(["umount", folder], folder)
            Path(folder).rmdir()
            devices.add(part.partition("p")[0])
        except (SeedError, OSError) as exc:
            log.warning("%s", exc)
            still_mounted[folder] = part
    for device in devices - {part.partition("p")[0] for part in still_mounted.values()}:
        disconnect(device)
    return still_mounted
