"""
Cached images with a second hard link, such as golden images of earlier releases.

Such a golden image is the same file as its VMs' base image: writing to it, as ``cp`` and
``virt-customize`` do, changes all disks of these VMs.
"""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core import files, writelimit
from saltvirt.core.errors import VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, clone, partfile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedImage:
    """
    A cached image with a second hard link.

    golden
        The golden image that is the same file; None if the second link is unknown.
    """

    digest: str
    path: str
    golden: str | None


def find_linked_images(settings: HostSettings) -> Iterator[LinkedImage]:
    """Yield the cached images with more than one hard link."""
    for digest, note in cache.read_notes(settings).items():
        path, origin = note["path"], str(note["source"])
        try:
            if os.stat(path).st_nlink < 2:
                continue
        except OSError:
            continue
        golden_path = origin if origin.startswith("/") and _is_one_file(origin, path) else None
        yield LinkedImage(digest=digest, path=path, golden=golden_path)


def separate(settings: HostSettings) -> None:
    """
    Replace golden images that are hard links to cached images by copies.

    The cached image keeps its file, for the disks based on it. A golden image without room for a
    copy stays as it is, and ``virt.audit`` reports it.
    """
    for image in find_linked_images(settings):
        if image.golden is not None:
            try:
                _replace(settings, image, Path(image.golden))
            except (VirtError, OSError) as exc:
                log.warning(
                    "the golden image %s stays one file with %s, on which disks of VMs are based: "
                    "%s",
                    image.golden,
                    image.path,
                    exc,
                )


def _replace(settings: HostSettings, image: LinkedImage, golden_path: Path) -> None:
    lock_dir = Path(settings.state_dir) / "locks"
    with (
        cache.lock_image(lock_dir, image.digest),
        partfile.new_part(golden_path.parent, str(golden_path)) as part,
    ):
        clone.copy(
            image.path,
            part,
            writelimit.from_settings(settings).meter(golden_path, golden_path.parent),
        )
        stat = golden_path.stat()
        os.chown(part, stat.st_uid, stat.st_gid)
        part.chmod(stat.st_mode & 0o777)
        files.make_durable(part)
        # The golden image's owner may have replaced it meanwhile.
        if _is_one_file(golden_path, image.path):
            part.rename(golden_path)
            files.sync_folder(golden_path.parent)
            _note(settings, image.digest)


def _note(settings: HostSettings, digest: str) -> None:
    """Note that a cached image's source is a golden image: no hard link shows that any more."""
    path = cache.note_path(cache.folder_path(settings), digest)
    note = {**json.loads(path.read_text()), "is_golden": True}
    files.write(path, json.dumps(note).encode())


def _is_one_file(first: str | Path, second: str | Path) -> bool:
    try:
        return Path(first).samefile(second)
    except OSError:
        return False
