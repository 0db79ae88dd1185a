"""
The values that libvirt accepts in ``cpu``, ``mem``, ``graphics`` and the like.

libvirt checks them when a VM is defined, which tests and dry runs do not do; the real run must not
refuse what they accept.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.xml import is_silent
from saltvirt.xml.domain.cpu import normalize_features

_Check = Callable[[str, Any], object]
# libvirt's limit for a set of CPUs.
_MOST_CPUS = 16384
_PART = re.compile(r"\s*(?:\^([0-9]+)|([0-9]+)(?:\s*-\s*([0-9]+))?)\s*")
# The keys of a serial or console for which an empty value means not given.
_MAY_BE_EMPTY = ("protocol", "target_port", "target_type")
# A check, or the checks of a mapping's values by their keys; "*" stands for any key.
_Checker = _Check | Mapping[str, Any]


def _number(least: int = 0, most: int | None = None) -> _Check:
    return lambda label, value: arguments.whole_number(label, value, least, most)


def _one_of(*words: str) -> _Check:
    def check(label: str, value: Any) -> None:
        if value not in words:
            raise BadArgument(label, f"{value!r}; one of {', '.join(words)}")

    return check


def _or_none(check: _Check) -> _Check:
    """Return a check that also accepts an empty value, which means not given."""
    return lambda label, value: check(label, value) if value else None


def _port(label: str, value: Any) -> None:
    # libvirt shows a port that it is to choose as -1.
    if value != "":
        arguments.whole_number(label, value, -1, 65535)


def _set(label: str, value: Any) -> None:
    """Refuse a value that is no set of CPUs or nodes: ``0-2,5``, ``0-7,^3``."""
    # libvirt accepts one comma at the end, which a loop in a template leaves there.
    parts = re.sub(r",\s*$", "", str(value)).split(",")
    if isinstance(value, bool) or not all(map(_is_part, parts)):
        raise BadArgument(label, f"{value!r}; numbers and ranges, such as 0-2,5")


def _is_part(text: str) -> bool:
    match = _PART.fullmatch(text)
    if not match:
        return False
    excluded, low, high = match.groups()
    first = int(excluded or low)
    return first <= int(high or first) < _MOST_CPUS


def _vendor_id(label: str, value: Any) -> None:
    if len(str(value)) != 12:
        raise BadArgument(label, f"{value!r} has {len(str(value))} characters; it must have 12")


def _features(label: str, value: Any) -> None:
    for name, policy in (normalize_features(value) if isinstance(value, Mapping) else {}).items():
        if policy is not None:
            _POLICY(f"{label}:{name}", policy)


_POLICY = _one_of("force", "require", "optional", "disable", "forbid")
_ABOVE_0 = _number(1)
_NODES = {"mode": _one_of("strict", "preferred", "interleave", "restrictive"), "nodeset": _set}
_AMOUNT = _number(-(2**63), 2**63 - 1)
_SCHED = {
    "scheduler": _one_of("batch", "idle", "fifo", "rr"),
    "priority": _number(0, 99),
    "vcpus": _set,
    "iothreads": _set,
}
_TUNING = {
    "vcpupin": {"*": _set},
    "iothreadpin": {"*": _set},
    "emulatorpin": _or_none(_set),
    "shares": _or_none(_number()),
    **{
        f"{thread_kind}{quantity}": _or_none(limit)
        for thread_kind in ("", "global_", "emulator_", "iothread_")
        for quantity, limit in (("period", _number(0, 2**64 - 1)), ("quota", _AMOUNT))
    },
    **dict.fromkeys(("vcpusched", "iothreadsched", "emulatorsched"), _SCHED),
    "cachetune": {
        "*": {
            "*": {"level": _number(1, 3), "type": _one_of("both", "code", "data")},
            "monitor": {"*": _number(1, 3)},
        }
    },
    "memorytune": {"*": {"*": _number(1, 100)}},
}
_PROTOCOLS = _or_none(_one_of("raw", "telnet", "telnets", "tls"))
_SERIAL = "isa-serial usb-serial pci-serial spapr-vio-serial system-serial sclp-serial isa-debug"
_CONSOLE = "serial virtio sclp sclplm xen uml lxc openvz"
_KINDS: dict[str, _Checker] = {
    "cpu": {
        "placement": _one_of("static", "auto"),
        "iothreads": _or_none(_number()),
        "tuning": _TUNING,
        "cpuset": _set,
        "vcpus": {"*": {"order": _number()}},
        "mode": _or_none(_one_of("custom", "host-model", "host-passthrough", "maximum")),
        "match": _one_of("minimum", "exact", "strict"),
        "check": _one_of("none", "partial", "full"),
        "model": {"fallback": _one_of("allow", "forbid"), "vendor_id": _vendor_id},
        "topology": dict.fromkeys(("sockets", "dies", "clusters", "cores", "threads"), _ABOVE_0),
        "cache": {"mode": _one_of("emulate", "passthrough", "disable"), "level": _number(1, 3)},
        **dict.fromkeys(("feature", "features"), _features),
        "numa": {
            "*": {
                "cpus": _set,
                "memAccess": _one_of("shared", "private"),
                "distances": {"*": _number(10, 255)},
            }
        },
    },
    "mem": {
        "slots": _or_none(_ABOVE_0),
        "hugepages": {"nodeset": _set},
        "source": _or_none(_one_of("anonymous", "file", "memfd")),
        "access": _or_none(_one_of("shared", "private")),
        "allocation": _or_none(_one_of("immediate", "ondemand")),
    },
    "numatune": {"memory": _NODES, "memnodes": {"*": _NODES}},
    "clock": {
        "timers": {
            "*": {
                "track": _one_of("boot", "guest", "wall", "realtime"),
                "tickpolicy": _one_of("delay", "catchup", "merge", "discard"),
                "mode": _one_of("auto", "native", "emulate", "paravirt", "smpsafe"),
                **dict.fromkeys(("frequency", "slew", "threshold", "limit"), _number()),
                "catchup": dict.fromkeys(("slew", "threshold", "limit"), _number()),
            }
        }
    },
    "graphics": {
        "port": _port,
        "tls_port": _port,
        "listen": {"type": _or_none(_one_of("address", "network", "socket", "none"))},
    },
    "serials": {
        "protocol": _PROTOCOLS,
        "target_port": _or_none(_number()),
        "target_type": _or_none(_one_of(*_SERIAL.split())),
    },
    "consoles": {
        "protocol": _PROTOCOLS,
        "target_port": _or_none(_number()),
        "target_type": _or_none(_one_of(*_CONSOLE.split())),
    },
}


def check(values: Mapping[str, Any]) -> None:
    """Refuse the first value of a call's arguments that libvirt would refuse; ignore None."""
    for argument, checker in _KINDS.items():
        _check_value(argument, checker, values.get(argument))
    mem = values.get("mem")
    if isinstance(mem, Mapping) and mem.get("max") and mem.get("slots") is not None:
        _ABOVE_0("mem:slots", mem["slots"])


def without_empty_values(argument: str, values: object) -> tuple[dict[Any, Any], ...] | None:
    """Return a list of mappings without null values, and empty ones that mean not given."""
    mappings = arguments.mappings(argument, values)
    return mappings and tuple(
        {key: value for key, value in mapping.items() if not _is_empty_value(key, value)}
        for mapping in mappings
    )


def _is_empty_value(key: object, value: Any) -> bool:
    return value is None or (key in _MAY_BE_EMPTY and is_silent(value))


def _check_value(label: str, checker: _Checker, value: Any) -> None:
    if value is None:
        return
    if callable(checker):
        checker(label, value)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_value(label, checker, item)
    elif isinstance(value, Mapping):
        # A value that should be a mapping, and is none, is refused where it is read.
        for key, item in value.items():
            item_checker = checker.get(str(key), checker.get("*"))
            if item_checker is not None:
                _check_value(f"{label}:{key}", item_checker, item)
