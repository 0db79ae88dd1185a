"""<graphics>."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.errors import BadArgument
from saltvirt.xml import amend, attributes_of, bag, parse, switch, tag, texts, to_text, yes_no

_KEYS = {"type", "port", "tls_port", "listen", "password", "keymap"}
# Those that have a port, and those that have none.
_REACHED = ("vnc", "spice", "rdp")
_TYPES = (*_REACHED, "sdl", "egl-headless", "dbus", "desktop", "none")
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
    # First, or a misspelt 'type' would mean none, and an update would take the display away.
    refuse_unknown_keys("graphics", graphics or {}, _KEYS)
    if not graphics or str(graphics.get("type", "none")).lower() == "none":
        return None
    kind, password = str(graphics["type"]), graphics.get("password")
    if kind not in _TYPES:
        raise BadArgument("graphics:type", f"{kind!r}; one of {', '.join(_TYPES)}")
    if kind == "vnc" and password is not None and len(str(password)) > 8:
        # The protocol cuts it: a longer one would be weaker than it looks.
        raise BadArgument("graphics:password", "VNC uses only 8 characters; give at most 8")
    given = texts({**graphics, "listen": None})
    port = _port(given.get("port"))
    tls_port = _port(given.get("tls_port")) if kind == "spice" else None
    # It would choose the port for TLS, too.
    is_chosen = not (port or tls_port)
    return _as_kept(
        Graphics(
            type=kind,
            port=port,
            autoport=is_chosen,
            tls_port=tls_port,
            password=given.get("password"),
            keymap=given.get("keymap"),
            listen=_listen(graphics.get("listen")) if kind in _REACHED else None,
        )
    )


def _port(given: str | None) -> str | None:
    """Return a port, None if libvirt is to choose it, which it shows as -1 or 0 itself."""
    return None if given in ("", "-1", "0") else given


def _as_kept(wanted: Graphics) -> Graphics:
    """Return a display as libvirt keeps it: in another form it would be a change each time."""
    if wanted.type not in _REACHED:
        return replace(wanted, port=None, autoport=None)
    if (wanted.listen or {}).get("type") in ("none", "socket"):
        return replace(wanted, port=None, autoport=None, tls_port=None)
    if wanted.type == "rdp":
        return replace(wanted, autoport=wanted.autoport or None)
    return wanted


def _listen(listen: Any) -> dict[str, str]:
    """Return the listener: never all addresses, unless they are asked for."""
    given = listen if isinstance(listen, Mapping) else {"address": listen} if listen else {}
    # Null, and an empty address, say nothing.
    kind = given.get("type") or "address"
    address = (given.get("address") or "127.0.0.1") if kind == "address" else None
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


def describe(elements: Iterable[ET.Element]) -> dict[str, str]:
    """
    Return all attributes of displays but a password; those of a later one win.

    ``autoport``, ``keymap``, ``listen``, ``port`` and ``type`` are ``"None"`` where none says them.
    """
    out = dict.fromkeys(_SHOWN, "None")
    for element in elements:
        listen = attributes_of(element.find("listen")) or {}
        address = {"listen": listen["address"]} if "address" in listen else {}
        out |= address | {key: one for key, one in element.attrib.items() if key != "passwd"}
    return out


def without_passwords(text: str) -> str:
    """Return a domain's definition without the passwords of its displays, fit to be shown."""
    if " passwd=" not in text:
        return text
    root = parse(text)
    for element in root.iterfind("devices/graphics"):
        element.attrib.pop("passwd", None)
    return to_text(root)


def changed(now: Graphics | None, given: Mapping[str, Any]) -> Graphics | None:
    """
    Return the display when a call has changed it, None if it is to have none.

    now
        The display of that type that there is, if any: its port, password, keymap and listener
        stay where the call does not name them.
    """
    wanted = of(given)
    if wanted is None or now is None or now.type != wanted.type:
        return wanted
    is_chosen = wanted.autoport is True and now.autoport is True
    is_kept = "port" not in given and _port(now.port) is not None
    return _as_kept(
        replace(
            wanted,
            port=now.port if is_chosen or is_kept else wanted.port,
            autoport=now.autoport if is_kept else wanted.autoport,
            tls_port=_kept(given, "tls_port", wanted, now),
            password=_kept(given, "password", wanted, now),
            keymap=_kept(given, "keymap", wanted, now),
            listen=_kept_listen(given.get("listen"), wanted, now),
        )
    )


def _kept_listen(given: Any, wanted: Graphics, now: Graphics) -> dict[str, str] | None:
    """Return the listener that is wanted, with what a call does not say of one of its type."""
    has, says = now.listen or {}, wanted.listen or {}
    if not given:
        return now.listen
    is_silent = isinstance(given, Mapping) and not given.get("address")
    return now.listen if is_silent and has.get("type") == says.get("type") else wanted.listen


def _kept(given: Mapping[str, Any], key: str, wanted: Graphics, now: Graphics) -> str | None:
    is_removed = key in given and given[key] is None
    value: str | None = getattr(wanted, key) or (None if is_removed else getattr(now, key))
    return value


def amended(element: ET.Element, wanted: Graphics) -> None:
    """Change a <graphics> where it is."""
    now = read(element)
    amend.element(element, build(now), build(wanted))
    if wanted.listen != now.listen:
        # It says the same in an attribute, from which the listener may not differ.
        element.attrib.pop("listen", None)
