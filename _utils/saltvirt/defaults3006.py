"""
``virt:compat: 3006``: what Salt 3006 took where a call says nothing.

Some of it opens a VM to the network: docs/compat.md has each, and what it opens. What is of one
element alone is in that element's file, which asks ``is_3006`` of a VM or a disk.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.model import Disk, Nic
from saltvirt.nics import mac_for

_EVERYWHERE = "0.0.0.0"
_PORT = {"port": 23023, "protocol": "telnet"}
# QEMU's own, which libvirt begins every MAC with that it makes.
_MAKER = (0x52, 0x54, 0x00)


def display(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a ``graphics`` mapping that listens on all addresses unless it says where."""
    if not given:
        return None if given is None else {}
    listen = given.get("listen") or {"type": "address"}
    if isinstance(listen, Mapping) and listen.get("type", "address") == "address":
        listen = {"address": _EVERYWHERE, **listen}
    return {**given, "listen": listen}


def ports(given: Iterable[Mapping[str, Any]] | None) -> tuple[dict[str, Any], ...] | None:
    """Return serials or consoles that are TCP, on all addresses, unless they say otherwise."""
    return None if given is None else tuple(map(_port, given))


def _port(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = given.get("type", "tcp")
    if kind not in ("tcp", "udp"):
        return dict(given)
    more = _PORT if kind == "tcp" else {}
    return {"type": kind, "host": _EVERYWHERE, **more, **given}


def disk(one: Disk) -> Disk:
    """Return a disk that is a copy of its image unless it says otherwise."""
    return replace(one, is_3006=True, overlay=False if one.overlay is None else one.overlay)


def nic(vm: str, one: Nic) -> Nic:
    """Return a NIC whose MAC, if the call gives none, begins as libvirt's do."""
    if one.mac != mac_for(vm, one.name):
        return one
    digest = hashlib.sha256(f"{vm}/{one.name}".encode()).digest()
    return replace(one, mac=":".join(f"{byte:02x}" for byte in (*_MAKER, *digest[:3])))
