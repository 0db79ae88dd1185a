"""
Find a free nbd device, on which the kernel shows a disk; for the worker and for qemu_nbd.*.

Source: qemu-nbd(8), Linux' Documentation/admin-guide/blockdev/nbd.rst.
"""

import fcntl
import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Not /run/lock, which all users may write to: one could put a link to any file there, or a pipe
# without a reader, or hold all locks.
LOCKS = Path("/run/salt-virt")
# A user who may read a lock file can hold the lock.
_CLOSED = functools.partial(os.open, mode=0o600)
_ATTACH_S = 20
_BLKRRPART = 0x125F  # linux/fs.h: read the partition table anew
_USED = "all nbd devices of this host are in use; load the module with a larger nbds_max"


class Unusable(Exception):
    """No device is available; the message gives the reason."""


@contextmanager
def free() -> Iterator[str]:
    """Yield a free device, locked against other jobs of this project."""
    LOCKS.mkdir(mode=0o755, exist_ok=True)
    for path in _devices():
        with open(LOCKS / f"{path.name}.lock", "w", opener=_CLOSED) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if not (path / "pid").exists():
                yield f"/dev/{path.name}"
                return
    raise Unusable(_USED)


def _devices() -> list[Path]:
    if not Path("/sys/module/nbd").is_dir():
        argv = ["modprobe", "nbd", "max_part=16"]
        try:
            result = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Unusable("modprobe is missing on this host; install kmod") from None
        if result.returncode:
            raise Unusable(
                f"this host's kernel has no 'nbd' ({result.stderr.strip()}); use "
                "seed_method=guestfs or nocloud, or guestfs.mount"
            )
    return sorted(Path("/sys/block").glob("nbd*"), key=lambda device: (len(device.name), device))


def wait_attached(device: str, why_not: Callable[[], str | None] = lambda: None) -> None:
    """
    Wait until a device shows its disk.

    why_not
        Returns the reason why it never will, None while it still may.
    """
    block = Path("/sys/block", Path(device).name)
    deadline = time.monotonic() + _ATTACH_S
    while not ((block / "pid").exists() and int((block / "size").read_text())):
        if reason := why_not():
            raise Unusable(f"qemu-nbd: {reason}")
        if time.monotonic() > deadline:
            raise Unusable(f"qemu-nbd did not take hold of {device} within {_ATTACH_S} s")
        time.sleep(0.02)


def parts(device: str) -> list[str]:
    """Return the device's partitions, or the device if it has none."""
    with open(device, "rb") as handle, suppress(OSError):  # fails if it cannot have partitions
        fcntl.ioctl(handle, _BLKRRPART)
    name = Path(device).name
    partitions = [
        f"/dev/{partition.name}" for partition in Path("/sys/block", name).glob(f"{name}p*")
    ]
    return sorted(partitions, key=lambda partition: (len(partition), partition)) or [device]
