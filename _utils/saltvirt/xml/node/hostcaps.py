"""All of a host's <capabilities>, as ``virt.capabilities`` shows them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from saltvirt.xml import parse

_CPU_NUMBERS = ("sockets", "cores", "threads")


def read(text: str) -> dict[str, Any]:
    """Return ``{host: {...}, guests: [{os_type, arch, features}]}``."""
    root = parse(text)
    host = root.find("host")
    return {
        "host": {} if host is None else _host(host),
        "guests": [_guest(guest) for guest in root.iterfind("guest")],
    }


def _host(host: ET.Element) -> dict[str, Any]:
    readers: dict[str, tuple[str, Callable[[ET.Element], Any]]] = {
        "uuid": ("uuid", lambda element: element.text),
        "cpu": ("cpu", _cpu),
        "power_management": ("power_management", lambda element: [child.tag for child in element]),
        "migration_features": ("migration", _migration),
        "topology": (
            "topology",
            lambda element: {"cells": [*map(_cell, element.iterfind("cells/cell"))]},
        ),
        "cache": ("cache", lambda element: {"banks": [*map(_bank, element.iterfind("bank"))]}),
    }
    out: dict[str, Any] = {}
    for child in host:
        if child.tag in readers:
            key, reader = readers[child.tag]
            out[key] = reader(child)
    return {**out, "security": [_security(secmodel) for secmodel in host.iterfind("secmodel")]}


def _amount(number: str | None, unit: str | None) -> str:
    return f"{number} {unit or 'KiB'}"


def _page_size(page: ET.Element) -> str:
    return _amount(page.get("size"), page.get("unit"))


def _cpu(cpu: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {key: cpu.findtext(key) for key in ("arch", "model", "vendor")}
    out["features"] = [feature.get("name") for feature in cpu.iterfind("feature")]
    out["pages"] = [{"size": _page_size(page)} for page in cpu.iterfind("pages")]
    microcode, topology = cpu.find("microcode"), cpu.find("topology")
    if microcode is not None:
        out["microcode"] = microcode.get("version")
    if topology is not None:
        out |= {key: int(topology.get(key, "0")) for key in _CPU_NUMBERS}
    return out


def _migration(features: ET.Element) -> dict[str, Any]:
    return {
        "live": features.find("live") is not None,
        "transports": [
            transport.text for transport in features.iterfind("uri_transports/uri_transport")
        ],
    }


def _cell(cell: ET.Element) -> dict[str, Any]:
    memory = cell.find("memory")
    lists: dict[str, Any] = {
        "memory": None if memory is None else _amount(memory.text, memory.get("unit")),
        "pages": [
            {"size": _page_size(page), "available": int(page.text or 0)}
            for page in cell.iterfind("pages")
        ],
        "distances": {
            int(sibling.get("id", "0")): int(sibling.get("value", "0"))
            for sibling in cell.iterfind("distances/sibling")
        },
        "cpus": [_thread(thread) for thread in cell.iterfind("cpus/cpu")],
    }
    return {"id": int(cell.get("id", "0")), **{key: value for key, value in lists.items() if value}}


def _thread(cpu: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {"id": int(cpu.get("id", "0"))}
    out |= {key: int(cpu.get(key, "0")) for key in ("socket_id", "core_id") if cpu.get(key)}
    return {**out, "siblings": cpu.get("siblings")} if cpu.get("siblings") else out


def _bank(bank: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": int(bank.get("id", "0")),
        "level": int(bank.get("level", "0")),
        "type": bank.get("type"),
        "size": _amount(bank.get("size"), bank.get("unit")),
        "cpus": bank.get("cpus"),
    }
    controls = [_control(control) for control in bank.iterfind("control")]
    return {**out, "controls": controls} if controls else out


def _control(control: ET.Element) -> dict[str, Any]:
    unit = control.get("unit")
    out: dict[str, Any] = {
        "granularity": _amount(control.get("granularity"), unit),
        "type": control.get("type"),
        "maxAllocs": int(control.get("maxAllocs", "0")),
    }
    return {**out, "min": _amount(control.get("min"), unit)} if control.get("min") else out


def _security(model: ET.Element) -> dict[str, Any]:
    def text(name: str) -> str | None:
        child = model.find(name)
        return None if child is None else child.text

    return {
        "model": text("model"),
        "doi": text("doi"),
        "baselabels": [
            {"type": label.get("type"), "label": label.text}
            for label in model.iterfind("baselabel")
        ],
    }


def _guest(guest: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {"os_type": guest.findtext("os_type"), "arch": _arch(guest.find("arch"))}
    features = guest.find("features")
    if features is not None:
        # A feature without these attributes is on, and cannot be switched.
        out["features"] = {
            feature.tag: {
                "toggle": feature.get("toggle", "no") == "yes",
                "default": feature.get("default", "on") == "on",
            }
            for feature in features
        }
    return out


def _arch(arch: ET.Element | None) -> dict[str, Any]:
    if arch is None:
        return {"name": None, "machines": {}, "domains": {}}
    out: dict[str, Any] = {
        "name": arch.get("name"),
        "machines": _machines(arch),
        "domains": {
            domain.get("type"): {
                "emulator": domain.findtext("emulator"),
                "machines": _machines(domain),
            }
            for domain in arch.iterfind("domain")
        },
    }
    wordsize, emulator = arch.findtext("wordsize"), arch.findtext("emulator")
    if wordsize is not None:
        out["wordsize"] = int(wordsize)
    return out if emulator is None else {**out, "emulator": emulator}


def _machines(parent: ET.Element) -> dict[str, dict[str, Any]]:
    """Return ``{machine: {alternate_names, maxcpus}}``; an alias is listed at its machine."""
    out: dict[str, dict[str, Any]] = {}
    for machine in parent.iterfind("machine"):
        canonical, max_cpus = machine.get("canonical"), machine.get("maxCpus")
        name = canonical or machine.text or ""
        if name not in out:
            out[name] = {"alternate_names": [], **({"maxcpus": int(max_cpus)} if max_cpus else {})}
        if canonical:
            out[name]["alternate_names"].append(machine.text)
    return out
