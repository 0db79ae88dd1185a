"""What hosts say that cannot sign it: of why this project's modules are not loaded there."""

import time
from collections.abc import Iterable
from typing import Any

import salt.client

from saltvirt import terminal
from saltvirt.errors import MasterError
from saltvirt.fleet.cloud import Cloud

_EVERY_S = 0.1
# Letters of what a minion says that are shown.
_LONGEST = 300


def answers(cloud: Cloud, hosts: Iterable[str], fun: str, timeout_s: float) -> dict[str, str]:
    """
    Return what hosts answer to one question, as text of one line; those that are silent are not in.

    It is read from the master's job cache, and not from the bus, where any minion can speak in the
    name of another. It is no proof either: as a syndic's a minion can have that stored, too.
    """
    wanted = sorted(hosts)
    if not wanted:
        return {}
    with cloud.client() as local:
        found = local.pub(wanted, fun, (), tgt_type="list", timeout=timeout_s)
        if not found or "jid" not in found:
            raise MasterError(f"the Salt master did not send {fun}: it refused the job")
        said = _stored(local, found["jid"], set(found.get("minions") or ()), timeout_s)
    return {host: one_line(said[host].get("ret")) for host in wanted if host in said}


def _stored(
    local: salt.client.LocalClient, jid: str, wanted: set[str], timeout_s: float
) -> dict[str, Any]:
    end = time.monotonic() + timeout_s
    while True:
        said: dict[str, Any] = local.get_cache_returns(jid) or {}
        if wanted <= said.keys() or time.monotonic() > end:
            return said
        time.sleep(_EVERY_S)


def one_line(said: object) -> str:
    """Return what a minion says as text that no terminal obeys."""
    return terminal.one_line(str(said), _LONGEST)
