"""
Mount a guest's disk on this host for whoever asks, and take it away again.

``guestmount`` shows the disk through libguestfs' appliance (FUSE): the host's kernel parses none
of it. ``qemu-nbd`` gives it to the host's kernel, so the operator must have allowed that.
"""

import hashlib
import logging
import os
import re
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from saltvirt import undo
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError, StorageError
from saltvirt.seed.worker import nbd

log = logging.getLogger(__name__)
_WAIT_S = 60
_OPTIONS = "nodev,nosuid,noexec"
_ACCESS = ("rw", "ro")
_PACKAGES = {
    "guestmount": "guestmount (libguestfs-tools on RHEL and older releases)",
    "guestunmount": "guestmount",
    "qemu-nbd": "qemu-utils",
    "mount": "mount",
    "umount": "mount",
}


def _run(argv: Sequence[object], what: object, env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            list(map(str, argv)),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=300,
            env=env,
        )
    except FileNotFoundError:
        where = _PACKAGES[str(argv[0])]
        raise SeedError(f"{argv[0]} is missing on this host; install {where}") from None
    except subprocess.TimeoutExpired as exc:
        raise SeedError(f"{what}: {argv[0]} did not end within 300 s") from exc
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise SeedError(f"{what}: {lines[-1] if lines else done.returncode}")


def mount(settings: HostSettings, location: str, fmt: str, access: str, root: str | None) -> str:
    """Mount all file systems of a disk below a folder, through the appliance; return the folder."""
    if access not in _ACCESS:
        raise BadArgument("access", f"{access!r}; rw or ro")
    flat = str(location).strip("/").replace("/", ".")
    folder = Path(root or Path(settings.state_dir, "guests", flat))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise StorageError(
            f"{folder} is not empty; something is mounted there, or give another root"
        )
    pid = _pid_file(settings, folder)
    pid.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [
        "guestmount",
        f"--format={fmt}",
        "-a",
        location,
        "-i",
        f"--{access}",
        "--pid-file",
        pid,
        folder,
    ]
    plain = {
        "LIBGUESTFS_BACKEND": "direct",
        "LIBGUESTFS_BACKEND_SETTINGS": "force_tcg",
        "LIBGUESTFS_CACHEDIR": "/var/tmp",
    }
    try:
        _run(argv, f"{location} cannot be mounted", {**os.environ, **plain})
    except SeedError:
        with suppress(OSError):
            folder.rmdir()
        raise
    return str(folder)


def umount(settings: HostSettings, name: str) -> bool:
    """Take a guest's file systems away, and wait until its disk is let go; return True."""
    if not os.path.ismount(name):
        raise BadArgument("name", f"nothing is mounted at {name}")
    path = _pid_file(settings, name)
    pid = path.read_text().strip() if path.exists() else ""
    _run(["guestunmount", name], f"{name} cannot be unmounted")
    if pid:
        # Only once it is gone is everything written, and the image's lock let go.
        _wait_gone(int(pid))
        path.unlink(missing_ok=True)
    if Path(name).is_relative_to(Path(settings.state_dir, "guests")):
        with suppress(OSError):
            Path(name).rmdir()
    return True


def _pid_file(settings: HostSettings, root: str | Path) -> Path:
    name = hashlib.sha256(os.path.realpath(root).encode()).hexdigest()[:16]
    return Path(settings.state_dir, "guests", f"{name}.pid")


def _wait_gone(pid: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise SeedError(f"guestmount (process {pid}) did not end within {_WAIT_S} s")
        time.sleep(0.1)


def connect(image: str, fmt: str) -> str:
    """Give a disk to this host's kernel; return the device."""
    try:
        with nbd.free() as device:
            _run(
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
    """Take a disk away from this host's kernel."""
    _run(["qemu-nbd", "--disconnect", device], f"{device} cannot be detached")


def mount_device(settings: HostSettings, device: str, root: str | None) -> dict[str, str]:
    """Mount those partitions of a device, or itself, that can be; return ``{folder: device}``."""
    if not re.fullmatch(r"/dev/nbd\d+", str(device)) or not Path(device).is_block_device():
        raise BadArgument(
            "nbd", f"{device!r} is not an nbd device of this host; see qemu_nbd.connect"
        )
    base = Path(root or Path(settings.state_dir, "guests", str(uuid.uuid4())))
    out, why = {}, []
    for part in nbd.parts(device):
        folder = base / Path(part).name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _run(["mount", "-o", _OPTIONS, part, folder], part)
            out[str(folder)] = part
        except SeedError as exc:
            why.append(str(exc))
            folder.rmdir()
    if not out:
        with suppress(OSError):
            base.rmdir()
        raise SeedError(f"nothing on {device} can be mounted: {'; '.join(why)}")
    return out


def clear(mounted: Mapping[str, str]) -> dict[str, str]:
    """Unmount what :func:`mount_device` mounted and detach its devices; return what is left."""
    for part in mounted.values():
        if not re.fullmatch(r"/dev/nbd\d+(p\d+)?", str(part)):
            raise BadArgument("mnt", f"{part!r} is not an nbd device; give what was mounted")
    left, devices = {}, set()
    for folder, part in mounted.items():
        try:
            _run(["umount", folder], folder)
            Path(folder).rmdir()
            devices.add(part.partition("p")[0])
        except (SeedError, OSError) as exc:
            log.warning("%s", exc)
            left[folder] = part
    for device in devices - {part.partition("p")[0] for part in left.values()}:
        disconnect(device)
    return left
