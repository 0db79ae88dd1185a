"""<domainCapabilities> whole, as ``virt.domain_capabilities`` shows them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from saltvirt.xml import parse


def read(text: str) -> dict[str, Any]:
    """
    Return ``{emulator, domain, machine, arch, max_vcpus, iothreads, os, cpu, devices, features}``.

    What libvirt does not say is left out, but for the first four, which are None.
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
    more = {"cpu": _cpu(root), "devices": _listed(root, "devices")}
    more["features"] = _listed(root, "features")
    return {**out, **{key: one for key, one in more.items() if one}}


def _is_supported(element: ET.Element) -> bool:
    return element.get("supported") == "yes"


def _enums(element: ET.Element) -> dict[str, list[str | None]]:
    return {
        one.get("name", ""): [value.text for value in one.iterfind("value")]
        for one in element.iterfind("enum")
        if one.get("name")
    }


def _loader(loader: ET.Element) -> dict[str, Any]:
    values = [one.text for one in loader.iterfind("value")]
    return {**_enums(loader), **({"values": values} if values else {})}


def _listed(root: ET.Element, name: str) -> dict[str, Any]:
    found = root.find(name)
    return {} if found is None else {one.tag: _enums(one) for one in found if _is_supported(one)}


def _cpu(root: ET.Element) -> dict[str, Any]:
    readers: dict[str, Callable[[ET.Element], Any]] = {
        "host-passthrough": lambda _mode: True,
        "host-model": _host_model,
        "custom": _custom,
    }
    modes = [one for one in root.iterfind("cpu/mode") if _is_supported(one)]
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
    features = {one.get("name"): one.get("policy") for one in mode.iterfind("feature")}
    return {**out, "features": features} if features else out


def _custom(mode: ET.Element) -> dict[str, Any]:
    models = {one.text: one.get("usable") for one in mode.iterfind("model")}
    return {"models": models} if models else {}
