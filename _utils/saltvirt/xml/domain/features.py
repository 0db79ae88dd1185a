"""<features>."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.xml import flag, on_off, switch, tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The content of a <features>, as far as this project sets them."""

    acpi: bool = False
    apic: bool = False
    pae: bool = False
    hint_dedicated: bool | None = None


def from_call(hypervisor_features: Mapping[str, Any] | None, arch: str | None) -> Features:
    """Return the features: those of the architecture, and the call's for the hypervisor."""
    requested = hypervisor_features or {}
    refuse_unknown_keys("hypervisor_features", requested, {"kvm-hint-dedicated"})
    is_x86 = arch in (None, "x86_64", "i686")
    hint = requested.get("kvm-hint-dedicated")
    return Features(
        acpi=is_x86 or arch == "aarch64",
        apic=is_x86,
        pae=is_x86,
        hint_dedicated=flag(hint),
    )


def build(features: Features) -> ET.Element:
    """Return the <features>."""
    hint = features.hint_dedicated
    return tag(
        "features",
        None,
        *[tag(name) for name in ("acpi", "apic", "pae") if getattr(features, name)],
        tag("kvm", None, tag("hint-dedicated", {"state": on_off(hint)}))
        if hint is not None
        else None,
    )


def read(element: ET.Element | None) -> Features:
    """Return the content of a <features>; none without it."""
    if element is None:
        return Features()
    hint = element.find("kvm/hint-dedicated")
    return Features(
        acpi=element.find("acpi") is not None,
        apic=element.find("apic") is not None,
        pae=element.find("pae") is not None,
        hint_dedicated=None if hint is None else switch(hint.get("state")),
    )


def apply_changes(current: Features, changes: Mapping[str, Any]) -> Features:
    """Return the features with a call's changes for the hypervisor."""
    requested = from_call(changes, None)
    is_given = "kvm-hint-dedicated" in changes
    return replace(current, hint_dedicated=requested.hint_dedicated) if is_given else current
