"""The DHCP lease of a bridge's port: whether the bridge is offered the same, and has it."""

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping

from saltvirt.core.errors import VirtError
from saltvirt.network.bridge.leases import Lease
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers.change import Manager
from saltvirt.network.managers.tools import PersistenceError

_EVERYBODY = b"\xff" * 6
_IP, _UDP, _CLIENT, _SERVER = 0x0800, 17, 68, 67
_COOKIE = b"\x63\x82\x53\x63"
_OFFER = b"\x35\x01\x02"
# A server that checks whether an address is in use takes up to 3 s for its offer.
_TRIES_S = (1, 3, 4)


def request_offer(link: str, mac: str, client_id: str | None = None) -> str | None:
    """
    Return the address that a DHCP server offers over a link, None if there is no offer within 8 s.

    mac, client_id
        The identity with which the lease will be requested later; ``client_id`` in hex.
    """
    xid = os.urandom(4)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_IP)) as wire:
            wire.bind((link, _IP))
            for patience_s in _TRIES_S:
                wire.sendto(discover(xid, mac, client_id), (link, _IP, 0, 0, _EVERYBODY))
                address = _answer(wire, xid, time.monotonic() + patience_s)
                if address:
                    return address
    except OSError as exc:
        raise PersistenceError(f"cannot ask for a DHCP server over {link}: {exc.strerror}") from exc
    return None


def _answer(wire: socket.socket, xid: bytes, deadline: float) -> str | None:
    while (left_s := deadline - time.monotonic()) > 0:
        wire.settimeout(left_s)
        try:
            address = offer(wire.recv(2048), xid)
        except TimeoutError:
            return None
        if address:
            return address
    return None


def discover(xid: bytes, mac: str, client_id: str | None = None) -> bytes:
    """Return the IP packet of a DHCPDISCOVER."""
    hardware = bytes.fromhex(mac.replace(":", ""))
    options = b"\x35\x01\x01"
    if client_id:
        id_bytes = bytes.fromhex(client_id)
        options += bytes([61, len(id_bytes)]) + id_bytes
    # Request a broadcast answer (flag 0x8000): this host does not have the address yet.
    head = struct.pack("!BBBB4sHH16s", 1, 1, 6, 0, xid, 0, 0x8000, b"")
    body = head + hardware.ljust(16, b"\0") + b"\0" * 192 + _COOKIE + options + b"\xff"
    udp = struct.pack("!HHHH", _CLIENT, _SERVER, 8 + len(body), 0)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 28 + len(body), 0, 0, 64, _UDP, 0, b"\0" * 4, b"\xff" * 4
    )
    return ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:] + udp + body


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    checksum: int = ~total & 0xFFFF
    return checksum


def offer(packet: bytes, xid: bytes) -> str | None:
    """Return the address that an IP packet offers for the request ``xid``, or None."""
    start = (packet[0] & 15) * 4 if packet else 0
    body = packet[start + 8 :]
    is_answer = len(packet) > start + 248 and packet[9] == _UDP and body[0] == 2
    if not is_answer or body[4:8] != xid or body[236:240] != _COOKIE:
        return None
    return str(ipaddress.IPv4Address(body[16:20])) if _OFFER in body[240:] else None


# A server that probes an address before it offers it takes a few seconds.
_LEASE_S = 20


class LeaseLost(VirtError):
    """The lease would be lost, or its address would change; nothing stays changed."""


def read_leases(manager: Manager, names: Iterable[str]) -> dict[str, Lease]:
    """Return ``{link: lease}`` of the leases that the host's manager renews."""
    all_leases = {name: manager.lease(name) for name in names}
    return {name: lease for name, lease in all_leases.items() if lease}


def client_id(leases: Mapping[str, Lease]) -> str | None:
    """Return the DHCP client id of the first lease, None without a lease."""
    return next((lease.client_id for lease in leases.values()), None)


def refuse_unanswered(
    old_snapshot: Snapshot, leases: Mapping[str, Lease], names: Iterable[str]
) -> None:
    """Raise LeaseLost if no DHCP server offers the lease again; change nothing."""
    for link in (name for name in names if name in leases):
        old_lease, mac = leases[link], old_snapshot["links"][link]["mac"] or ""
        address = request_offer(link, mac, old_lease.client_id)
        if address is None:
            raise LeaseLost(
                f"no DHCP server answers over {link}, so its lease could not be "
                "taken over; nothing was changed"
            )
        if old_lease.client_id and address != old_lease.address:
            raise LeaseLost(
                f"the DHCP server would give {address} instead of {old_lease.address}: "
                f"reserve that for {mac}, or make it static; nothing was changed"
            )


def wait_for_lease(manager: Manager, link: str, leases: Mapping[str, Lease]) -> None:
    """Wait until the manager has a link's lease; raise LeaseLost without the old address."""
    old_addresses = {lease.address for lease in leases.values()}
    deadline = time.monotonic() + _LEASE_S
    while not (lease := manager.lease(link)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if lease is None:
        raise LeaseLost(
            f"{manager.title} has no lease for {link} after {_LEASE_S} s; links, "
            "addresses, routes and files are as they were"
        )
    if old_addresses and lease.address not in old_addresses:
        raise LeaseLost(
            f"the DHCP server gives {link} the address {lease.address} instead of "
            f"{', '.join(sorted(old_addresses))}: reserve it there for this MAC, or give "
            "addresses; everything is as it was"
        )
