"""<clock>."""

from collections.abc import Mapping
from typing import Any

from saltvirt.core.arguments import mapping, refuse_unknown_keys, whole_number
from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields, flag, texts, yes_no
from saltvirt.xml.edit.merging import merge

_KEYS = {"adjustment", "utc", "timezone", "timers"}
_TIMER = ("track", "tickpolicy", "frequency", "mode", "present")
_CATCHUP = ("slew", "threshold", "limit")


@element.declare("timer")
class Timer:
    """A <timer>, as its attributes and those of its <catchup>."""

    attributes: dict[str, str] = fields.bag()
    catchup: dict[str, str] | None = fields.bag("catchup", default=None)


@element.declare("clock")
class Clock:
    """The content of a <clock>; ``attributes`` are its offset and the values for that."""

    attributes: dict[str, str] = fields.bag(default_factory=dict)
    timers: tuple[Timer, ...] = fields.children(default=())


build = element.build


def from_call(clock: Mapping[str, Any] | None) -> Clock:
    """
    Return the clock of ``{utc, adjustment, timezone, timers}``; UTC by default.

    A clock of a time zone gets no adjustment: libvirt has no such clock, and ignores the value.
    """
    clock = clock or {}
    refuse_unknown_keys("clock", clock, _KEYS)
    timers = (mapping("clock:timers", clock.get("timers")) or {}).items()
    return Clock(
        attributes=texts(_offset(clock)),
        timers=tuple(_timer(name, timer) for name, timer in timers),
    )


def _offset(clock: Mapping[str, Any]) -> dict[str, object]:
    """Return the attributes of a clock: its basis, and its offset from that."""
    adjustment = clock.get("adjustment")
    if adjustment not in (None, "reset"):
        adjustment = whole_number("clock:adjustment", adjustment, least=-(2**63))
    if clock.get("timezone"):
        return {"offset": "timezone", "timezone": clock["timezone"]}
    basis = "utc" if flag(clock.get("utc", True)) else "localtime"
    if adjustment in (None, "reset"):
        return {"offset": basis, "adjustment": adjustment}
    return {"offset": "variable", "adjustment": adjustment, "basis": basis}


def _timer(name: object, options: Mapping[str, Any]) -> Timer:
    argument = f"clock:timers:{name}"
    refuse_unknown_keys(argument, options, {*_TIMER, *_CATCHUP, "catchup"})
    timer = {**_catchup_options(argument, options.get("catchup")), **options}
    attributes = {"name": name, **{key: timer.get(key) for key in _TIMER}}
    attributes["present"] = yes_no(flag(attributes["present"]))
    catchup = texts({key: timer.get(key) for key in _CATCHUP})
    return Timer(attributes=texts(attributes), catchup=catchup or None)


def _catchup_options(argument: str, catchup: object) -> Mapping[str, Any]:
    """Return the options of ``catchup``: True is the policy, a mapping has its values."""
    if isinstance(catchup, Mapping):
        refuse_unknown_keys(f"{argument}:catchup", catchup, set(_CATCHUP))
        return catchup
    if catchup not in (None, True, False):
        raise BadArgument(f"{argument}:catchup", f"{catchup!r}; a mapping of {', '.join(_CATCHUP)}")
    return {"tickpolicy": "catchup"} if catchup else {}


def apply_changes(current: Clock, changes: Mapping[str, Any]) -> Clock:
    """
    Return the clock with the changes of a call.

    changes
        As for :func:`from_call`: null removes a value, and what is not given stays; given timers
        replace all timers.
    """
    refuse_unknown_keys("clock", changes, _KEYS)
    requested = from_call({key: value for key, value in changes.items() if value is not None})
    timers = requested.timers if "timers" in changes else current.timers
    if not {"utc", "timezone", "adjustment"} & set(changes):
        return Clock(attributes=current.attributes, timers=timers)
    call = _to_call(current)
    if {"utc", "timezone"} & set(changes):
        call = {key: call[key] for key in ("adjustment",) if key in call}
    offset_changes = {key: value for key, value in changes.items() if key != "timers"}
    return Clock(attributes=from_call(merge(call, offset_changes)).attributes, timers=timers)


def _to_call(clock: Clock) -> dict[str, Any]:
    """Return the call's mapping that leads to a clock, without its timers."""
    attributes = clock.attributes
    basis = (
        attributes.get("basis")
        if attributes.get("offset") == "variable"
        else attributes.get("offset")
    )
    call = {
        "utc": basis != "localtime",
        "timezone": attributes.get("timezone"),
        "adjustment": attributes.get("adjustment"),
    }
    return {key: value for key, value in call.items() if value is not None}
