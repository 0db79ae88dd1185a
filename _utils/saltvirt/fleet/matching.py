"""
Which hypervisors a compound target means, by Salt's own matchers.

They ask the master's cache of minions once, and of the hypervisors alone: guests are minions too,
and there may be twenty of them for each host.
"""

from collections.abc import Collection, Mapping
from typing import Any

import salt.cache
from salt.utils.minions import CkMinions

from saltvirt import compat, terminal
from saltvirt.errors import BadArgument


class _HostsCache:
    """The master's cache of minions as if it had these alone."""

    def __init__(self, cache: Any, hosts: Collection[str]) -> None:
        self._cache, self._hosts = cache, hosts

    def list(self, bank: str) -> list[str]:
        """Return which of the hosts there is something of."""
        return [minion_id for minion_id in self._cache.list(bank) or () if minion_id in self._hosts]

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the cache has."""
        return getattr(self._cache, name)


class _Matchers(CkMinions):  # type: ignore[misc]
    """Salt's matchers, to which the hypervisors are all minions that there are."""

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
    Return those of the hypervisors that a compound target matches.

    what
        The argument that the target came in, for the error that a list names a minion whose key
        this master has not accepted.
    """
    matches = _Matchers(opts, hosts).check_minions(expression, "compound", greedy=False)
    missing = matches.get("missing") or ()
    if missing:
        # On 3006 it is looked for among these hosts alone.
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
