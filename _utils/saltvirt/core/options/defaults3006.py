"""
``virt:compat: 3006``: the defaults of Salt 3006 for what a call leaves out.

Some open a VM to the network: docs/compat.md lists them. Defaults of a single XML element are in
the module of that element, which checks ``is_3006`` of a VM or a disk.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core.model import Disk, Nic
from saltvirt.core.nics import mac_for

_EVERYWHERE = "0.0.0.0"
_PORT = {"port": 23023, "protocol": "telnet"}
# QEMU's prefix, with which libvirt begins every MAC that it makes.
_MAKER = (0x52, 0x54, 0x00)


def display(graphics: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a ``graphics`` mapping that listens on all addresses unless it names some."""
    if not graphics:
        return None if graphics is None else {}
    listen = graphics.get("listen") or {"type": "address"}
    if isinstance(listen, Mapping) and listen.get("type", "address") == "address":
        listen = {"address": _EVERYWHERE, **listen}
    return {**graphics, "listen": listen}


def ports(devices: Iterable[Mapping[str, Any]] | None) -> tuple[dict[str, Any], ...] | None:
    """Return serials or consoles as TCP, on all addresses, unless they name other values."""
    return None if devices is None else tuple(map(_port, devices))


def _port(device: Mapping[str, Any]) -> dict[str, Any]:
    kind = device.get("type", "tcp")
    if kind not in ("tcp", "udp"):
        return dict(device)
    defaults = _PORT if kind == "tcp" else {}
    return {"type": kind, "host": _EVERYWHERE, **defaults, **device}


def disk(vm_disk: Disk) -> Disk:
    """Return a disk that is a copy of its image unless it says otherwise."""
    return replace(
        vm_disk, is_3006=True, overlay=False if vm_disk.overlay is None else vm_disk.overlay
    )


def nic(vm: str, vm_nic: Nic) -> Nic:
    """Return a NIC; its MAC, if the call gives none, begins as libvirt's do."""
    if vm_nic.mac != mac_for(vm, vm_nic.name):
        return vm_nic
    digest = hashlib.sha256(f"{vm}/{vm_nic.name}".encode()).digest()
    return replace(vm_nic, mac=":".join(f"{byte:02x}" for byte in (*_MAKER, *digest[:3])))
