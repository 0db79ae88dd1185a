"""The peers of a host: their last known addresses, and the networks shared with them."""

import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from saltvirt.core import terminal
from saltvirt.network.firewall import bootunits, rules
from saltvirt.network.firewall.backend import FirewallError
from saltvirt.network.managers import change

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


_SHOWN = 5


class LastPeers:
    """The file of ``{host: addresses}`` of one rule set."""

    def __init__(self, name: str) -> None:
        self.path = bootunits.RULES / f"peers-{rules.table_name(name)}.json"

    def of(self, hosts: Iterable[str]) -> dict[str, list[str]]:
        """Return the stored addresses of these hosts."""
        try:
            content = json.loads(self.path.read_bytes())
            addresses_by_host = {
                host: [*map(str, content[host])] for host in hosts if host in content
            }
            rules.networks(
                address for addresses in addresses_by_host.values() for address in addresses
            )
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError):
            # A damaged file: its hosts get in again when the master knows their addresses.
            return {}
        return addresses_by_host

    def keep(self, peers: Mapping[str, Iterable[str]]) -> None:
        """Replace the stored addresses; hosts without any are left out."""
        addresses_by_host = {
            host: sorted(addresses) for host, addresses in sorted(peers.items()) if addresses
        }
        change.put(
            self.path,
            json.dumps(addresses_by_host, indent=1).encode() if addresses_by_host else None,
        )

    def forget(self) -> None:
        """Remove the file."""
        change.put(self.path, None)
        bootunits.tidy()


def note(kept_addresses: Mapping[str, Iterable[str]], unknown_hosts: Iterable[str]) -> str:
    """Return the note on hypervisors for which the master knows no address."""
    hosts = sorted(unknown_hosts)
    if not hosts:
        return ""
    reason = (
        f"the master knows no address of {terminal.join_some(hosts, _SHOWN)}, until: salt HOST "
    )
    reason += "saltutil.refresh_grains"
    addresses = sorted(
        {address for host_addresses in kept_addresses.values() for address in host_addresses}
    )
    return (
        f"; {terminal.join_some(addresses, _SHOWN)} may still get in, as {reason}"
        if addresses
        else f"; {reason}"
    )
