"""Choose a firewall backend by name."""

from collections.abc import Iterable
from typing import Any

from saltvirt.core.errors import BadArgument
from saltvirt.network.firewall.backend import Firewall, Functions
from saltvirt.network.firewall.firewalld import Firewalld
from saltvirt.network.firewall.forwarding import WithForwarding
from saltvirt.network.firewall.iptables import Iptables
from saltvirt.network.firewall.nftables import Nftables

_KINDS: dict[str, type[Firewall]] = {
    "nftables": Nftables,
    "iptables": Iptables,
    "firewalld": Firewalld,
}


def of(
    backend: str, functions: Functions, name: str, ports: Any, peers: Iterable[object]
) -> Firewall:
    """Return the rule set in a backend; refuse an unknown backend."""
    # A mistyped YAML value, such as a list, may be unhashable.
    if backend not in [*_KINDS]:
        raise BadArgument("backend", f"{backend!r}; one of {', '.join(_KINDS)}")
    arguments = (functions, name, ports, list(peers))
    forward_table = Nftables(*arguments, lets_in=False)
    # The nftables backend's own table covers forwarded packets.
    return WithForwarding(
        _KINDS[backend](*arguments), forward_table, is_wanted=backend != "nftables"
    )
