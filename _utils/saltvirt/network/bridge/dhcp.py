"""Request DHCP offers over a link, without taking a lease."""

import ipaddress
import os
import socket
import struct
import time

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
