"""<cputune>."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.core.units import size_kib
from saltvirt.xml import element, fields, is_silent, texts
from saltvirt.xml.edit.merging import format_cpus, merge

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
# The attribute by which each element names its threads.
_SCHEDS = {"vcpusched": "vcpus", "iothreadsched": "iothreads", "emulatorsched": None}
_PARTS = ("cachetune", "memorytune")
_KEYS = {*_NUMBERS, *_PINS, *_SCHEDS, *_PARTS}

Row = tuple[str, dict[str, str]]


@element.declare("cachetune", "memorytune")
class Part:
    """A <cachetune> or a <memorytune>: the virtual CPUs, and rows of their shares."""

    name: str
    vcpus: str | None = fields.attribute("@vcpus")
    rows: tuple[Row, ...] = fields.tagged(".", "cache", "monitor", "node", default=())


@element.declare("cputune")
class Cputune:
    """The content of a <cputune>; a row is an element's name and its attributes."""

    numbers: dict[str, str] = fields.tagged(".", *_NUMBERS, form=fields.TEXT, default_factory=dict)
    pins: tuple[Row, ...] = fields.tagged(".", *_PINS, default=())
    scheds: tuple[Row, ...] = fields.tagged(".", *_SCHEDS, default=())
    parts: tuple[Part, ...] = fields.children(default=())


build = element.build


def from_call(tuning: Mapping[str, Any] | None) -> Cputune | None:
    """Return the tuning of the mapping ``cpu:tuning``; None if that is empty."""
    if not tuning:
        return None
    refuse_unknown_keys("cpu:tuning", tuning, _KEYS)
    tune = Cputune(
        numbers=_numbers(tuning),
        pins=(
            *_pins("vcpupin", "vcpu", tuning.get("vcpupin")),
            *_emulatorpin(tuning),
            *_pins("iothreadpin", "iothread", tuning.get("iothreadpin")),
        ),
        scheds=tuple(_sched(name, rule) for name in _SCHEDS for rule in _rules(tuning.get(name))),
        parts=(
            *[_cachetune(*item) for item in (tuning.get("cachetune") or {}).items()],
            *[_memorytune(*item) for item in (tuning.get("memorytune") or {}).items()],
        ),
    )
    # libvirt keeps no empty element: it would be a change each time.
    return None if tune == Cputune() else tune


def _numbers(tuning: Mapping[str, Any]) -> dict[str, str]:
    # As on Salt 3006, an empty value means not given.
    return texts({key: tuning.get(key) for key in _NUMBERS if not is_silent(tuning.get(key))})


def _pins(name: str, key: str, pins: Mapping[Any, Any] | None) -> list[Row]:
    rows = (pins or {}).items()
    return [(name, texts({key: number, "cpuset": cpuset})) for number, cpuset in rows]


def _emulatorpin(tuning: Mapping[str, Any]) -> list[Row]:
    if is_silent(tuning.get("emulatorpin")):
        return []
    return [("emulatorpin", texts({"cpuset": tuning["emulatorpin"]}))]


def _rules(value: Any) -> list[Mapping[str, Any]]:
    """Return rules as a list; the emulator has only one."""
    return [value] if isinstance(value, Mapping) else list(value or ())


def _sched(name: str, rule: Mapping[str, Any]) -> Row:
    members = _SCHEDS[name]
    threads = {members: rule.get(members)} if members else {}
    schedule = {"scheduler": rule.get("scheduler"), "priority": rule.get("priority")}
    return name, texts({**threads, **schedule})


def _cachetune(members: object, rules: Mapping[Any, Any]) -> Part:
    caches = [
        {
            "id": number,
            "level": rule.get("level"),
            "type": rule.get("type"),
            **_as_libvirt_writes(_cache_kib(rule)),
        }
        for number, rule in rules.items()
        if number != "monitor"
    ]
    monitor_levels = (rules.get("monitor") or {}).items()
    monitors = [{"vcpus": threads, "level": level} for threads, level in monitor_levels]
    rows = (*_rows("cache", caches), *_rows("monitor", monitors))
    return Part(name="cachetune", vcpus=str(members), rows=rows)


def _cache_kib(rule: Mapping[str, Any]) -> int:
    """Return the size of a part of a cache; as for libvirt, the default unit is KiB."""
    size = str(rule.get("size")).strip()
    unit = str(rule.get("unit") or "KiB") if size.isdecimal() else ""
    return size_kib(size + unit, "cpu:tuning:cachetune:size")


