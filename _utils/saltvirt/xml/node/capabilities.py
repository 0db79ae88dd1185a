"""What a host can run: <capabilities>, <domainCapabilities>, and the <cpu> in these."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.xml import kib, parse, tag, to_text


def read(text: str) -> dict[str, Any]:
    """
    Return ``{arch, model, vendor, features, guests, nodes}`` of a host.

    ``guests`` are ``{os_type, arch, domain_types, machines}``; ``features`` are those that the
    model does not include; ``nodes`` are ``{number: {memory_mib, pages}}``, with the huge pages of
    each NUMA node as ``{KiB: MiB}``.
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
        "nodes": dict(map(_node, root.iterfind("host/topology/cells/cell"))),
    }


def _node(cell: ET.Element) -> tuple[int, dict[str, Any]]:
    memory = cell.find("memory")
    memory_kib = None if memory is None else kib(memory.text, memory.get("unit"))
    sizes = {
        kib(page.get("size"), page.get("unit")) or 0: int(page.text or 0)
        for page in cell.iterfind("pages")
    }
    return int(cell.get("id", 0)), {
        "memory_mib": (memory_kib or 0) // 1024,
        # The smallest pages are ordinary memory.
        "pages": {size: size * sizes[size] // 1024 for size in sorted(sizes)[1:]},
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
    return sorted(filter(None, (feature.get("name") for feature in features)))


def own_cpu(text: str) -> str | None:
    """Return the XML of a host's own CPU, from its capabilities; None if it is not in them."""
    cpu = parse(text).find("host/cpu")
    return None if cpu is None else to_text(cpu)


def host_model(text: str) -> str | None:
    """
    Return the ``<cpu>`` of ``host-model``, from a domain type's capabilities; None without.

    It is a guest's CPU: libvirt would take one with an ``<arch>`` for a host's, and each disabled
    feature for one that the host has.
    """
    root = parse(text)
    mode = root.find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None or mode.find("model") is None:
        return None
    cpu = tag("cpu")
    cpu.extend(part for part in mode if part.tag in ("model", "vendor", "feature"))
    return to_text(cpu)


def required_features(text: str) -> list[str]:
    """Return the names of the features of a ``<cpu>``, without disabled ones, sorted."""
    features = parse(text).iterfind("feature")
    return _names(feature for feature in features if feature.get("policy") in (None, "require"))


def cpu_summary(text: str) -> dict[str, Any]:
    """Return ``{model, vendor, features}`` of a ``<cpu>``; features in libvirt's order."""
    root = parse(text)
    return {
        "model": root.findtext("model"),
        "vendor": root.findtext("vendor"),
        "features": [feature.get("name") for feature in root.iterfind("feature")],
    }
