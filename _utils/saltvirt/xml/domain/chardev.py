"""<serial>, <console> and <channel>, which are written alike."""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from saltvirt.core.arguments import refuse_unknown_keys
from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields, flag, texts, yes_no

ELEMENTS = ("serial", "console", "channel")
_KEYS = {"type", "path", "host", "port", "protocol", "tls", "target_port", "target_type"}
_TCP = {"host", "port", "protocol", "tls"}
# The keys of a call for a source, and their attributes.
_SOURCE = {"host": "host", "port": "service", "tls": "tls", "path": "path"}
_TYPES = {"pty", "tcp", "udp", "file", "dev", "pipe", "unix", "null", "stdio", "vc"}


@element.declare(*ELEMENTS)
class Chardev:
    """The content of such an element: its name, its type, and the attributes of its parts."""

    element: str
    type: str | None = fields.attribute("@type", default="pty")
    source: dict[str, str] | None = fields.bag("source", default=None)
    protocol: dict[str, str] | None = fields.bag("protocol", default=None)
    log: dict[str, str] | None = fields.bag("log", default=None)
    target: dict[str, str] | None = fields.bag("target", default=None)


build, read = element.build, element.reader(Chardev)


def from_call(
    serials: Sequence[Mapping[str, Any]] | None,
    consoles: Sequence[Mapping[str, Any]] | None,
    log_path: str | None,
) -> tuple[Chardev, ...]:
    """Return the VM's serials and consoles; by default one of each, logged to ``log_path``."""
    if serials is None and consoles is None:
        target = {"type": "serial", "port": "0"}
        return (
            Chardev(element="serial", log=_log(log_path), target={"port": "0"}),
            Chardev(element="console", target=target),
        )
    return (
        *_devices("serial", serials or (), log_path),
        *_devices("console", consoles or (), None if serials else log_path),
    )


def _devices(
    element: str, devices: Sequence[Mapping[str, Any]], log_path: str | None
) -> Iterator[Chardev]:
    """Yield the devices, each at a port of its own; the first is logged."""
    used_ports = {str(device["target_port"]) for device in devices if "target_port" in device}
    free_ports = (number for number in count() if str(number) not in used_ports)
    for number, device in enumerate(devices):
        port = device["target_port"] if "target_port" in device else next(free_ports)
        yield _chardev(element, device, log_path if number == 0 else None, port)


def guest_agent() -> Chardev:
    """Return the channel of QEMU's guest agent."""
    target = {"type": "virtio", "name": "org.qemu.guest_agent.0"}
    return Chardev(element="channel", type="unix", target=target)


def spice_agent() -> Chardev:
    """Return the channel of SPICE's agent: the viewer's clipboard, and the size of its window."""
    target = {"type": "virtio", "name": "com.redhat.spice.0"}
    return Chardev(element="channel", type="spicevmc", target=target)


def _log(path: str | None) -> dict[str, str] | None:
    return {"file": path, "append": "on"} if path else None


def _chardev(
    element: str, device: Mapping[str, Any], log_path: str | None, port: object
) -> Chardev:
    refuse_unknown_keys(element, device, _KEYS)
    # On Salt 3006 they were TCP without a type, so a TCP option implies that type.
    kind = device.get("type", "tcp" if _TCP & device.keys() else "pty")
    # YAML may turn a slip into a list, which has no hash.
    if kind not in [*_TYPES]:
        raise BadArgument(element, f"type {kind!r}; one of {', '.join(sorted(_TYPES))}")
    default_type = "serial" if element == "console" else None
    target = {"type": device.get("target_type", default_type), "port": port}
    return Chardev(
        element=element,
        type=kind,
        source=_source(kind, device),
        protocol=texts({"type": device.get("protocol", "telnet")}) if kind == "tcp" else None,
        log=_log(log_path),
        target=texts(target),
    )


def _source(kind: str, device: Mapping[str, Any]) -> dict[str, str] | None:
    address = {"host": device.get("host", "127.0.0.1"), "service": device.get("port", 23023)}
    if kind == "tcp":
        return texts({"mode": "bind", **address, "tls": yes_no(flag(device.get("tls")))})
    if kind == "udp":
        return texts({"mode": "connect", **address})
    if kind in ("file", "dev", "pipe"):
        if not device.get("path"):
            raise BadArgument(f"serial or console of type {kind}", "give its 'path'")
        return texts({"path": device["path"]})
    if kind == "unix":
        return texts({"mode": "bind", "path": device.get("path")})
    return None


def find_bound_sources(element: ET.Element) -> list[dict[str, str]]:
    """Return the sources of such an element that are bound to an address of the host."""
    if element.get("type") not in ("tcp", "udp"):
        return []
    return [
        dict(source.attrib) for source in element.iterfind("source") if source.get("mode") == "bind"
    ]


def complete(current: Chardev, requested: Chardev, call: Mapping[str, Any]) -> Chardev:
    """
    Return the requested device, with the current values that the call leaves out.

    current
        The device at its place. One of another type is ignored.
    call
        The call's mapping that ``requested`` is made of; null means not given.
    """
    if current.type != requested.type:
        return requested
    source_names = {name for key, name in _SOURCE.items() if call.get(key) is not None}
    target_names = {"type"} if call.get("target_type") else set()
    target_names |= {"port"} if "target_port" in call else set()
    return replace(
        requested,
        source=_override(current.source, requested.source, source_names),
        protocol=current.protocol if call.get("protocol") is None else requested.protocol,
        log=current.log or requested.log,
        target=_override(current.target, requested.target, target_names),
    )


def _override(
    current: Mapping[str, str] | None, requested: Mapping[str, str] | None, names: Collection[str]
) -> dict[str, str] | None:
    """Return the current attributes, with the requested values of some names."""
    overrides = {key: value for key, value in (requested or {}).items() if key in names}
    return (dict(current or {}) | overrides) or None


def is_like(current: Chardev, requested: Chardev, has_port: bool) -> bool:
    """
    Return whether a device is as requested, apart from values that libvirt has filled in.

    has_port
        Whether the call names the port of its target.
    """
    pairs = [(current.source, requested.source), (current.protocol, requested.protocol)]
    target = dict(requested.target or {})
    if not has_port:
        target.pop("port", None)
    return current.type == requested.type and all(
        _has_attributes(*pair) for pair in [*pairs, (current.target, target)]
    )


def _has_attributes(current: Mapping[str, str] | None, requested: Mapping[str, str] | None) -> bool:
    # libvirt does not write what is off.
    attributes = {key: value for key, value in (requested or {}).items() if value != "no"}
    return attributes.items() <= (current or {}).items()


def is_shadow(device: Chardev) -> bool:
    """Return whether a console is only another name of the first serial port."""
    return device.element == "console" and (device.target or {}).get("type") == "serial"