def _as_libvirt_writes(size_kib: int) -> dict[str, object]:
    """Return a size in the largest exact unit: in another unit it would be a change."""
    units = ["KiB", "MiB", "GiB"]
    while size_kib and size_kib % 1024 == 0 and len(units) > 1:
        size_kib //= 1024
        units.pop(0)
    return {"size": size_kib, "unit": units[0]}


def _memorytune(members: object, nodes: Mapping[Any, Any]) -> Part:
    rows = [{"id": node, "bandwidth": width} for node, width in nodes.items()]
    return Part(name="memorytune", vcpus=str(members), rows=_rows("node", rows))


def _rows(name: str, rows: Iterable[Mapping[str, object]]) -> tuple[Row, ...]:
    return tuple((name, texts(row)) for row in rows)


def apply_changes(
    current: Cputune | None, changes: Mapping[str, Any] | None, max_vcpus: int | None = None
) -> Cputune | None:
    """
    Return the tuning of a domain with the changes of a call.

    changes
        The mapping ``cpu:tuning``; null removes a value, and what is not given stays; None removes
        all of it.
    max_vcpus
        The highest number of virtual CPUs: libvirt omits the pins of others.
    """
    if changes is None:
        return None
    refuse_unknown_keys("cpu:tuning", changes, _KEYS)
    tuning_changes = {
        key: _by_cpus(value) if key in _PARTS else value for key, value in changes.items()
    }
    call = merge(_to_call(current), tuning_changes)
    if max_vcpus is not None and call.get("vcpupin"):
        call["vcpupin"] = {
            number: cpuset for number, cpuset in call["vcpupin"].items() if int(number) < max_vcpus
        }
    requested = from_call(call)
    if (
        requested is None
        or current is None
        or _by_rule(requested.scheds) != _by_rule(current.scheds)
    ):
        return requested
    return replace(requested, scheds=current.scheds)


def _by_rule(scheds: tuple[Row, ...]) -> dict[tuple[str | None, ...], str]:
    """Return the threads of each rule; libvirt writes a row for each thread."""
    out: dict[tuple[str | None, ...], str] = {}
    for name, row in scheds:
        members = row.get(_SCHEDS[name] or "", "")
        rule = (name, row.get("scheduler"), row.get("priority"))
        out[rule] = format_cpus(f"{out[rule]},{members}" if rule in out else members)
    return out


def _by_cpus(value: Any) -> Any:
    """Return a mapping by sets of CPUs, in libvirt's spelling."""
    return (
        {format_cpus(key): rule for key, rule in value.items()}
        if isinstance(value, Mapping)
        else value
    )


def _to_call(tune: Cputune | None) -> dict[str, Any]:
    """Return the call's mapping that leads to a domain's tuning."""
    if tune is None:
        return {}
    parts: dict[str, dict[str, Any]] = {name: {} for name in _PARTS}
    for part in tune.parts:
        parts[part.name][format_cpus(part.vcpus)] = _part_to_call(part)
    call = {
        **tune.numbers,
        **_pins_to_call(tune.pins),
        **_scheds_to_call(tune.scheds),
        **parts,
    }
    return {key: value for key, value in call.items() if value not in (None, {}, [])}


def _scheds_to_call(scheds: tuple[Row, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, row in scheds:
        if _SCHEDS[name]:
            out.setdefault(name, []).append(row)
        else:
            out[name] = row
    return out


def _pins_to_call(pins: tuple[Row, ...]) -> dict[str, Any]:
    out: dict[str, Any] = {"vcpupin": {}, "iothreadpin": {}}
    for name, row in pins:
        if name == "emulatorpin":
            out[name] = row.get("cpuset")
        else:
            out[name][row.get(name.removesuffix("pin"), "")] = row.get("cpuset")
    return out


def _part_to_call(part: Part) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, row in part.rows:
        if name == "node":
            out[row.get("id", "")] = row.get("bandwidth")
        elif name == "monitor":
            out.setdefault("monitor", {})[row.get("vcpus", "")] = row.get("level")
        else:
            size = f"{row.get('size')}{row.get('unit', 'KiB')}"
            out[row.get("id", "")] = {
                "level": row.get("level"),
                "type": row.get("type"),
                "size": size,
            }
    return out
