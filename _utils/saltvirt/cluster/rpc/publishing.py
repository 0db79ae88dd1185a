"""Publish a job to hosts by the target with the fewest bytes; match compound targets to hosts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import salt.cache
import salt.utils.args
from salt.utils.minions import CkMinions

from saltvirt.cluster import membership
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import terminal
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.salt import compat

# From so many hosts on, a shorter target replaces their list.
_MANY = 20
# Ids of one list; each list is a message that the master signs.
_AT_ONCE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    The minions that a job is for.

    kind
        Salt's ``tgt_type``.
    parts
        Targets of that type; each is published by itself, as a part of the same job.
    """

    kind: str = "list"
    parts: Sequence[str | Sequence[str]]


def target(cloud: Cloud, hosts: Sequence[str]) -> Target:
    """Return the target of a job for hosts."""
    if len(hosts) < _MANY:
        return Target(parts=[hosts])
    return choose_target(cloud.opts, cloud.members, hosts, cloud.known_minions())


def choose_target(
    opts: Mapping[str, Any],
    members: membership.Members,
    hosts: Sequence[str],
    accepted_ids: Collection[str],
) -> Target:
    """
    Return the target of a job for many hosts.

    accepted_ids
        The ids of all minions of this master.
    """
    words = membership.compound_target(members, hosts, accepted_ids)
    if words in members.patterns:
        return Target(kind="glob", parts=[str(words)])
    # The master matches compound targets only if it has such a cache.
    has_words = bool(words) and opts.get("minion_data_cache", False)
    is_filtered = bool(opts.get("zmq_filtering", False))
    if has_words and not (is_filtered and len(accepted_ids) > 2 * len(hosts)):
        return Target(kind="compound", parts=[str(words)])
    size = _AT_ONCE if is_filtered else len(hosts)
    return Target(parts=[hosts[at : at + size] for at in range(0, len(hosts), size)])


def publish(
    local: Any,
    targets: Iterable[str] | Target,
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    timeout_s: float,
    **cache_options: bool,
) -> tuple[str, set[str]]:
    """
    Send a job to minions, or to those of a target; return its id, and the minions.

    cache_options
        ``nocache=True`` keeps the replies out of the master's job cache.
    """
    conditioned = salt.utils.args.condition_input(list(arg), kwarg)
    job_target = targets if isinstance(targets, Target) else Target(parts=[list(targets)])
    jid, reached = "", set[str]()
    for part in job_target.parts:
        options = {
            "tgt_type": job_target.kind,
            "timeout": timeout_s,
            "listen": True,
            "jid": jid,
            **cache_options,
        }
        published = local.pub(part, fun, conditioned, **options)
        if not published or "jid" not in published:
            reason = (published or {}).get("error", "it refused the job")
            raise MasterError(f"the Salt master did not send {fun}: {reason}")
        if not jid:
            jid = published["jid"]
        reached.update(published.get("minions") or ())
    return jid, reached


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
