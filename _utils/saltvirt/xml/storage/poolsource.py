"""<source> of a <pool>: its hosts, devices, adapter and login."""

import re
from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields, texts

_WWN = re.compile(r"(0x)?[0-9A-Fa-f]{16}")
SECRET_TYPES = {"rbd": "ceph", "iscsi": "chap", "iscsi-direct": "chap"}
# In the order of the arguments of virt.pool_define.
KEYS = ("devices", "dir", "initiator", "adapter", "hosts", "auth", "name", "format")
_ADAPTER = (
    "type",
    "name",
    "parent",
    "managed",
    "parent_wwnn",
    "parent_wwpn",
    "parent_fabric_wwn",
    "wwnn",
    "wwpn",
)
_ADAPTERS = ("scsi_host", "fc_host")
_WWNS = ("parent_wwnn", "parent_wwpn", "parent_fabric_wwn", "wwnn", "wwpn")
_FORMATS = {
    "fs": "auto ext2 ext3 ext4 ufs iso9660 udf gfs gfs2 vfat hfs+ xfs ocfs2 vmfs",
    "netfs": "auto nfs glusterfs cifs",
    "disk": "unknown dos dvh gpt mac bsd pc98 sun lvm2",
    "logical": "unknown lvm2",
}
_ADDRESS = ("domain", "bus", "slot", "function")


@element.declare("adapter")
class Adapter:
    """The SCSI adapter of a pool's volumes; ``address`` is its parent's."""

    attributes: dict[str, str] = fields.bag(default_factory=dict)
    unique_id: str | None = fields.attribute("parentaddr/@unique_id", default=None)
    address: dict[str, str] | None = fields.bag("parentaddr/address", default=None)


@element.declare("auth")
class Auth:
    """The login for a source; ``secret`` is ``{"usage": ...}`` or ``{"uuid": ...}``."""

    type: str | None = fields.attribute("@type", default=None)
    username: str | None = fields.attribute("@username", default=None)
    secret: dict[str, str] = fields.bag("secret", default_factory=dict)


@element.declare("source")
class Source:
    """The source of a pool's volumes; ``devices`` and ``hosts`` are their attributes."""

    hosts: tuple[dict[str, str], ...] = fields.values("host", default=())
    devices: tuple[dict[str, str], ...] = fields.values("device", default=())
    dir: str | None = fields.attribute("dir/@path", default=None)
    adapter: Adapter | None = fields.child(default=None)
    auth: Auth | None = fields.child(default=None)
    name: str | None = fields.text("name", default=None)
    format: str | None = fields.attribute("format/@type", default=None)
    initiator: str | None = fields.attribute("initiator/iqn/@name", default=None)


def from_call(name: str, ptype: str, options: Mapping[str, Any]) -> Source:
    """Return the source that a call describes; raise BadArgument if it cannot be one."""
    return Source(
        hosts=tuple(map(_host, arguments.names("source:hosts", options.get("hosts")))),
        devices=_devices(options.get("devices")),
        dir=_dir(options.get("dir"), options.get("format")),
        adapter=_adapter(options.get("adapter")),
        auth=_auth(name, ptype, options.get("auth")),
        name=_text(options.get("name")),
        format=_format(ptype, options.get("format")),
        initiator=_text(options.get("initiator")),
    )


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _format(ptype: str, value: object) -> str | None:
    formats = _FORMATS.get(ptype, "").split()
    if formats and value not in (None, "") and value not in formats:
        raise BadArgument(
            "source:format", f"{value!r}; for type {ptype} one of {', '.join(formats)}"
        )
    return _text(value)


def _flag(argument: str, value: object) -> bool | None:
    flag = {"yes": True, "no": False}.get(value, value) if isinstance(value, str) else value
    return None if flag is None else arguments.boolean(argument, flag)


def clean(path: str) -> str:
    """Return a path as libvirt writes it: no double slash, none at the end."""
    return re.sub("/+", "/", path).rstrip("/") or "/"


def _dir(value: object, kind: object) -> str | None:
    text = _text(value)
    if text is None:
        return None
    # A share of Windows has a name, not a path.
    return text.lstrip("/") if kind == "cifs" else clean(text)


