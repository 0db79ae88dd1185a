"""<graphics>."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields, parse, texts, to_text
from saltvirt.xml.edit import amend

_KEYS = {"type", "port", "tls_port", "listen", "password", "keymap"}
# Types with a port, and types without one.
_REACHED = ("vnc", "spice", "rdp")
_TYPES = (*_REACHED, "sdl", "egl-headless", "dbus", "desktop", "none")
_SHOWN = ("autoport", "keymap", "listen", "port", "type")


@element.declare("graphics")
class Graphics:
    """The content of a <graphics>; ``listen`` are the attributes of its first listener."""

    type: str | None = fields.attribute("@type")
    port: str | None = fields.attribute("@port", default=None)
    autoport: bool | None = fields.attribute("@autoport", fields.YES_NO, default=None)
    tls_port: str | None = fields.attribute("@tlsPort", default=None)
    password: str | None = fields.attribute("@passwd", default=None, repr=False)
    keymap: str | None = fields.attribute("@keymap", default=None)
    listen: dict[str, str] | None = fields.bag("listen", default=None)


build, read = element.build, element.reader(Graphics)


def vnc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``graphics`` mapping of ``enable_vnc=True`` under the ``virt:vnc`` options."""
    refuse_unknown_keys("virt:vnc", settings, {"listen", "password", "keymap"})
    listen = {"type": "address", "address": settings.get("listen", "127.0.0.1")}
    return {
        "type": "vnc",
        "listen": listen,
        **{key: settings[key] for key in ("password", "keymap") if settings.get(key)},
    }


def from_call(graphics: Mapping[str, Any] | None) -> Graphics | None:
    """Return the display of a ``graphics`` mapping; the default listen address is 127.0.0.1."""
    # First: a misspelt 'type' would mean none, and an update would remove the display.
    refuse_unknown_keys("graphics", graphics or {}, _KEYS)
    if not graphics or str(graphics.get("type", "none")).lower() == "none":
        return None
    kind, password = str(graphics["type"]), graphics.get("password")
    if kind not in _TYPES:
        raise BadArgument("graphics:type", f"{kind!r}; one of {', '.join(_TYPES)}")
    if kind == "vnc" and password is not None and len(str(password)) > 8:
        # The protocol cuts a longer password, which would be weaker than it looks.
        raise BadArgument("graphics:password", "VNC uses only 8 characters; give at most 8")
    values = texts({**graphics, "listen": None})
    port = _port(values.get("port"))
    tls_port = _port(values.get("tls_port")) if kind == "spice" else None
    # libvirt would choose the port for TLS, too.
    is_chosen = not (port or tls_port)
    return _as_libvirt_keeps(
        Graphics(
            type=kind,
            port=port,
            autoport=is_chosen,
            tls_port=tls_port,
            password=values.get("password"),
            keymap=values.get("keymap"),
            listen=_listen(graphics.get("listen")) if kind in _REACHED else None,
        )
    )


def _port(port: str | None) -> str | None:
    """Return a port, None if libvirt is to choose it, which libvirt shows as -1 or 0."""
    return None if port in ("", "-1", "0") else port


def _as_libvirt_keeps(requested: Graphics) -> Graphics:
    """Return a display as libvirt keeps it: in another form it would be a change each time."""
    if requested.type not in _REACHED:
        return replace(requested, port=None, autoport=None)
    if (requested.listen or {}).get("type") in ("none", "socket"):
        return replace(requested, port=None, autoport=None, tls_port=None)
    if requested.type == "rdp":
        return replace(requested, autoport=requested.autoport or None)
    return requested


def _listen(listen: Any) -> dict[str, str]:
    """Return the listener; never all addresses, unless the call names them."""
    listener = listen if isinstance(listen, Mapping) else {"address": listen} if listen else {}
    # Null and an empty address mean not given.
    kind = listener.get("type") or "address"
    address = (listener.get("address") or "127.0.0.1") if kind == "address" else None
    return texts({"type": kind, "address": address})


def describe(elements: Iterable[ET.Element]) -> dict[str, str]:
    """
    Return all attributes of displays except passwords; those of a later one win.

    ``autoport``, ``keymap``, ``listen``, ``port`` and ``type`` are ``"None"`` if no display has
    them.
    """
    out = dict.fromkeys(_SHOWN, "None")
    for display in elements:
        listen = display.find("listen[@address]")
        address = {} if listen is None else {"listen": listen.get("address", "")}
        out |= address | {key: value for key, value in display.attrib.items() if key != "passwd"}
    return out


def without_passwords(text: str) -> str:
    """Return a domain's definition without the passwords of its displays, for display."""
    if " passwd=" not in text:
        return text
    root = parse(text)
    for display in root.iterfind("devices/graphics"):
        display.attrib.pop("passwd", None)
    return to_text(root)


def apply_changes(current: Graphics | None, changes: Mapping[str, Any]) -> Graphics | None:
    """
    Return the display with the changes of a call, None if there is to be none.

    current
        The existing display of that type, if any: its port, password, keymap and listener stay
        where the call does not name them.
    """
    requested = from_call(changes)
    if requested is None or current is None or current.type != requested.type:
        return requested
    is_chosen = requested.autoport is True and current.autoport is True
    is_kept = "port" not in changes and _port(current.port) is not None
    return _as_libvirt_keeps(
        replace(
            requested,
            port=current.port if is_chosen or is_kept else requested.port,
            autoport=current.autoport if is_kept else requested.autoport,
            tls_port=_choose_attribute(changes, "tls_port", requested, current),
            password=_choose_attribute(changes, "password", requested, current),
            keymap=_choose_attribute(changes, "keymap", requested, current),
            listen=_choose_listen(changes.get("listen"), requested, current),
        )
    )


def _choose_listen(listen: Any, requested: Graphics, current: Graphics) -> dict[str, str] | None:
    """Return the requested listener, or the current one of that type if the call has no address."""
    current_listen, requested_listen = current.listen or {}, requested.listen or {}
    if not listen:
        return current.listen
    is_silent = isinstance(listen, Mapping) and not listen.get("address")
    return (
        current.listen
        if is_silent and current_listen.get("type") == requested_listen.get("type")
        else requested.listen
    )


def _choose_attribute(
    changes: Mapping[str, Any], key: str, requested: Graphics, current: Graphics
) -> str | None:
    is_removed = key in changes and changes[key] is None
    value: str | None = getattr(requested, key) or (None if is_removed else getattr(current, key))
    return value


def amend_element(element: ET.Element, requested: Graphics) -> None:
    """Change a <graphics> in place."""
    current = read(element)
    amend.change_element(element, build(current), build(requested))
    if requested.listen != current.listen:
        # The attribute repeats the listener, and must not differ from it.
        element.attrib.pop("listen", None)
