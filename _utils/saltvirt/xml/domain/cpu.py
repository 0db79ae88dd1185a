"""<cpu>: the processor that a guest sees."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import mapping, refuse_unknown_keys
from saltvirt.core.errors import BadArgument
from saltvirt.core.units import size_kib
from saltvirt.xml import element, fields, flag, texts
from saltvirt.xml.domain import distances
from saltvirt.xml.edit.merging import add_free_cpus, merge

_ATTRIBUTES = ("mode", "match", "check")
# The keys of a call, and the fields that they set.
_FIELDS = {
    **{key: key for key in ("vendor", "model", "topology", "cache", "features")},
    "numa": "cells",
}
_CALL_KEYS = (*_ATTRIBUTES, *_FIELDS)
# All keys of `cpu`; the rest are for <vcpu>, <vcpus>, <iothreads> and <cputune>.
_KEYS = {
    *_CALL_KEYS,
    # The name of `features` in the documentation of Salt 3006's states.
    "feature",
    *("placement", "cpuset", "current", "maximum", "vcpus", "iothreads", "tuning"),
}


@element.declare("model")
class Model:
    """A CPU model; ``attributes`` are its fallback and the vendor id for the guest."""

    name: str | None = fields.text()
    attributes: dict[str, str] = fields.bag(default_factory=dict)


@element.declare("cell")
class Cell:
    """A NUMA cell of the guest; ``distances`` are to others, as attributes."""

    id: str | None = fields.attribute("@id")
    cpus: str | None = fields.attribute("@cpus", default=None)
    memory_kib: int | None = fields.value(".", fields.kib_attribute("memory"), default=None)
    mem_access: str | None = fields.attribute("@memAccess", default=None)
    discard: bool | None = fields.attribute("@discard", fields.YES_NO, default=None)
    distances: tuple[dict[str, str], ...] = fields.values("distances/sibling", default=())


def _write_feature(feature: ET.Element, pair: tuple[str, str | None]) -> None:
    name, policy = pair
    fields.ATTRIBUTES.dump(feature, {"policy": policy, "name": name})


_FEATURE = fields.Form(
    lambda feature: (feature.get("name", ""), feature.get("policy")), _write_feature
)


@element.declare("cpu")
class Cpu:
    """The content of a <cpu>; ``attributes``: mode, match, check; ``features``: name to policy."""

    attributes: dict[str, str] = fields.bag(default_factory=dict)
    model: Model | None = fields.child(default=None)
    vendor: str | None = fields.text("vendor", default=None)
    topology: dict[str, str] | None = fields.bag("topology", default=None)
    cache: dict[str, str] | None = fields.bag("cache", default=None)
    features: dict[str, str | None] = fields.values("feature", _FEATURE, default_factory=dict)
    cells: tuple[Cell, ...] = fields.children("numa", default=())


build = element.build


def from_call(
    cpu: int | Mapping[str, Any], domain_type: str | None, *, has_default: bool = True
) -> Cpu:
    """
    Return the processor for a number of CPUs or a ``cpu`` mapping.

    has_default
        Whether to set a mode where the call gives none. Without a mode it is QEMU's oldest model,
        unless there are features: libvirt takes none for that model, so they always get a mode.
    """
    if not isinstance(cpu, Mapping):
        cpu = {}
    refuse_unknown_keys("cpu", cpu, _KEYS)
    topology, features = mapping("cpu:topology", cpu.get("topology")), features_of(cpu)
    cells = sorted((cpu.get("numa") or {}).items(), key=lambda item: int(item[0]))
    mode = {
        "mode": _mode(cpu, domain_type, has_default),
        "match": cpu.get("match"),
        "check": cpu.get("check"),
    }
    return Cpu(
        attributes=texts(mode),
        model=_model(cpu.get("model")),
        vendor=str(cpu["vendor"]) if cpu.get("vendor") else None,
        topology=texts({"sockets": 1, "cores": 1, "threads": 1, **topology}) if topology else None,
        cache=texts(cpu["cache"]) if cpu.get("cache") else None,
        features={
            str(name): None if policy is None else str(policy)
            for name, policy in sorted(features.items())
        },
        cells=_check_distances(tuple(_cell(number, cell) for number, cell in cells)),
    )


def _check_distances(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return the cells; refuse a distance to a missing cell, which makes libvirt 9.0 crash."""
    cell_ids = [str(numa_cell.id) for numa_cell in cells]
    for cell in cells:
        unknown_ids = [row["id"] for row in cell.distances if row["id"] not in cell_ids]
        if unknown_ids:
            raise BadArgument(
                f"cpu:numa:{cell.id}:distances",
                f"there is no cell {unknown_ids[0]}; the cells are {', '.join(cell_ids)}",
            )
    return cells


