"""<storagepoolCapabilities>: the types of pools that a host's libvirt supports."""

import xml.etree.ElementTree as ET
from typing import Any


def read(root: ET.Element) -> list[dict[str, Any]]:
    """Return ``[{name, supported, options}]``; ``options`` has ``pool`` and ``volume``, if any."""
    return [_read(pool) for pool in root.iterfind("pool")]


def _read(pool: ET.Element) -> dict[str, Any]:
    out = {"name": pool.get("type"), "supported": pool.get("supported") == "yes"}
    all_options = {
        "pool": _options(pool.find("poolOptions")),
        "volume": _options(pool.find("volOptions")),
    }
    options = {key: value for key, value in all_options.items() if value}
    return {**out, "options": options} if options else out


def _options(element: ET.Element | None) -> dict[str, Any]:
    if element is None:
        return {}
    default = element.find("defaultFormat")
    out: dict[str, Any] = {} if default is None else {"default_format": default.get("type")}
    for enum in element.iterfind("enum"):
        out[enum.get("name", "")] = [value.text for value in enum.iterfind("value")]
    return out
