"""
Cached images with a second hard link.

Such a link is the same file as its VMs' base image: writing to it, as ``cp`` and ``virt-customize``
do, changes all disks of these VMs.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache


def find_linked_images(settings: HostSettings) -> Iterator[tuple[str, str]]:
    """Yield ``(cached image, golden image that is the same file, empty if it is another file)``."""
    for note in cache.read_notes(settings).values():
        path, origin = note["path"], str(note["source"])
        try:
            if os.stat(path).st_nlink > 1:
                yield path, origin if origin.startswith("/") and _is_one_file(origin, path) else ""
        except OSError:
            continue


def _is_one_file(first: str, second: str) -> bool:
    try:
        return Path(first).samefile(second)
    except OSError:
        return False
