"""Find the networks that a host shares with its peers."""

import ipaddress
import json
from collections.abc import Callable, Iterator
from typing import Any

from saltvirt.network.firewall import rules
from saltvirt.network.firewall.backend import FirewallError

_COMMAND = ["ip", "-json", "address"]


def shared_networks(run: Callable[..., dict[str, Any]], peers: rules.Peers) -> rules.Peers:
    """
    Return this host's own networks with an address of a peer in them.

    run
        Runs a command (a list) and raises if it fails.
    """
    peer_networks = [
        ipaddress.ip_network(address) for addresses in peers.values() for address in addresses
    ]
    if not peer_networks:
        return rules.networks([])
    try:
        links = json.loads(run(_COMMAND)["stdout"])
        own_networks = list(_read_own_networks(links))
    except (ValueError, TypeError, KeyError) as exc:
        raise FirewallError(
            f"{' '.join(_COMMAND)}: what it says is not understood ({exc}); see what it prints, "
            "and whether iproute2 is older than 4.17"
        ) from exc
    return rules.networks(
        network
        for network in own_networks
        if any(network.version == peer.version and network.overlaps(peer) for peer in peer_networks)
    )


def _read_own_networks(links: Any) -> Iterator[rules.Network]:
    for link in links:
        for row in link.get("addr_info", ()):
            if "local" in row:
                yield ipaddress.ip_interface(f"{row['local']}/{row['prefixlen']}").network
