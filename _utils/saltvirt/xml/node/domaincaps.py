"""All of <domainCapabilities>, as ``virt.domain_capabilities`` shows them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from saltvirt.xml import parse


def read(text: str) -> dict[str, Any]:
    """
    Return ``{emulator, domain, machine, arch, max_vcpus, iothreads, os, cpu, devices, features}``.

    Values that libvirt omits are left out, except for the first four, which are None.
    """
    root = parse(text)
    out: dict[str, Any] = {
        "emulator": root.findtext("path"),
        "domain": root.findtext("domain"),
        "machine": root.findtext("machine"),
        "arch": root.findtext("arch"),
    }
    vcpu, iothreads, system = root.find("vcpu"), root.find("iothreads"), root.find("os")
    if vcpu is not None and vcpu.get("max"):
        out["max_vcpus"] = int(vcpu.get("max", "0"))
    if iothreads is not None:
        out["iothreads"] = _is_supported(iothreads)
    if system is not None:
        loader = system.find("loader")
        is_known = loader is not None and _is_supported(loader)
        out["os"] = {"loader": _loader(loader)} if loader is not None and is_known else {}
    sections = {"cpu": _cpu(root), "devices": _supported_enums(root, "devices")}
    sections["features"] = _supported_enums(root, "features")
    return {**out, **{key: value for key, value in sections.items() if value}}


def _is_supported(element: ET.Element) -> bool:
    return element.get("supported") == "yes"


def _enums(element: ET.Element) -> dict[str, list[str | None]]:
    return {
        enum.get("name", ""): [value.text for value in enum.iterfind("value")]
        for enum in element.iterfind("enum")
        if enum.get("name")
    }


def _loader(loader: ET.Element) -> dict[str, Any]:
    values = [value.text for value in loader.iterfind("value")]
    return {**_enums(loader), **({"values": values} if values else {})}


def _supported_enums(root: ET.Element, name: str) -> dict[str, Any]:
    section = root.find(name)
    return (
        {}
        if section is None
        else {child.tag: _enums(child) for child in section if _is_supported(child)}
    )


def _cpu(root: ET.Element) -> dict[str, Any]:
    readers: dict[str, Callable[[ET.Element], Any]] = {
        "host-passthrough": lambda _mode: True,
        "host-model": _host_model,
        "custom": _custom,
    }
    modes = [element for element in root.iterfind("cpu/mode") if _is_supported(element)]
    return {
        name: readers[name](mode) for mode in modes if (name := mode.get("name", "")) in readers
    }


def _host_model(mode: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {}
    model, vendor = mode.find("model"), mode.findtext("vendor")
    if model is not None:
        keys = ("vendor_id", "fallback")
        out["model"] = {"name": model.text} | {k: model.get(k) for k in keys if model.get(k)}
    if vendor:
        out["vendor"] = vendor
    features = {feature.get("name"): feature.get("policy") for feature in mode.iterfind("feature")}
    return {**out, "features": features} if features else out


def _custom(mode: ET.Element) -> dict[str, Any]:
    models = {model.text: model.get("usable") for model in mode.iterfind("model")}
    return {"models": models} if models else {}
