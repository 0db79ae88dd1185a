"""
Match hypervisors by a compound target, with Salt's own matchers.

The matchers ask the master's cache once, and for hypervisors only: guests are minions, too, maybe
twenty for each host.
"""

from collections.abc import Collection, Mapping
from typing import Any

import salt.cache
from salt.utils.minions import CkMinions

from saltvirt.core import terminal
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt import compat


class _HostsCache:
    """The master's cache of minions, limited to the given hosts."""

    def __init__(self, cache: Any, hosts: Collection[str]) -> None:
        self._cache, self._hosts = cache, hosts

    def list(self, bank: str) -> list[str]:
        """Return the hosts that have data in a bank."""
        return [minion_id for minion_id in self._cache.list(bank) or () if minion_id in self._hosts]

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the cache."""
        return getattr(self._cache, name)


class _Matchers(CkMinions):  # type: ignore[misc]
    """Salt's matchers, limited to the hypervisors."""

    def __init__(self, opts: Mapping[str, Any], hosts: Collection[str]) -> None:
        super().__init__(opts)
        self._hosts = frozenset(hosts)
        self.cache: Any = _HostsCache(salt.cache.factory(opts), self._hosts)

    def _pki_minions(self) -> set[str]:
        return set(self._hosts)


def match_hosts(
    opts: Mapping[str, Any], hosts: Collection[str], expression: str, argument: str
) -> set[str]:
    """
    Return the hypervisors that a compound target matches.

    argument
        The argument with the target, for the error about a listed minion that the master has not
        accepted.
    """
    matches = _Matchers(opts, hosts).check_minions(expression, "compound", greedy=False)
    missing = matches.get("missing") or ()
    if missing:
        # Salt 3006 looks for the listed ids among these hosts only.
        missing = sorted({*missing}.difference(compat.KeyStore(opts).accepted()))
    if missing:
        plain_ids = filter(terminal.is_plain_id, missing)
        accept = (
            ", ".join(f"salt-key -a {minion}" for minion in plain_ids) or "its id is an odd one"
        )
        raise BadArgument(
            argument,
            f"{expression!r} lists {', '.join(missing)}, whose key this master has not accepted: "
            f"accept it ({accept}), or take it out of the list",
        )
    return {*hosts}.intersection(matches.get("minions") or ())
