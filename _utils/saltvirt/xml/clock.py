"""<clock>."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.arguments import mapping, refuse_unknown_keys, whole
from saltvirt.errors import BadArgument
from saltvirt.xml import attributes_of, bag, flag, tag, texts, yes_no
from saltvirt.xml.merging import merged

_KEYS = {"adjustment", "utc", "timezone", "timers"}
_TIMER = ("track", "tickpolicy", "frequency", "mode", "present")
_CATCHUP = ("slew", "threshold", "limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A <timer>, as its attributes and those of its <catchup>."""

    attributes: dict[str, str]
    catchup: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a <clock> says; ``attributes`` are its offset and what belongs to that."""

    attributes: dict[str, str] = field(default_factory=dict)
    timers: tuple[Timer, ...] = ()


def of(clock: Mapping[str, Any] | None) -> Clock:
    """
    Return the clock of ``{utc, adjustment, timezone, timers}``; UTC by default.

    A clock of a time zone has no adjustment: libvirt has no such clock, and passes it over.
    """
    clock = clock or {}
    refuse_unknown_keys("clock", clock, _KEYS)
    timers = (mapping("clock:timers", clock.get("timers")) or {}).items()
    return Clock(
        attributes=texts(_offset(clock)),
        timers=tuple(_timer(name, timer) for name, timer in timers),
    )


def _offset(clock: Mapping[str, Any]) -> dict[str, object]:
    """Return the attributes of a clock: what it is based on, and how far it is from that."""
    adjustment = clock.get("adjustment")
    if adjustment not in (None, "reset"):
        adjustment = whole("clock:adjustment", adjustment, least=-(2**63))
    if clock.get("timezone"):
        return {"offset": "timezone", "timezone": clock["timezone"]}
    basis = "utc" if flag(clock.get("utc", True)) else "localtime"
    if adjustment in (None, "reset"):
        return {"offset": basis, "adjustment": adjustment}
    return {"offset": "variable", "adjustment": adjustment, "basis": basis}


def _timer(name: object, given: Mapping[str, Any]) -> Timer:
    what = f"clock:timers:{name}"
    refuse_unknown_keys(what, given, {*_TIMER, *_CATCHUP, "catchup"})
    timer = {**_catching_up(what, given.get("catchup")), **given}
    attributes = {"name": name, **{key: timer.get(key) for key in _TIMER}}
    attributes["present"] = yes_no(flag(attributes["present"]))
    catchup = texts({key: timer.get(key) for key in _CATCHUP})
    return Timer(attributes=texts(attributes), catchup=catchup or None)


def _catching_up(what: str, given: object) -> Mapping[str, Any]:
    """Return what ``catchup`` means: True is the policy, a mapping is how it catches up."""
    if isinstance(given, Mapping):
        refuse_unknown_keys(f"{what}:catchup", given, set(_CATCHUP))
        return given
    if given not in (None, True, False):
        raise BadArgument(f"{what}:catchup", f"{given!r}; a mapping of {', '.join(_CATCHUP)}")
    return {"tickpolicy": "catchup"} if given else {}


def build(clock: Clock) -> ET.Element:
    """Return the <clock>."""
    timers = [
        tag("timer", timer.attributes, bag("catchup", timer.catchup)) for timer in clock.timers
    ]
    return tag("clock", clock.attributes, *timers)


def read(element: ET.Element | None) -> Clock:
    """Return what a <clock> says; without it, a clock that says nothing."""
    if element is None:
        return Clock()
    return Clock(
        attributes=dict(element.attrib),
        timers=tuple(
            Timer(attributes=dict(timer.attrib), catchup=attributes_of(timer.find("catchup")))
            for timer in element.iterfind("timer")
        ),
    )


def changed(now: Clock, given: Mapping[str, Any]) -> Clock:
    """
    Return the clock when a call has changed it.

    given
        As for :func:`of`: null removes, and what is not given stays; timers that are given are all
        there are.
    """
    refuse_unknown_keys("clock", given, _KEYS)
    wanted = of({key: value for key, value in given.items() if value is not None})
    timers = wanted.timers if "timers" in given else now.timers
    if not {"utc", "timezone", "adjustment"} & set(given):
        return Clock(attributes=now.attributes, timers=timers)
    call = _call(now)
    if {"utc", "timezone"} & set(given):
        call = {key: call[key] for key in ("adjustment",) if key in call}
    asked = {key: value for key, value in given.items() if key != "timers"}
    return Clock(attributes=of(merged(call, asked)).attributes, timers=timers)


def _call(clock: Clock) -> dict[str, Any]:
    """Return the call's mapping that leads to a clock, but for its timers."""
    said = clock.attributes
    basis = said.get("basis") if said.get("offset") == "variable" else said.get("offset")
    given = {
        "utc": basis != "localtime",
        "timezone": said.get("timezone"),
        "adjustment": said.get("adjustment"),
    }
    return {key: value for key, value in given.items() if value is not None}
