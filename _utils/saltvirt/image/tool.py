"""qemu-img: the one place that runs it, with limits and without a shell."""

import functools
import json
import os
import resource
import subprocess
from pathlib import Path

from saltvirt import room
from saltvirt.errors import ImageError, StorageError, VirtError

_TIMEOUT_S = 600
_MEMORY_BYTES = 2 << 30
_LOOK_S = 0.1
_MISSING = "qemu-img is missing on this host; install qemu-utils/qemu-img"


def _limits(file_bytes: int = resource.RLIM_INFINITY) -> None:
    # An image made to hurt must not eat the host.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)


def _run(argv: list[str], error: type[VirtError]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=_limits,
        )
    except FileNotFoundError as exc:
        raise StorageError(_MISSING) from exc
    except subprocess.TimeoutExpired as exc:
        raise error(f"qemu-img {argv[1]} did not end within {_TIMEOUT_S} s") from exc


def _why(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.strip().splitlines() if line]
    return lines[-1].removeprefix("qemu-img: ") if lines else f"exit code {done.returncode}"


def check(path: str | Path) -> int:
    """Return the end of a qcow2 image's data in bytes; raise ImageError if it is damaged."""
    argv = ["qemu-img", "check", "--output=json", "-f", "qcow2", str(path)]
    done = _run(argv, ImageError)
    # qemu-img check: 0 clean, 3 leaked clusters only (harmless), 2 corrupt, 1 not checked.
    if done.returncode not in (0, 3):
        why = "it is truncated or its tables are damaged" if done.returncode == 2 else _why(done)
        raise ImageError(f"image {path} cannot be used: {why}")
    return int(json.loads(done.stdout).get("image-end-offset", 0))


def refuse_in_use(path: str | Path, fmt: str) -> None:
    """Raise StorageError if another program, a VM mostly, has a disk open."""
    done = _run(["qemu-img", "info", "-f", fmt, str(path)], StorageError)
    if done.returncode and " lock" in done.stderr:
        raise StorageError(f"{path} is open in another program; if it is a VM, stop it first")
    if done.returncode:
        raise StorageError(f"{path} cannot be opened: {_why(done)}")


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
    done = _run([*argv, str(path), str(size_bytes)], StorageError)
    if done.returncode:
        raise StorageError(f"cannot create disk {path}: {_why(done)}")


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
    most = resource.RLIM_INFINITY if target_format == "raw" else meter.most_bytes()
    done = _watched([*argv, str(source), str(target)], target, meter, most)
    if done.returncode and "File too large" in done.stderr:
        meter.expect(most + 1)
    if done.returncode:
        # It may have filled the disk between two looks.
        meter.check(room.taken(target))
        raise StorageError(f"cannot write disk {target}: {_why(done)}")


def _watched(
    argv: list[str], target: str | Path, meter: room.Meter, most_bytes: int
) -> subprocess.CompletedProcess[str]:
    """Run what writes a file; it is ended as soon as that takes too much room or time."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=functools.partial(_limits, most_bytes),
        )
    except FileNotFoundError as exc:
        raise StorageError(_MISSING) from exc
    with child:
        try:
            while True:
                try:
                    _out, err = child.communicate(timeout=_LOOK_S)
                    return subprocess.CompletedProcess(argv, child.returncode, "", err)
                except subprocess.TimeoutExpired:
                    meter.check(room.taken(target))
        except BaseException:
            child.kill()
            raise


def resize(path: str | Path, size_bytes: int, fmt: str) -> None:
    """Grow a disk."""
    argv = ["qemu-img", "resize", "-q", "-f", fmt, str(path), str(size_bytes)]
    done = _run(argv, StorageError)
    if done.returncode:
        raise StorageError(f"cannot resize disk {path}: {_why(done)}")
