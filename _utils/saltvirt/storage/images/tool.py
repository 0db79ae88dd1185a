"""Run qemu-img, with limits and without a shell; no other module runs it."""

import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from saltvirt.core import writelimit
from saltvirt.core.errors import ImageError, StorageError, VirtError

_TIMEOUT_S = 600
_MEMORY_BYTES = 2 << 30
_LOOK_S = 0.1
# Limit for each output stream; a normal qemu-img prints a few lines.
_SAID_BYTES = 1 << 20
_CHUNK = 1 << 16
_PACKAGES = {"prlimit": "util-linux", "qemu-img": "qemu-utils/qemu-img"}


def _with_limits(argv: list[str], file_bytes: int | None) -> list[str]:
    """
    Return a command with limits: a malicious image must not exhaust the host.

    prlimit sets them, because Python's preexec_fn is not safe in a job with threads
    (https://docs.python.org/3/library/subprocess.html#subprocess.Popen).
    """
    limit = "unlimited" if file_bytes is None else str(file_bytes)
    return ["prlimit", f"--as={_MEMORY_BYTES}", f"--fsize={limit}", "--core=0", "--", *argv]


def _run(
    argv: list[str], path: str | Path, error: type[VirtError]
) -> subprocess.CompletedProcess[str]:
    """Run a qemu-img command with a time limit."""
    end = time.monotonic() + _TIMEOUT_S

    def look() -> None:
        if time.monotonic() > end:
            raise error(f"qemu-img {argv[1]} did not end within {_TIMEOUT_S} s")

    return _run_watched(argv, path, None, look)


def _run_watched(
    argv: list[str], path: str | Path, most_bytes: int | None, look: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """
    Run qemu-img and return its output; kill it if it prints too much, or if ``look`` raises.

    path
        The image to name in the error: qemu-img prints a line for each wrong reference, and a
        small image can have millions.
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
    """Wait for a child to end, and return its output streams."""
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
    """Wait a moment, and return whether a child has ended."""
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
    """Return the error for a disk that another program, usually a VM, has open."""
    return StorageError(f"{path} is open in another program; if it is a VM, stop it first")


def refuse_in_use(path: str | Path, fmt: str) -> None:
    """Raise StorageError if another program, usually a VM, has a disk open."""
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
    meter: writelimit.Meter,
) -> None:
    """Copy an image's content into another format; raise OverLimit at the meter's limits."""
    argv = ["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format]
    # A raw file has its full length at once, with holes: a limit of its length is no use.
    most_bytes = None if target_format == "raw" else meter.most_bytes()
    result = _run_watched(
        [*argv, str(source), str(target)],
        source,
        most_bytes,
        lambda: meter.check(writelimit.allocated_bytes(target)),
    )
    if result.returncode and most_bytes is not None and "File too large" in result.stderr:
        meter.expect(most_bytes + 1)
    if result.returncode:
        # qemu-img may have filled the disk between two checks.
        meter.check(writelimit.allocated_bytes(target))
        raise StorageError(f"cannot write disk {target}: {_failure_reason(result)}")


def write_over(
    source: str | Path, source_format: str, device: str | Path, meter: writelimit.Meter
) -> None:
    """Write an image's visible content to a device, which is at least as large."""
    # Write zeros, too: the device may hold another VM's data.
    argv = ["qemu-img", "convert", "-q", "-n", "-f", source_format, "-O", "raw"]
    if not Path(device).exists():
        raise StorageError(f"there is no device {device} on this host")
    argv += ["-t", "none"] if Path(device).is_block_device() else []
    # The device's size is fixed: check only the time.
    result = _run_watched([*argv, str(source), str(device)], source, None, lambda: meter.check(0))
    if result.returncode:
        raise StorageError(f"cannot write {device}: {_failure_reason(result)}")


def resize(path: str | Path, size_bytes: int, fmt: str) -> None:
    """Grow a disk."""
    argv = ["qemu-img", "resize", "-q", "-f", fmt, str(path), str(size_bytes)]
    result = _run(argv, path, StorageError)
    if result.returncode:
        raise StorageError(f"cannot resize disk {path}: {_failure_reason(result)}")
