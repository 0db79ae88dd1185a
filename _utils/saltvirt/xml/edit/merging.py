"""Merge a call's changes into a mapping: null removes, and what is not given stays."""

from collections.abc import Iterable, Mapping
from typing import Any

# Entries by ids: the given ones replace all. Of these a given entry is merged ...
_MERGED = {"numa", "memnodes"}
# ... and of these it is the whole entry.
_WHOLE = {
    "features",
    "distances",
    "vcpupin",
    "iothreadpin",
    "cachetune",
    "memorytune",
    "timers",
}


def merge(current: Mapping[str, Any], changes: Mapping[Any, Any]) -> dict[str, Any]:
    """
    Return a call's mapping with the changes of another call.

    None removes a value, and only the given keys of a mapping change. But where the keys are ids
    (features, timers, pins, ...), the given ones replace all.
    """
    out = dict(current)
    for name, value in changes.items():
        key = str(name)
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping):
            old = out.get(key)
            out[key] = _merge_entry(key, old if isinstance(old, Mapping) else {}, value)
        else:
            out[key] = value
    return out


def _merge_entry(
    key: str, current: Mapping[str, Any], changes: Mapping[Any, Any]
) -> dict[str, Any]:
    new_entries = {str(name): value for name, value in changes.items() if value is not None}
    if key in _WHOLE:
        return new_entries
    if key in _MERGED:
        return {
            name: merge(current.get(name, {}), value) if isinstance(value, Mapping) else value
            for name, value in new_entries.items()
        }
    return merge(current, changes)


def format_cpus(text: object) -> str:
    """Return a set of CPUs or nodes as libvirt writes it: ``0-2,5``; other text as it is."""
    try:
        numbers = _numbers(str(text))
    except ValueError:
        return str(text)
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def add_free_cpus(count: int, cpuset: object, other_sets: Iterable[object]) -> str:
    """Return a set of CPUs, and those of the first ``count`` that no other set has."""
    try:
        used_cpus = set[int]().union(*(_numbers(str(other_set)) for other_set in other_sets))
        free_cpus = (set(range(count)) - used_cpus) | _numbers(str(cpuset))
    except ValueError:
        return str(cpuset)
    return format_cpus(",".join(map(str, sorted(free_cpus))))


def _numbers(text: str) -> set[int]:
    members: set[int] = set()
    exclusions: set[int] = set()
    for part in text.replace(" ", "").removesuffix(",").split(","):
        low, _dash, high = part.removeprefix("^").partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if len(numbers) > 65536:
            raise ValueError
        (exclusions if part.startswith("^") else members).update(numbers)
    return members - exclusions
