"""The addresses of VMs that their minions told the master; no host is asked."""

from collections.abc import Iterable, Mapping
from typing import Any

from saltvirt.core import guestaccess
from saltvirt.core.salt import compat


def from_grains(grains: Mapping[str, Any]) -> list[str]:
    """Return the addresses in a minion's grains at which others may reach it."""
    lists = [grains.get(key) for key in ("ipv4", "ipv6")]
    return guestaccess.addresses(
        address for values in lists if isinstance(values, list) for address in values
    )


def read_first(opts: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return ``{name: address}`` of VMs with an accepted key, by the grains of their minions."""
    wanted_names = list(names)
    if not wanted_names:
        return {}
    accepted, cache = set(compat.KeyStore(opts).accepted()), compat.Grains(opts)
    out = {}
    for name in filter(accepted.__contains__, wanted_names):
        grains = cache.of(name)
        addresses = from_grains(grains) if isinstance(grains, dict) else []
        if addresses:
            out[name] = addresses[0]
    return out
