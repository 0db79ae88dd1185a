"""Parse a call's description of a move."""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Move
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB

_INT64 = 2**63 - 1
_YEAR_S = 365 * 24 * 3600
# Minimum and maximum. libvirt's QEMU driver turns MiB/s into bytes of 64 bits; QEMU has 8 bits for
# numbers of threads and connections, and a downtime of 2000 s at most.
_NUMBERS_3006 = {
    "max_bandwidth": (1, _INT64 // MIB),
    "max_downtime": (1, 2_000_000),
    "parallel_connections": (1, 255),
    "comp_mt_level": (0, 9),
    "comp_mt_threads": (1, 255),
    "comp_mt_dthreads": (1, 255),
    "comp_xbzrle_cache": (1, _INT64),
    "postcopy_bandwidth": (1, _INT64 // MIB),
}
_NUMBERS = {
    **_NUMBERS_3006,
    "postcopy_after": (1, 2**31 - 1),
    "limit_s": (1, _YEAR_S),
    "stall_s": (1, _YEAR_S),
}
_FLAGS = ("live", "persistent", "undefinesource", "offline", "compressed", "postcopy")
_COPIES = {"all": "all", "inc": "incremental", "incremental": "incremental"}


def from_call(settings: HostSettings, keywords: Mapping[str, Any]) -> Move:
    """Return the :class:`saltvirt.core.model.Move` that a call of ``virt.migrate`` means."""
    values = _values(keywords)
    options: dict[str, Any] = {
        key: arguments.whole_number(key, values[key], least=least, most=most)
        for key, (least, most) in _NUMBERS.items()
        if key in values
    }
    options |= {key: arguments.boolean(key, values[key]) for key in _FLAGS if key in values}
    copies = values.get("copy_storage")
    if copies is not None and (not isinstance(copies, str) or copies not in _COPIES):
        raise BadArgument("copy_storage", f"{copies!r}; all or incremental")
    methods = arguments.names("comp_methods", values.get("comp_methods"))
    if not set(methods) <= {"mt", "xbzrle"}:
        raise BadArgument("comp_methods", f"{', '.join(methods)}; of mt and xbzrle")
    if "postcopy_after" in options:
        options["postcopy"] = True
    return Move(
        comp_methods=methods,
        copy_storage=None if copies is None else _COPIES[copies],
        tunnel=settings.tunnel,
        **options,
    )


def _values(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a call of ``virt.migrate`` gives; refuse keywords it does not take."""
    keywords = {key: value for key, value in keywords.items() if not key.startswith("__")}
    known_names = [*_NUMBERS, *_FLAGS, "comp_methods", "copy_storage", *config.CONNECTION]
    arguments.refuse_unknown(
        [key for key in keywords if key not in known_names], known_names, "virt.migrate"
    )
    if _is_one_connection(keywords.get("parallel_connections")):
        keywords["parallel_connections"] = 1
    values = {key: value for key, value in keywords.items() if not _is_empty_value(key, value)}
    for keyword in config.CONNECTION:
        if keyword in values:
            raise BadArgument(
                keyword,
                "hosts let each other in by their certificates (virt.keys); leave it out",
            )
    return values


def _is_one_connection(value: object) -> bool:
    """Return whether a call requests a single connection for a VM's memory by 0 or False."""
    return value in (0, "0")


def _is_empty_value(key: str, value: object) -> bool:
    """Return whether a value counts as not given: on Salt 3006, an empty one and 0 do."""
    if key not in (*_NUMBERS_3006, "copy_storage"):
        return value is None
    least, _most = _NUMBERS_3006.get(key, (1, 0))
    # The level of compression can be 0.
    return value in (None, "") or value is False or (least > 0 and value == 0)
