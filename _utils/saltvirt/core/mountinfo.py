"""The mounted file systems, from ``/proc/self/mountinfo``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """
    A file system that is mounted.

    device
        Its device number, ``major:minor``.
    folder
        Its mount point.
    kind
        Its type, such as ``nfs4``.
    """

    device: str
    folder: str
    kind: str


def mounts() -> Iterator[Mount]:
    """Yield the mounted file systems; of several at one folder, the last one is visible."""
    # As bytes: the kernel escapes blanks, tabs and newlines in a folder's name, but no other line
    # ends.
    text = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
    for line in filter(None, text.split("\n")):
        mount_part, _dash, device_part = line.partition(" - ")
        device, _root, folder = mount_part.split(" ")[2:5]
        yield Mount(
            device=device,
            folder=re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), folder),
            kind=device_part.split(" ")[0],
        )
