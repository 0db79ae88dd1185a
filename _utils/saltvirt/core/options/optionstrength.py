"""Whether a changed ``virt:`` option of a host protects less than before."""

import json
from typing import Any

from saltvirt.core import terminal

# Numbers with their defaults: LEAST protects less when it falls, _MOST when it rises.
LEAST = {"trash_days": 7, "reserve_mib": 512, "disk_reserve_mib": 1024}
_MOST = {
    "cpu_ratio": 4.0,
    "memory_ratio": 1.0,
    "disk_ratio": 1.0,
    "image_max_gib": 2048,
    "image_limit_s": 3600,
}
# The places of disks, records and libvirt: any other value protects other files.
PLACES = ("images", "state_dir", "storagepool", "connection", "compat")


def is_weaker(option: str, old_value: Any, new_value: Any) -> bool:
    """
    Return whether a protection has become weaker.

    old_value, new_value
        The option's value; None if it is not set.
    """
    for table, sign in ((LEAST, 1), (_MOST, -1)):
        if option in table:
            old_number, new_number = (
                _number(item, table[option]) for item in (old_value, new_value)
            )
            # An unreadable number is refused where it is used, so it weakens nothing.
            return (
                old_number is not None
                and new_number is not None
                and sign * new_number < sign * old_number
            )
    if option in ("shared_paths", "own_paths", "backing_paths"):
        old, new = set(_paths(old_value)), set(_paths(new_value))
        return bool(old - new) if option == "shared_paths" else bool(new - old)
    return old_value is not None and (new_value is None or option in PLACES)


def describe_change(option: str, old_value: Any, new_value: Any) -> str:
    """Return the change of an option as text for a log."""
    old_text = "not set" if old_value is None else printable_value(option, old_value)
    new_text = "not set any more" if new_value is None else printable_value(option, new_value)
    return f"it was {old_text}, and is {new_text}"


def printable_value(option: str, value: Any) -> str:
    """Return an option's value as text that a log may show."""
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
