"""qemu-img: the one place that runs it, with limits and without a shell."""

import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from saltvirt import room
from saltvirt.errors import ImageError, StorageError, VirtError

_TIMEOUT_S = 600
_MEMORY_BYTES = 2 << 30
_LOOK_S = 0.1
# What is kept of each stream: an honest qemu-img says a few lines.
_SAID_BYTES = 1 << 20
_CHUNK = 1 << 16
_PACKAGES = {"prlimit": "util-linux", "qemu-img": "qemu-utils/qemu-img"}


def _with_limits(argv: list[str], file_bytes: int | None) -> list[str]:
    """
    Return a command with limits: an image made to hurt must not eat the host.

    A program sets them, as a job has threads, among which Python may run nothing between fork
    and exec (https://docs.python.org/3/library/subprocess.html#subprocess.Popen).
    """
    limit = "unlimited" if file_bytes is None else str(file_bytes)
    return ["prlimit", f"--as={_MEMORY_BYTES}", f"--fsize={limit}", "--core=0", "--", *argv]


def _run(
    argv: list[str], path: str | Path, error: type[VirtError]
) -> subprocess.CompletedProcess[str]:
    """Run what does something with an image within its time."""
    end = time.monotonic() + _TIMEOUT_S

    def look() -> None:
        if time.monotonic() > end:
            raise error(f"qemu-img {argv[1]} did not end within {_TIMEOUT_S} s")

    return _run_watched(argv, path, None, look)


def _run_watched(
    argv: list[str], path: str | Path, most_bytes: int | None, look: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """
    Return what qemu-img says; it is ended when that is too much, or when ``look`` raises.

    path
        The image that is named if it says too much: it has a line for each reference that is
        wrong, and an image of some KiB has millions of them.
    """
    for program, package in _PACKAGES.items():
        if not shutil.which(program):
            raise StorageError(f"{program} is missing on this host; install {package}")
    child = subprocess.Popen(
        _with_limits(argv, most_bytes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        umask=0o077,
    )
    with child:
        try:
            out, err = _collect_output(child, path, look)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(argv, child.returncode, out, err)


def _collect_output(
    child: subprocess.Popen[bytes], path: str | Path, look: Callable[[], None]
) -> tuple[str, str]:
    """Return what a child has written to its streams once it has ended."""
    output = {name: bytearray() for name in ("stdout", "stderr")}
    with selectors.DefaultSelector() as streams:
        for name in output:
            streams.register(getattr(child, name), selectors.EVENT_READ, output[name])
        while streams.get_map():
            for key, _events in streams.select(_LOOK_S):
                chunk = os.read(key.fd, _CHUNK)
                key.data.extend(chunk)
                if len(key.data) > _SAID_BYTES:
                    raise ImageError(f"image {path} cannot be used: its tables are damaged")
                if not chunk:
                    streams.unregister(key.fileobj)
            look()
    while not _has_ended(child):
        look()
    return output["stdout"].decode(errors="replace"), output["stderr"].decode(errors="replace")


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a child has ended, after a moment."""
    try:
        child.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _failure_reason(result: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in result.stderr.strip().splitlines() if line]
    return lines[-1].removeprefix("qemu-img: ") if lines else f"exit code {result.returncode}"


def check(path: str | Path) -> int:
    """Return the end of a qcow2 image's data in bytes; raise ImageError if it is damaged."""
    argv = ["qemu-img", "check", "--output=json", "-f", "qcow2", str(path)]
    result = _run(argv, path, ImageError)
    # qemu-img check: 0 clean, 3 leaked clusters only (harmless), 2 corrupt, 1 not checked.
    if result.returncode not in (0, 3):
        reason = (
            "it is truncated or its tables are damaged"
            if result.returncode == 2
            else _failure_reason(result)
        )
        raise ImageError(f"image {path} cannot be used: {reason}")
    return int(json.loads(result.stdout).get("image-end-offset", 0))


def in_use_error(path: str | Path) -> StorageError:
    """Return the error of a disk that another program, a VM mostly, has open."""
    return StorageError(f"{path} is open in another program; if it is a VM, stop it first")


def refuse_in_use(path: str | Path, fmt: str) -> None:
    """Raise StorageError if another program, a VM mostly, has a disk open."""
    result = _run(["qemu-img", "info", "-f", fmt, str(path)], path, StorageError)
    if result.returncode and " lock" in result.stderr:
        raise in_use_error(path)
    if result.returncode:
        raise StorageError(f"{path} cannot be opened: {_failure_reason(result)}")


def create(
    path: str | Path,
    size_bytes: int,
    fmt: str,
    backing: str | Path | None = None,
    backing_format: str = "",
) -> None:
    """Create a disk, over a backing file if one is given."""
    argv = ["qemu-img", "create", "-q", "-f", fmt]
    if backing:
        argv += ["-b", str(backing), "-F", backing_format]
    result = _run([*argv, str(path), str(size_bytes)], path, StorageError)
    if result.returncode:
        raise StorageError(f"cannot create disk {path}: {_failure_reason(result)}")


def convert(
    source: str | Path,
    source_format: str,
    target: str | Path,
    target_format: str,
    meter: room.Meter,
) -> None:
    """Copy an image's content into another format; raise OverLimit where it must end."""
    argv = ["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format]
    # A raw disk is as long as its content at once, and has holes.
    most_bytes = None if target_format == "raw" else meter.most_bytes()
    # It is ended as soon as what it writes takes too much room or time.
    result = _run_watched(
        [*argv, str(source), str(target)],
        source,
        most_bytes,
        lambda: meter.check(room.allocated_bytes(target)),
    )
    if result.returncode and most_bytes is not None and "File too large" in result.stderr:
        meter.expect(most_bytes + 1)
    if result.returncode:
        # It may have filled the disk between two looks.
        meter.check(room.allocated_bytes(target))
        raise StorageError(f"cannot write disk {target}: {_failure_reason(result)}")


def write_over(
    source: str | Path, source_format: str, device: str | Path, meter: room.Meter
) -> None:
    """Write what a guest sees of an image over a device, which is at least as large."""
    # Its zeros too: what a device had before is another's.
    argv = ["qemu-img", "convert", "-q", "-n", "-f", source_format, "-O", "raw"]
    if not Path(device).exists():
        raise StorageError(f"there is no device {device} on this host")
    argv += ["-t", "none"] if Path(device).is_block_device() else []
    # The device is as large as it is: only the time is measured.
    result = _run_watched([*argv, str(source), str(device)], source, None, lambda: meter.check(0))
    if result.returncode:
        raise StorageError(f"cannot write {device}: {_failure_reason(result)}")


def resize(path: str | Path, size_bytes: int, fmt: str) -> None:
    """Grow a disk."""
    argv = ["qemu-img", "resize", "-q", "-f", fmt, str(path), str(size_bytes)]
    result = _run(argv, path, StorageError)
    if result.returncode:
        raise StorageError(f"cannot resize disk {path}: {_failure_reason(result)}")
