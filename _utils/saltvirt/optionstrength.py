"""Whether a changed ``virt:`` option of a host protects less than before."""

import json
from typing import Any

from saltvirt import terminal

# Numbers with their defaults: one that falls, or one that rises, protects less.
LEAST = {"trash_days": 0, "reserve_mib": 512, "disk_reserve_mib": 1024}
_MOST = {
    "cpu_ratio": 4.0,
    "memory_ratio": 1.0,
    "disk_ratio": 1.0,
    "image_max_gib": 2048,
    "image_limit_s": 3600,
}
# They say where disks, records and libvirt are: any other value protects other files.
PLACES = ("images", "state_dir", "storagepool", "connection", "compat")


def is_weaker(option: str, was: Any, now: Any) -> bool:
    """
    Return whether a protection has become weaker.

    was, now
        The option's value as it was given, None if it was not.
    """
    for table, sign in ((LEAST, 1), (_MOST, -1)):
        if option in table:
            before, after = (_number(one, table[option]) for one in (was, now))
            # One that cannot be read is refused where it is needed, so it weakens nothing.
            return before is not None and after is not None and sign * after < sign * before
    if option in ("shared_paths", "own_paths", "backing_paths"):
        old, new = set(_paths(was)), set(_paths(now))
        return bool(old - new) if option == "shared_paths" else bool(new - old)
    return was is not None and (now is None or option in PLACES)


def change(option: str, was: Any, now: Any) -> str:
    """Return what an option was and is, as a log tells it."""
    before = "not set" if was is None else shown(option, was)
    after = "not set any more" if now is None else shown(option, now)
    return f"it was {before}, and is {after}"


def shown(option: str, value: Any) -> str:
    """Return an option's value as a log may show it."""
    if option in ("vnc", "connection", "nic", "capacity"):
        return "set"
    return terminal.one_line(json.dumps(value), 120)


def _number(value: Any, default: float) -> float | None:
    try:
        return float(default if value is None else value)
    except (TypeError, ValueError):
        return None


def _paths(value: Any) -> list[str]:
    return [str(path) for path in value] if isinstance(value, list) else []