def _host(text: str) -> dict[str, str]:
    """Return the attributes of a host: ``name``, ``name:port``, ``[IPv6]:port`` or an IPv6."""
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]*):(\d+)", text)
    if match is None:
        if text.count(":") == 1 or text.startswith("["):
            raise BadArgument(
                "source:hosts", f"{text!r} is not a host with a port, as in san1:3260"
            )
        return {"name": text}
    name, port = match[1] or match[3], match[2] or match[4]
    if port is None:
        return {"name": name}
    return {"name": name, "port": str(arguments.whole_number("source:hosts", port, most=65535))}


def _devices(value: object) -> tuple[dict[str, str], ...]:
    if isinstance(value, str | Mapping):
        value = [value]
    if value is not None and not isinstance(value, list | tuple):
        raise BadArgument("source:devices", f"{value!r} is not a list of devices")
    return tuple(map(_device, value or ()))


def _device(value: object) -> dict[str, str]:
    device = value if isinstance(value, Mapping) else {"path": value}
    arguments.refuse_unknown_keys("source:devices", device, ("path", "part_separator"))
    if not device.get("path"):
        raise BadArgument("source:devices", f"{value!r} has no path")
    separator = _flag("source:devices:part_separator", device.get("part_separator"))
    return texts({"path": device["path"], "part_separator": separator})


def _adapter(value: object) -> Adapter | None:
    adapter = arguments.mapping("source:adapter", value)
    if not adapter:
        return None
    arguments.refuse_unknown_keys("source:adapter", adapter, (*_ADAPTER, "parent_address"))
    kind = adapter.get("type")
    if kind is not None and kind not in _ADAPTERS:
        raise BadArgument("source:adapter:type", f"{kind!r}; one of {', '.join(_ADAPTERS)}")
    for key in _WWNS:
        if adapter.get(key) is not None and not _WWN.fullmatch(str(adapter[key])):
            raise BadArgument(f"source:adapter:{key}", f"{adapter[key]!r} is not 16 hex digits")
    managed = _flag("source:adapter:managed", adapter.get("managed"))
    parent = arguments.mapping("source:adapter:parent_address", adapter.get("parent_address")) or {}
    arguments.refuse_unknown_keys("parent_address", parent, ("unique_id", "address"))
    address = arguments.mapping("parent_address:address", parent.get("address"))
    arguments.refuse_unknown_keys("address", address or {}, _ADDRESS)
    return Adapter(
        attributes=texts({**{key: adapter.get(key) for key in _ADAPTER}, "managed": managed}),
        unique_id=_text(parent.get("unique_id")),
        address=None if address is None else texts(address),
    )


def _auth(name: str, ptype: str, value: object) -> Auth | None:
    # The value is never shown whole: it may have a password in it.
    if value is not None and not isinstance(value, Mapping):
        raise BadArgument("source:auth", "is not a mapping")
    if not value:
        return None
    keys = ("type", "username", "password", "secret")
    arguments.refuse_unknown_keys("source:auth", value, keys)
    username = _text(value.get("username"))
    if username is None:
        raise BadArgument("source:auth", "has no username")
    if value.get("password") is not None:
        usage_secret = {"usage": f"pool_{name}"}
        return Auth(type=SECRET_TYPES[ptype], username=username, secret=usage_secret)
    secret = value.get("secret")
    if not isinstance(secret, Mapping) or secret.get("type") not in ("usage", "uuid"):
        raise BadArgument(
            "source:auth", "give a password, or secret: {type: usage or uuid, value: ...}"
        )
    arguments.refuse_unknown_keys("source:auth:secret", secret, ("type", "value"))
    if not secret.get("value"):
        raise BadArgument("source:auth:secret", "has no value")
    kind = _text(value.get("type")) or SECRET_TYPES[ptype]
    secret_kind, secret_value = str(secret["type"]), str(secret["value"])
    # libvirt writes no capitals: they would be a change each time.
    secret_value = (
        arguments.uuid("source:auth:secret", secret_value)
        if secret_kind == "uuid"
        else secret_value
    )
    return Auth(type=kind, username=username, secret={secret_kind: secret_value})
