"""Permissions of files in the image cache."""

from pathlib import Path


def let_qemu_read(path: str | Path) -> None:
    """Let QEMU read a file of the cache that is not a disk, such as a kernel."""
    Path(path).chmod(0o644)
