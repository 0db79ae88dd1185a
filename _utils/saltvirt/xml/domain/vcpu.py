"""<vcpu>, <vcpus> and <iothreads>: the threads of a VM."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import vcpus
from saltvirt.xml import element, fields, flag, texts
from saltvirt.xml.edit.merging import merge

_ATTRIBUTES = ("placement", "cpuset", "current")
# The keys of a call's `cpu` that are read here.
_CALL_KEYS = (*_ATTRIBUTES, "maximum", "vcpus", "iothreads")


@element.declare("vcpu")
class Vcpu:
    """The state of one virtual CPU."""

    id: str = fields.attribute("@id", missing="")
    enabled: bool | None = fields.attribute("@enabled", fields.YES_NO, default=None)
    hotpluggable: bool | None = fields.attribute("@hotpluggable", fields.YES_NO, default=None)
    order: str | None = fields.attribute("@order", default=None)


@element.declare()
class Vcpus:
    """The virtual CPUs that a VM can have; ``attributes`` are those of <vcpu>."""

    maximum: str = fields.text("vcpu", missing="1")
    attributes: dict[str, str] = fields.bag("vcpu", default_factory=dict)
    states: tuple[Vcpu, ...] = fields.children("vcpus", default=())
    iothreads: str | None = fields.text("iothreads", default=None)


build, read = element.build_parts, element.reader(Vcpus)


def from_call(cpu: int | Mapping[str, Any]) -> Vcpus:
    """Return the virtual CPUs for a number of CPUs or a ``cpu`` mapping."""
    if not isinstance(cpu, Mapping):
        return Vcpus(maximum=str(cpu))
    rows = sorted((cpu.get("vcpus") or {}).items(), key=lambda item: int(item[0]))
    vcpu_states = tuple(_vcpu(number, state) for number, state in rows)
    maximum, attributes = str(vcpus(cpu)), texts({key: cpu.get(key) for key in _ATTRIBUTES})
    if vcpu_states:
        # libvirt goes by a list of CPUs, not by other values of a call.
        attributes["current"] = str(sum(vcpu.enabled is True for vcpu in vcpu_states))
    return Vcpus(
        maximum=maximum,
        attributes=_as_libvirt_keeps(attributes, maximum),
        states=vcpu_states,
        iothreads=str(cpu["iothreads"]) if cpu.get("iothreads") else None,
    )


def _as_libvirt_keeps(attributes: dict[str, str], maximum: str) -> dict[str, str]:
    """Return the attributes without those that libvirt omits: they would be a change each time."""
    left_out = {"current"} if attributes.get("current") == maximum else set()
    # For ``auto`` libvirt chooses the host's CPUs itself.
    left_out |= {"cpuset"} if attributes.get("placement") == "auto" else set()
    return {key: value for key, value in attributes.items() if key not in left_out}


def _vcpu(number: object, state: Mapping[str, Any]) -> Vcpu:
    flags = {key: flag(state.get(key)) for key in ("enabled", "hotpluggable")}
    order = str(state["order"]) if state.get("order") is not None else None
    return Vcpu(id=str(number), **flags, order=order)


def most(root: ET.Element) -> int:
    """Return the number of virtual CPUs that a domain can have; libvirt's default is one."""
    text = (root.findtext("vcpu") or "").strip()
    return int(text) if text.isdecimal() else 1


def current(root: ET.Element) -> int:
    """Return the number of virtual CPUs that a domain has now, or has after its start."""
    element = root.find("vcpu")
    text = "" if element is None else element.get("current", "")
    return int(text) if text.isdecimal() else most(root)


def apply_changes(current: Vcpus, changes: int | Mapping[str, Any]) -> Vcpus:
    """
    Return the virtual CPUs of a domain with the changes of a call.

    changes
        A number, or a ``cpu`` mapping; null removes a value, and what is not given stays.
    """
    if isinstance(changes, Mapping):
        # Without the keys of other modules, which would be merged for nothing.
        vcpu_changes = {key: changes[key] for key in _CALL_KEYS if key in changes}
        if "vcpus" in vcpu_changes:
            return from_call(merge(_to_call(current), vcpu_changes))
        requested = from_call(merge(_to_call(replace(current, states=())), vcpu_changes))
        return (
            replace(requested, states=current.states)
            if _counts(requested) == _counts(current)
            else requested
        )
    if set(_counts(current)) == {str(changes)}:
        return current
    other_attributes = {key: value for key, value in current.attributes.items() if key != "current"}
    # A list of single CPUs would no longer have all of them.
    return replace(current, maximum=str(changes), attributes=other_attributes, states=())


def _counts(vcpus_: Vcpus) -> tuple[str, str]:
    """Return the highest and the current number of virtual CPUs."""
    return vcpus_.maximum, vcpus_.attributes.get("current", vcpus_.maximum)


def _to_call(vcpus_: Vcpus) -> dict[str, Any]:
    """Return the call's mapping that leads to a domain's virtual CPUs."""
    states_by_id = {
        vcpu.id: {
            "enabled": vcpu.enabled,
            "hotpluggable": vcpu.hotpluggable,
            "order": vcpu.order,
        }
        for vcpu in vcpus_.states
    }
    threads = {"vcpus": states_by_id or None, "iothreads": vcpus_.iothreads}
    call = {"maximum": vcpus_.maximum, **vcpus_.attributes, **threads}
    return {key: value for key, value in call.items() if value is not None}


def least(root: ET.Element) -> int:
    """Return the number of virtual CPUs that a running domain keeps: QEMU keeps those of boot."""
    current = read(root)
    if root.get("type") not in ("kvm", "qemu"):
        return 1
    # libvirt lists them as soon as one was added to those of boot.
    boot_vcpus = [vcpu for vcpu in current.states if vcpu.enabled and vcpu.hotpluggable is False]
    return (
        len(boot_vcpus)
        if current.states
        else int(current.attributes.get("current", current.maximum))
    )
