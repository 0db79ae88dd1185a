"""What libvirt says a host can run: <capabilities>, <domainCapabilities> and <cpu> of those."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.xml import parse, tag, to_text


def read(text: str) -> dict[str, Any]:
    """
    Return ``{arch, model, vendor, features, guests}`` of a host.

    ``guests`` are ``{os_type, arch, domain_types, machines}``; ``features`` are those that libvirt
    lists beside the model's own.
    """
    root = parse(text)
    return {
        "arch": root.findtext("host/cpu/arch"),
        "model": root.findtext("host/cpu/model"),
        "vendor": root.findtext("host/cpu/vendor"),
        "features": _names(root.iterfind("host/cpu/feature")),
        "guests": [
            _guest(guest, arch)
            for guest in root.iterfind("guest")
            for arch in guest.findall("arch")[:1]
        ],
    }


def _guest(guest: ET.Element, arch: ET.Element) -> dict[str, Any]:
    names = (
        name
        for machine in arch.iterfind(".//machine")
        for name in (machine.text, machine.get("canonical"))
    )
    return {
        "os_type": guest.findtext("os_type", "hvm"),
        "arch": arch.get("name"),
        "domain_types": [domain.get("type") for domain in arch.iterfind("domain")],
        "machines": sorted({name for name in names if name}),
    }


def _names(features: Any) -> list[str]:
    return sorted(filter(None, (one.get("name") for one in features)))


def own_cpu(text: str) -> str | None:
    """Return the XML of a host's own CPU, by its capabilities; None if they say nothing of it."""
    found = parse(text).find("host/cpu")
    return None if found is None else to_text(found)


def host_model(text: str) -> str | None:
    """
    Return the ``<cpu>`` that ``host-model`` means, by a domain type's capabilities; None without.

    It has the parts that libvirt takes for the description of a host's CPU.
    """
    root = parse(text)
    mode = root.find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None or mode.find("model") is None:
        return None
    cpu = tag("cpu", None, tag("arch", text=root.findtext("arch")))
    cpu.extend(part for part in mode if part.tag in ("model", "vendor", "feature"))
    return to_text(cpu)


def required_features(text: str) -> list[str]:
    """Return the names of the features that a ``<cpu>`` has, without those it disables, sorted."""
    found = parse(text).iterfind("feature")
    return _names(one for one in found if one.get("policy") in (None, "require"))


def cpu_summary(text: str) -> dict[str, Any]:
    """Return ``{model, vendor, features}`` of a ``<cpu>``; features in libvirt's order."""
    root = parse(text)
    return {
        "model": root.findtext("model"),
        "vendor": root.findtext("vendor"),
        "features": [one.get("name") for one in root.iterfind("feature")],
    }
