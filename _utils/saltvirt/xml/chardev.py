"""<serial> and <console>."""

from saltvirt.arguments import refuse_unknown_keys
from saltvirt.errors import BadArgument
from saltvirt.xml import on_off, tag, yes_no

_KEYS = {"type", "path", "host", "port", "protocol", "tls", "target_port", "target_type"}
_TYPES = {"pty", "tcp", "udp", "file", "dev", "pipe", "unix", "null", "stdio", "vc"}


def elements(serials, consoles, log_path):
    """Return the VM's serials and consoles; by default one of each, logged to ``log_path``."""
    log = {"file": log_path, "append": on_off(True)} if log_path else None
    out = []
    if serials is None and consoles is None:
        target = tag("target", {"port": 0})
        out.append(tag("serial", {"type": "pty"}, tag("log", log) if log else None, target))
        out.append(tag("console", {"type": "pty"}, tag("target", {"type": "serial", "port": 0})))
        return out
    for number, serial in enumerate(serials or ()):
        out.append(_element("serial", serial, log_path if number == 0 else None))
    for number, console in enumerate(consoles or ()):
        only = number == 0 and not serials
        out.append(_element("console", console, log_path if only else None))
    return out


def _element(name, device, log_path):
    refuse_unknown_keys(name, device, _KEYS)
    kind = device.get("type", "pty")
    if kind not in _TYPES:
        raise BadArgument(name, f"type {kind!r}; one of {', '.join(sorted(_TYPES))}")
    default_type = "serial" if name == "console" else None
    target = tag(
        "target",
        {"type": device.get("target_type", default_type), "port": device.get("target_port", 0)},
    )
    log = tag("log", {"file": log_path, "append": "on"}) if log_path else None
    return tag(name, {"type": kind}, *_source(kind, device), log, target)


def _source(kind, device):
    if kind == "tcp":
        address = {"host": device.get("host", "127.0.0.1"), "service": device.get("port", 23023)}
        protocol = tag("protocol", {"type": device.get("protocol", "telnet")})
        return [tag("source", {"mode": "bind", **address, "tls": yes_no(device.get("tls"))}),
                protocol]  # fmt: skip
    if kind == "udp":
        address = {"host": device.get("host", "127.0.0.1"), "service": device.get("port", 23023)}
        return [tag("source", {"mode": "connect", **address})]
    if kind in ("file", "dev", "pipe"):
        if not device.get("path"):
            raise BadArgument(f"serial or console of type {kind}", "give its 'path'")
        return [tag("source", {"path": device["path"]})]
    if kind == "unix":
        return [tag("source", {"mode": "bind", "path": device.get("path")})]
    return []
