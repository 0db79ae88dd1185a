"""Choose a firewall backend by name."""

from collections.abc import Iterable
from typing import Any

from saltvirt.errors import BadArgument
from saltvirt.net.firewall.backend import Firewall, Functions
from saltvirt.net.firewall.firewalld import Firewalld
from saltvirt.net.firewall.forwarding import WithForwarding
from saltvirt.net.firewall.iptables import Iptables
from saltvirt.net.firewall.nftables import Nftables

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
