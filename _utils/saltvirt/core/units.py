"""Sizes as users write them, in bytes."""

import re

from saltvirt.core.errors import BadArgument

MIB = 1024 * 1024
_FACTORS = {
    "": MIB,
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "k": 1024,
    "kib": 1024,
    "kb": 1000,
    "m": MIB,
    "mib": MIB,
    "mb": 1000**2,
    "g": 1024**3,
    "gib": 1024**3,
    "gb": 1000**3,
    "t": 1024**4,
    "tib": 1024**4,
    "tb": 1000**4,
    "p": 1024**5,
    "pib": 1024**5,
    "pb": 1000**5,
    "e": 1024**6,
    "eib": 1024**6,
    "eb": 1000**6,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def size_bytes(value: object, name: str = "size") -> int:
    """Return a size in bytes: ``512`` is MiB, ``4g``/``4GiB`` binary, ``4GB`` decimal."""
    match = None if isinstance(value, bool) else _SIZE.fullmatch(str(value))
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise BadArgument(name, f"{value!r} is not a size: write 512 (MiB), 4g, '512 MiB' or 4GB")
    amount = match.group(1)
    # A float would round beyond 2**53, and libvirt's "no limit" is 2**63 bytes.
    return int(float(amount) * factor) if "." in amount else int(amount) * factor


def size_mib(value: object, name: str = "size") -> int:
    """Return a size in whole MiB, rounded up; a bare number is MiB."""
    return -(-size_bytes(value, name) // MIB)


def size_kib(value: object, name: str = "size") -> int:
    """Return a size in whole KiB, rounded up; a bare number is MiB."""
    size = size_bytes(value, name)
    if 0 < size < 1024:
        raise BadArgument(name, f"{value!r} is less than 1 KiB")
    return -(-size // 1024)


def human(size: float) -> str:
    """Return bytes as people read them: ``512.0M``, ``2.0G``."""
    amount = float(size)
    for unit in ("B", "K", "M", "G", "T"):
        if amount < 1024 or unit == "T":
            return f"{amount:.1f}{unit}" if unit != "B" else f"{int(amount)}B"
        amount /= 1024
    raise AssertionError("unreachable")
