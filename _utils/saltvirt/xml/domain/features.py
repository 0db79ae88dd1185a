"""<features>."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.xml import element, fields, flag


@element.declare("features")
class Features:
    """The content of a <features>, as far as this project sets them."""

    acpi: bool = fields.presence("acpi", default=False)
    apic: bool = fields.presence("apic", default=False)
    pae: bool = fields.presence("pae", default=False)
    hint_dedicated: bool | None = fields.attribute(
        "kvm/hint-dedicated/@state", fields.ON_OFF, default=None
    )


build = element.build


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


def apply_changes(current: Features, changes: Mapping[str, Any]) -> Features:
    """Return the features with a call's changes for the hypervisor."""
    requested = from_call(changes, None)
    is_given = "kvm-hint-dedicated" in changes
    return replace(current, hint_dedicated=requested.hint_dedicated) if is_given else current
