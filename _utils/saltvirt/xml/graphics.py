"""<graphics>."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.errors import BadArgument
from saltvirt.xml import attributes_of, bag, switch, tag, texts, yes_no

_KEYS = {"type", "port", "tls_port", "listen", "password", "keymap"}
_SHOWN = ("autoport", "keymap", "listen", "port", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphics:
    """What a <graphics> says; ``listen`` are the attributes of its first listener."""

    type: str | None
    port: str | None = None
    autoport: bool | None = None
    tls_port: str | None = None
    password: str | None = field(default=None, repr=False)
    keymap: str | None = None
    listen: dict[str, str] | None = None


def vnc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``graphics`` mapping of ``enable_vnc=True`` under the ``virt:vnc`` options."""
    refuse_unknown_keys("virt:vnc", settings, {"listen", "password", "keymap"})
    listen = {"type": "address", "address": settings.get("listen", "127.0.0.1")}
    return {
        "type": "vnc",
        "listen": listen,
        **{key: settings[key] for key in ("password", "keymap") if settings.get(key)},
    }


def of(graphics: Mapping[str, Any] | None) -> Graphics | None:
    """Return the display of a ``graphics`` mapping; without a listen address it is 127.0.0.1."""
    if not graphics or str(graphics.get("type", "none")).lower() == "none":
        return None
    refuse_unknown_keys("graphics", graphics, _KEYS)
    kind, port, password = graphics["type"], graphics.get("port"), graphics.get("password")
    if kind == "vnc" and password is not None and len(str(password)) > 8:
        # The protocol cuts it: a longer one would be weaker than it looks.
        raise BadArgument("graphics:password", "VNC uses only 8 characters; give at most 8")
    given = texts(graphics)
    return Graphics(
        type=str(kind),
        port=given.get("port"),
        autoport=None if kind in ("sdl", "egl-headless") else not port,
        tls_port=given.get("tls_port"),
        password=given.get("password"),
        keymap=given.get("keymap"),
        listen=_listen(graphics.get("listen")) if kind in ("vnc", "spice", "rdp") else None,
    )


def _listen(listen: Any) -> dict[str, str]:
    """Return the listener: never all addresses, unless they are asked for."""
    given = listen if isinstance(listen, Mapping) else {"address": listen} if listen else {}
    kind = given.get("type", "address")
    address = given.get("address", "127.0.0.1") if kind == "address" else None
    return texts({"type": kind, "address": address})


def build(graphics: Graphics) -> ET.Element:
    """Return the <graphics>."""
    attributes = {
        "type": graphics.type,
        "port": graphics.port,
        "autoport": yes_no(graphics.autoport),
        "tlsPort": graphics.tls_port,
        "passwd": graphics.password,
        "keymap": graphics.keymap,
    }
    return tag("graphics", attributes, bag("listen", graphics.listen))


def read(element: ET.Element) -> Graphics:
    """Return what a <graphics> says."""
    return Graphics(
        type=element.get("type"),
        port=element.get("port"),
        autoport=switch(element.get("autoport")),
        tls_port=element.get("tlsPort"),
        password=element.get("passwd"),
        keymap=element.get("keymap"),
        listen=attributes_of(element.find("listen")),
    )


def describe(element: ET.Element | None) -> dict[str, str]:
    """Return ``{autoport, keymap, listen, port, type}``, ``"None"`` for what it does not say."""
    given = element.attrib if element is not None else {}
    listen = (attributes_of(element.find("listen")) if element is not None else None) or {}
    address = {"listen": listen["address"]} if "address" in listen else {}
    return {**dict.fromkeys(_SHOWN, "None"), **address, **_only(given)}


def _only(given: Mapping[str, str]) -> dict[str, str]:
    return {key: given[key] for key in _SHOWN if key in given}
