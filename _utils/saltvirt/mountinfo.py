"""What is mounted, as the kernel tells it in ``/proc/self/mountinfo``."""

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
        The folder at which it is mounted.
    kind
        The kind of file system, such as ``nfs4``.
    """

    device: str
    folder: str
    kind: str


def mounts() -> Iterator[Mount]:
    """Yield what is mounted; of several at one folder, the last is the one that is seen."""
    # As bytes: the kernel escapes blanks, tabs and newlines in the name of a folder, and no other
    # ends of lines.
    text = Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape")
    for line in filter(None, text.split("\n")):
        mount_part, _dash, device_part = line.partition(" - ")
        device, _root, folder = mount_part.split(" ")[2:5]
        yield Mount(
            device=device,
            folder=re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), folder),
            kind=device_part.split(" ")[0],
        )
