"""What a call changes of a mapping: null removes, what is not given stays."""

from collections.abc import Iterable, Mapping
from typing import Any

from saltvirt.errors import BadArgument

# Entries by an id: those that are given are all there are. Of these a given entry is merged ...
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


def merged(now: Mapping[str, Any], given: Mapping[Any, Any]) -> dict[str, Any]:
    """
    Return a call's mapping with what another call changes of it.

    A value of None removes what is there, and of a mapping only the keys that are given change.
    But where the keys are ids (features, timers, pins, ...), those that are given are all.
    """
    out = dict(now)
    for name, value in given.items():
        key = str(name)
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping):
            old = out.get(key)
            out[key] = _merged_at(key, old if isinstance(old, Mapping) else {}, value)
        else:
            out[key] = value
    return out


def _merged_at(key: str, now: Mapping[str, Any], given: Mapping[Any, Any]) -> dict[str, Any]:
    kept = {str(one): value for one, value in given.items() if value is not None}
    if key in _WHOLE:
        return kept
    if key in _MERGED:
        return {
            one: merged(now.get(one, {}), value) if isinstance(value, Mapping) else value
            for one, value in kept.items()
        }
    return merged(now, given)


def sections(given: Mapping[str, Any], names: frozenset[str] | set[str]) -> None:
    """Refuse a value that is no mapping where there must be one."""
    for name in names:
        value = given.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise BadArgument(name, f"{value!r} is not a mapping")


def cpus(text: object) -> str:
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


def rest(count: int, own: object, others: Iterable[object]) -> str:
    """Return a set of CPUs with those of the first ``count`` that are in no other set."""
    try:
        taken = set[int]().union(*(_numbers(str(one)) for one in others))
        free = (set(range(count)) - taken) | _numbers(str(own))
    except ValueError:
        return str(own)
    return cpus(",".join(map(str, sorted(free))))


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    without: set[int] = set()
    for part in text.replace(" ", "").removesuffix(",").split(","):
        low, _dash, high = part.removeprefix("^").partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if len(numbers) > 65536:
            raise ValueError
        (without if part.startswith("^") else found).update(numbers)
    return found - without
