"""Labs that end with the process that brought them up: killed before, its lab is made anew."""

import os
from pathlib import Path

NAME = "temporary"


def mark(lab):
    """Note that the lab is the calling process's, unless it is there already."""
    if lab.root.exists():
        return
    lab.root.mkdir(mode=0o700, parents=True)
    (lab.root / NAME).write_text(_identity(os.getppid()))


def was_left(lab):
    """Return whether a lab is there whose owner ended without taking it down."""
    path = lab.root / NAME
    if not path.exists():
        return False
    owner = path.read_text()
    return not owner or _identity(owner.split()[0]) != owner


def _identity(pid):
    """Return a process's id and when it began, as ids come back; nothing if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return f"{pid} {stat.rpartition(')')[2].split()[19]}"
