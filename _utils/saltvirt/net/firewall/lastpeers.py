"""The other hypervisors' addresses, as the master has last told them: for when it knows none."""

import json
from collections.abc import Iterable, Mapping

from saltvirt import terminal
from saltvirt.net import change
from saltvirt.net.firewall import bootunits, rules

_SHOWN = 5


class LastPeers:
    """What is kept for the rules of one name: ``{host: its addresses}``."""

    def __init__(self, name: str) -> None:
        self.path = bootunits.RULES / f"peers-{rules.table_name(name)}.json"

    def of(self, hosts: Iterable[str]) -> dict[str, list[str]]:
        """Return the addresses of those hosts that are kept."""
        try:
            found = json.loads(self.path.read_bytes())
            kept = {host: [*map(str, found[host])] for host in hosts if host in found}
            rules.networks(one for addresses in kept.values() for one in addresses)
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError):
            # Somebody has edited it: whoever it let in is known again when the host is.
            return {}
        return kept

    def keep(self, peers: Mapping[str, Iterable[str]]) -> None:
        """Replace what is kept."""
        told = {host: sorted(addresses) for host, addresses in sorted(peers.items()) if addresses}
        change.put(self.path, json.dumps(told, indent=1).encode() if told else None)

    def forget(self) -> None:
        """Keep nothing any more."""
        change.put(self.path, None)
        bootunits.tidy()


def note(stay: Mapping[str, Iterable[str]], unknown: Iterable[str]) -> str:
    """Return what is said of hypervisors whose addresses the master does not know."""
    hosts = sorted(unknown)
    if not hosts:
        return ""
    why = f"the master knows no address of {terminal.some(hosts, _SHOWN)}, until: salt HOST "
    why += "saltutil.refresh_grains"
    addresses = sorted({one for found in stay.values() for one in found})
    return (
        f"; {terminal.some(addresses, _SHOWN)} may still get in, as {why}"
        if addresses
        else f"; {why}"
    )
