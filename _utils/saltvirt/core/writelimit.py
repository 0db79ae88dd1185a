"""Limits of space and time for one image, so that VMs keep what they need."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core.errors import ImageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB, human


class OverLimit(ImageError):
    """An image would take more room or time than this host has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """
    The limits for an image on this host.

    max_bytes
        The size limit (``virt:image_max_gib``), however much space is free.
    reserve_bytes
        The space to keep free for VMs (``virt:disk_reserve_mib``).
    limit_s
        The time limit of one step, in seconds (``virt:image_limit_s``).
    """

    max_bytes: int
    reserve_bytes: int
    limit_s: int

    def meter(self, image: object, folder: str | Path) -> "Meter":
        """Begin a step that writes data of an image into a folder."""
        return Meter(self, str(image), Path(folder))


def from_settings(settings: HostSettings) -> Room:
    """Return the limits for an image on this host."""
    return Room(
        max_bytes=int(settings.image_max_gib * 1024 * MIB),
        reserve_bytes=settings.disk_reserve_mib * MIB,
        limit_s=settings.image_limit_s,
    )


def read_space(path: str | Path) -> tuple[int, int]:
    """Return ``(total, free)`` bytes of the file system that holds ``path`` or its parent."""
    path = Path(path)
    while not path.exists():
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def allocated_bytes(path: str | Path) -> int:
    """Return the bytes that a file takes on the disk, without holes; 0 if it is missing."""
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


class Meter:
    """One step that writes: the writer reports its progress, and is stopped in time."""

    def __init__(self, room: Room, image: str, folder: Path) -> None:
        self._room, self._image, self._folder = room, image, folder
        self._deadline = time.monotonic() + room.limit_s

    @property
    def late(self) -> str:
        """The time limit, in words."""
        return "in the time that it has (virt:image_limit_s)"

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return self._deadline - time.monotonic()

    def most_bytes(self) -> int:
        """Return the size limit of a file that is begun now."""
        return min(self._limit(), max(0, self._left()))

    def expect(self, size_bytes: int, written_bytes: int = 0) -> None:
        """Refuse a size that is too large, or leaves VMs too little, before it is written."""
        self._refuse_large(size_bytes)
        if size_bytes - written_bytes > self._left():
            raise OverLimit(
                f"no room for image {self._image} in {self._folder}: it takes "
                f"{human(size_bytes)}, and {self._free()}"
            )

    def check(self, written_bytes: int) -> None:
        """Stop a file that has become too large, leaves VMs too little, or takes too long."""
        self._refuse_large(written_bytes)
        if self._left() <= 0:
            raise OverLimit(
                f"no room for image {self._image} in {self._folder}: after "
                f"{human(written_bytes)} of it, {self._free()}"
            )
        if self.left_s <= 0:
            raise OverLimit(
                f"image {self._image} took longer than {self._room.limit_s} s; raise "
                "virt:image_limit_s if this host, or the way to it, is slow"
            )

    def counting(self, progress: Callable[..., None]) -> Callable[..., None]:
        """Return ``progress(done_bytes, total_bytes)`` that checks the limits; 0 is unknown."""

        def limited_progress(done_bytes: int, total_bytes: int | None) -> None:
            self.expect(total_bytes or done_bytes, done_bytes)
            self.check(done_bytes)
            progress(done_bytes, total_bytes)

        return limited_progress

    def _limit(self) -> int:
        # A disk format adds tables to its data: qcow2 less than 1 in 4,000.
        return self._room.max_bytes + self._room.max_bytes // 1024 + MIB

    def _refuse_large(self, size_bytes: int) -> None:
        if size_bytes > self._limit():
            raise OverLimit(
                f"image {self._image} takes {human(size_bytes)} or more; the most is "
                f"{human(self._room.max_bytes)} (virt:image_max_gib)"
            )

    def _left(self) -> int:
        return read_space(self._folder)[1] - self._room.reserve_bytes

    def _free(self) -> str:
        free_text, reserve_text = (
            human(read_space(self._folder)[1]),
            human(self._room.reserve_bytes),
        )
        return (
            f"{free_text} are free, of which {reserve_text} are kept for VMs "
            "(virt:disk_reserve_mib); remove "
            "images that nobody uses (salt-run virt.image_prune), empty the trash (salt-run "
            "virt.trash_empty), or make room otherwise"
        )
