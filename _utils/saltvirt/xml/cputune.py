"""<cputune>."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.units import size_kib
from saltvirt.xml import tag, texts

_NUMBERS = (
    "shares",
    "period",
    "quota",
    "global_period",
    "global_quota",
    "emulator_period",
    "emulator_quota",
    "iothread_period",
    "iothread_quota",
)
_PINS = ("vcpupin", "emulatorpin", "iothreadpin")
# How each element names the threads that it is for.
_SCHEDS = {"vcpusched": "vcpus", "iothreadsched": "iothreads", "emulatorsched": None}
_KEYS = {*_NUMBERS, *_PINS, *_SCHEDS, "cachetune", "memorytune"}

Row = tuple[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A <cachetune> or a <memorytune>: the virtual CPUs, and rows of what they get."""

    name: str
    vcpus: str | None
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cputune:
    """What a <cputune> says; a row is an element's name and its attributes."""

    numbers: dict[str, str] = field(default_factory=dict)
    pins: tuple[Row, ...] = ()
    scheds: tuple[Row, ...] = ()
    parts: tuple[Part, ...] = ()


def of(tuning: Mapping[str, Any] | None) -> Cputune | None:
    """Return it from the mapping ``cpu:tuning``."""
    if not tuning:
        return None
    refuse_unknown_keys("cpu:tuning", tuning, _KEYS)
    return Cputune(
        numbers=texts({key: tuning.get(key) for key in _NUMBERS}),
        pins=(
            *_pins("vcpupin", "vcpu", tuning.get("vcpupin")),
            *_emulatorpin(tuning),
            *_pins("iothreadpin", "iothread", tuning.get("iothreadpin")),
        ),
        scheds=tuple(_sched(name, rule) for name in _SCHEDS for rule in tuning.get(name) or ()),
        parts=(
            *[_cachetune(*item) for item in (tuning.get("cachetune") or {}).items()],
            *[_memorytune(*item) for item in (tuning.get("memorytune") or {}).items()],
        ),
    )


def _pins(name: str, key: str, pins: Mapping[Any, Any] | None) -> list[Row]:
    rows = (pins or {}).items()
    return [(name, texts({key: number, "cpuset": cpuset})) for number, cpuset in rows]


def _emulatorpin(tuning: Mapping[str, Any]) -> list[Row]:
    if "emulatorpin" not in tuning:
        return []
    return [("emulatorpin", texts({"cpuset": tuning["emulatorpin"]}))]


def _sched(name: str, rule: Mapping[str, Any]) -> Row:
    members = _SCHEDS[name]
    who = {members: rule.get(members)} if members else {}
    how = {"scheduler": rule.get("scheduler"), "priority": rule.get("priority")}
    return name, texts({**who, **how})


def _cachetune(members: object, rules: Mapping[Any, Any]) -> Part:
    caches = [
        {
            "id": number,
            "level": rule.get("level"),
            "type": rule.get("type"),
            "size": size_kib(rule.get("size"), "cpu:tuning:cachetune:size"),
            "unit": "KiB",
        }
        for number, rule in rules.items()
        if number != "monitor"
    ]
    watched = (rules.get("monitor") or {}).items()
    monitors = [{"vcpus": threads, "level": level} for threads, level in watched]
    rows = (*_rows("cache", caches), *_rows("monitor", monitors))
    return Part(name="cachetune", vcpus=str(members), rows=rows)


def _memorytune(members: object, nodes: Mapping[Any, Any]) -> Part:
    rows = [{"id": node, "bandwidth": width} for node, width in nodes.items()]
    return Part(name="memorytune", vcpus=str(members), rows=_rows("node", rows))


def _rows(name: str, rows: Iterable[Mapping[str, object]]) -> tuple[Row, ...]:
    return tuple((name, texts(row)) for row in rows)


def build(tune: Cputune | None) -> ET.Element | None:
    """Return the <cputune>, None for None."""
    if tune is None:
        return None
    return tag(
        "cputune",
        None,
        *[tag(key, text=number) for key, number in tune.numbers.items()],
        *[tag(*row) for row in (*tune.pins, *tune.scheds)],
        *[
            tag(part.name, {"vcpus": part.vcpus}, *[tag(*row) for row in part.rows])
            for part in tune.parts
        ],
    )


def read(element: ET.Element | None) -> Cputune | None:
    """Return what a <cputune> says, None without it."""
    if element is None:
        return None
    return Cputune(
        numbers={one.tag: one.text for one in element if one.tag in _NUMBERS and one.text},
        pins=_read_rows(element, _PINS),
        scheds=_read_rows(element, _SCHEDS),
        parts=tuple(
            Part(
                name=part.tag,
                vcpus=part.get("vcpus"),
                rows=_read_rows(part, ("cache", "monitor", "node")),
            )
            for part in element
            if part.tag in ("cachetune", "memorytune")
        ),
    )


def _read_rows(element: ET.Element, names: Iterable[str]) -> tuple[Row, ...]:
    known = set(names)
    return tuple((one.tag, dict(one.attrib)) for one in element if one.tag in known)
