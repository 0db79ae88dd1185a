"""Partial files in the cache's folder, for images that are not complete yet."""

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.errors import StorageError


@contextmanager
def translate_errors(base: Path, image: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the image."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left in {base} for image {image}") from exc
        raise StorageError(f"image {image} cannot be stored in {base}: {exc}") from exc


@contextmanager
def new_part(base: Path, image: str) -> Iterator[Path]:
    """Yield the path of a new file; remove it afterwards unless it was renamed."""
    part = files.part_path(base, str(time.monotonic_ns()))
    try:
        with translate_errors(base, image):
            yield part
    finally:
        part.unlink(missing_ok=True)
