"""DHCP servers are asked as the client that a bridge will be; any packet may come back."""

import struct

from hypothesis import given
from hypothesis import strategies as st
from saltvirt.network.bridge import portlease


def answer(packet, address, message_type=2):
    """Return a server's answer to a DHCPDISCOVER."""
    head, body = packet[:28], bytearray(packet[28:])
    body[0], body[16:20] = 2, bytes(map(int, address.split(".")))
    body[242] = message_type
    return head + bytes(body)


def test_a_server_is_asked_as_the_client_that_the_bridge_will_be():
    packet = portlease.discover(b"abcd", "52:00:00:00:00:01", "0152000000ff01")

    assert packet[28 + 28 : 28 + 34] == bytes.fromhex("520000000001")
    assert bytes([61, 7]) + bytes.fromhex("0152000000ff01") in packet
    length, checked = struct.unpack("!2xH", packet[:4])[0], sum(struct.unpack("!10H", packet[:20]))
    assert length == len(packet) and (checked & 0xFFFF) + (checked >> 16) == 0xFFFF
    assert portlease.offer(packet, b"abcd") is None  # the question itself is not an answer
    assert portlease.offer(answer(packet, "10.0.0.4"), b"abcd") == "10.0.0.4"
    assert portlease.offer(answer(packet, "10.0.0.4"), b"else") is None
    assert portlease.offer(answer(packet, "10.0.0.4", message_type=6), b"abcd") is None


@given(st.integers(0, 300), st.binary(max_size=20))
def test_no_packet_from_the_network_is_an_error(length, noise):
    offer_packet = answer(portlease.discover(b"abcd", "52:00:00:00:00:01"), "10.0.0.4")

    assert portlease.offer(offer_packet[:length] + noise, b"abcd") in (None, "10.0.0.4")
    assert portlease.offer(noise, b"abcd") is None