def features_of(cpu: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the features of a ``cpu`` mapping, with their policies."""
    policies = [mapping(f"cpu:{key}", cpu.get(key)) or {} for key in ("feature", "features")]
    return {**normalize_features(policies[0]), **normalize_features(policies[1])}


def normalize_features(features: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return policies by the names of features, also from the form of Salt 3006's states."""
    if set(features) == {"policy", "name"}:
        return {features["name"]: features["policy"]}
    return dict(features)


def _mode(cpu: Mapping[str, Any], domain_type: str | None, has_default: bool) -> Any:
    """Return the mode; by default a migratable one: KVM's host model, or all that TCG emulates."""
    if cpu.get("mode") or cpu.get("model") or not (has_default or features_of(cpu)):
        return cpu.get("mode") or None
    return "host-model" if domain_type == "kvm" else "maximum"


def _model(model: Any) -> Model | None:
    if not model or model == {"name": None}:
        return None
    if not isinstance(model, Mapping):
        model = {"name": model}
    return Model(
        name=str(model["name"]) if model.get("name") is not None else None,
        attributes=texts({key: model.get(key) for key in ("fallback", "vendor_id")}),
    )


def _cell(number: object, cell: Mapping[str, Any]) -> Cell:
    attributes = texts({key: cell.get(key) for key in ("cpus", "memAccess")})
    distances = sorted((cell.get("distances") or {}).items())
    return Cell(
        id=str(number),
        cpus=attributes.get("cpus"),
        memory_kib=size_kib(cell.get("memory"), f"cpu:numa:{number}:memory"),
        mem_access=attributes.get("memAccess"),
        discard=flag(cell.get("discard")),
        distances=tuple(texts({"id": to, "value": far}) for to, far in distances),
    )


def fill_first_cell(requested: Cpu | None, current: Cpu | None, vcpus: int) -> Cpu | None:
    """Return the request, with CPUs of no cell in the first if QEMU's driver put them there."""
    if requested is None or current is None or not (requested.cells and current.cells):
        return requested
    first, *other_cells = requested.cells
    first_cpus = add_free_cpus(vcpus, first.cpus, (cell.cpus for cell in other_cells if cell.cpus))
    if first.cpus is None or first_cpus != current.cells[0].cpus:
        return requested
    return replace(requested, cells=(replace(first, cpus=first_cpus), *other_cells))


def apply_changes(current: Cpu | None, changes: Mapping[str, Any]) -> Cpu | None:
    """
    Return the processor of a domain with the changes of a call.

    changes
        A ``cpu`` mapping; null removes a value, and what is not given stays.
    """
    refuse_unknown_keys("cpu", changes, _KEYS)
    cpu_changes = {key: changes[key] for key in _CALL_KEYS if key in changes}
    if isinstance(cpu_changes.get("model"), str):
        cpu_changes["model"] = {"name": cpu_changes["model"]}
    call = merge(_to_call(current), cpu_changes)
    # libvirt takes features only beside a mode or a model, and Salt 3006 ignored this key.
    if changes.get("feature") and (call.get("mode") or call.get("model")):
        cpu_changes["features"] = features_of(changes)
        call = merge(_to_call(current), cpu_changes)
    call["numa"] = distances.remove_links(call.get("numa") or {}, cpu_changes.get("numa"))
    requested = _keep_unchanged(
        _as_libvirt_keeps(from_call(call, None), call), current or Cpu(), cpu_changes
    )
    return None if current is None and requested == Cpu() else requested


def _as_libvirt_keeps(requested: Cpu, call: Mapping[str, Any]) -> Cpu:
    """Return a processor with what libvirt adds, and without what libvirt omits."""
    # Without a model there is nothing to match.
    keys = call.keys() if requested.model and requested.model.name else call.keys() - {"match"}
    distances_by_cell = distances.complete_links(
        {str(cell.id): cell.distances for cell in requested.cells}
    )
    return replace(
        requested,
        attributes={key: value for key, value in requested.attributes.items() if key in keys},
        cells=tuple(
            replace(cell, distances=distances_by_cell[str(cell.id)]) for cell in requested.cells
        ),
    )


def _keep_unchanged(requested: Cpu, current: Cpu, cpu_changes: Mapping[str, Any]) -> Cpu:
    """Return a processor with the current values of all keys that a call does not name."""
    # Attributes that libvirt has added.
    filled_attributes = {
        key: value for key, value in current.attributes.items() if key not in _ATTRIBUTES
    }
    unchanged_fields = {
        name: getattr(current, name) for key, name in _FIELDS.items() if key not in cpu_changes
    }
    return replace(
        requested, attributes={**requested.attributes, **filled_attributes}, **unchanged_fields
    )


def _to_call(cpu: Cpu | None) -> dict[str, Any]:
    """Return the call's mapping that leads to a domain's processor."""
    if cpu is None:
        return {}
    model = cpu.model
    cells = {cell.id or "": _cell_to_call(cell) for cell in cpu.cells}
    call = {
        **{key: value for key, value in cpu.attributes.items() if key in _ATTRIBUTES},
        "model": model and {"name": model.name, **model.attributes},
        "vendor": cpu.vendor,
        "topology": cpu.topology,
        "cache": cpu.cache,
        "features": cpu.features or None,
        "numa": cells or None,
    }
    return {key: value for key, value in call.items() if value is not None}


def _cell_to_call(cell: Cell) -> dict[str, Any]:
    call = {
        "cpus": cell.cpus,
        "memory": f"{cell.memory_kib}KiB",
        "memAccess": cell.mem_access,
        "discard": cell.discard,
        "distances": {row.get("id", ""): row.get("value") for row in cell.distances} or None,
    }
    return {key: value for key, value in call.items() if value is not None}
