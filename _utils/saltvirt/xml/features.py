"""<features>."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.xml import on_off, tag


def element(hypervisor_features, arch):
    """Return <features>: ACPI and APIC on x86, and what the call asks of the hypervisor."""
    wanted = hypervisor_features or {}
    refuse_unknown_keys("hypervisor_features", wanted, {"kvm-hint-dedicated"})
    is_x86 = arch in (None, "x86_64", "i686")
    hint = wanted.get("kvm-hint-dedicated")
    return tag(
        "features",
        None,
        tag("acpi") if is_x86 or arch == "aarch64" else None,
        tag("apic") if is_x86 else None,
        tag("pae") if is_x86 else None,
        tag("kvm", None, tag("hint-dedicated", {"state": on_off(hint)}))
        if hint is not None
        else None,
    )
