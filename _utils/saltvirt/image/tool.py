"""qemu-img: the one place that runs it, with limits and without a shell."""

import json
import resource
import subprocess
from pathlib import Path

from saltvirt.errors import ImageError, StorageError, VirtError

_TIMEOUT_S = 600
_MEMORY_BYTES = 2 << 30


def _limits() -> None:
    # An image made to hurt must not eat the host.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


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
        raise StorageError("qemu-img is missing on this host; install qemu-utils/qemu-img") from exc
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


def convert(source: str | Path, source_format: str, target: str | Path, target_format: str) -> None:
    """Copy an image's content into another format."""
    argv = ["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format]
    done = _run([*argv, str(source), str(target)], StorageError)
    if done.returncode:
        raise StorageError(f"cannot write disk {target}: {_why(done)}")


def resize(path: str | Path, size_bytes: int, fmt: str) -> None:
    """Grow a disk."""
    argv = ["qemu-img", "resize", "-q", "-f", fmt, str(path), str(size_bytes)]
    done = _run(argv, StorageError)
    if done.returncode:
        raise StorageError(f"cannot resize disk {path}: {_why(done)}")
