"""Addresses of a VM, and the command by which its user logs in."""

import ipaddress
import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

MOST = 16
# A guest is not trusted: it may report any number of addresses.
_MOST_READ = 1000
# Stands for the default user of an image that was never inspected; no real user has this name.
SOME_USER = "USER"
# Stands for an unknown address.
SOME_ADDRESS = "ADDRESS"
# Sources of an address: libvirt's DHCP server, the guest agent, the host's neighbour table (also
# through libvirt), or the VM's own minion.
SOURCES = ("lease", "agent", "neighbours", "arp", "minion")
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def addresses(values: Iterable[Any]) -> list[str]:
    """
    Return the texts that are addresses at which others may reach a VM, IPv4 first.

    A guest may report anything: other texts and useless addresses are left out, and all after
    ``MOST``.
    """
    candidates = filter(None, map(_address, itertools.islice(values, _MOST_READ)))
    sorted_addresses = sorted(dict.fromkeys(candidates), key=lambda address: address.version)
    return [str(address) for address in sorted_addresses[:MOST]]


def _address(text: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    # Any text may follow '%'.
    if not isinstance(text, str) or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    is_own = (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )
    return None if is_own or address.is_reserved or address in _THIS_NETWORK else address


def ssh_user(text: Any) -> str | None:
    """Return a guest's recorded user, None if the text is no user name."""
    is_user = isinstance(text, str) and (text == SOME_USER or _USER.fullmatch(text))
    return text if is_user else None


def is_in_networks(address: str, networks: Iterable[Any]) -> bool:
    """Return whether an address is in one of some networks, given as texts."""
    ip = ipaddress.ip_address(address)
    parsed_networks = (_network(text) for text in networks)
    return any(net is not None and ip in net for net in parsed_networks)


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text) if isinstance(text, str) else None
    except ValueError:
        return None


def ssh(
    guest_addresses: Sequence[str],
    user: str | None,
    *,
    host: str = "",
    jump_networks: Iterable[Any] = (),
) -> str | None:
    """
    Return the command that logs in by SSH, None without a user.

    host, jump_networks
        The VM's host, and the networks that only this host reaches: SSH jumps through it.
    """
    if not user:
        return None
    address = guest_addresses[0] if guest_addresses else SOME_ADDRESS
    notes = [f"{user}: the image's default user"] if user == SOME_USER else []
    notes += [] if guest_addresses else [f"{SOME_ADDRESS}: not known to its host yet"]
    jump = (
        f"-J {shlex.quote(host)} "
        if guest_addresses and host and is_in_networks(address, jump_networks)
        else ""
    )
    note = f" ({', '.join(notes)})" if notes else ""
    return f"ssh {jump}{user}@{address}{note}"


def console(name: str, host: str) -> str:
    """Return the console command, the way in without a key; stock images have no password."""
    return f"virsh console {name} (on {host}; asks for a password, which stock images do not have)"
