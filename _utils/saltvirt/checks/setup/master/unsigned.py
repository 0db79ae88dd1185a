"""Get unsigned replies of hosts, which tell why this project's modules are not loaded."""

import time
from collections.abc import Iterable
from typing import Any

import salt.client

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import terminal
from saltvirt.core.errors import MasterError

_EVERY_S = 0.1
# Shown characters of a minion's reply.
_LONGEST = 300


def unsigned_answers(
    cloud: Cloud, hosts: Iterable[str], fun: str, timeout_s: float
) -> dict[str, str]:
    """
    Return hosts' replies to one call as single lines; unresponsive hosts are left out.

    They come from the master's job cache, and not from the bus, where any minion can pose as
    another. They are no proof: a minion that acts as a syndic can have replies stored for others.
    """
    host_ids = sorted(hosts)
    if not host_ids:
        return {}
    with cloud.client() as local:
        job = local.pub(host_ids, fun, (), tgt_type="list", timeout=timeout_s)
        if not job or "jid" not in job:
            raise MasterError(f"the Salt master did not send {fun}: it refused the job")
        returns = _wait_for_returns(local, job["jid"], set(job.get("minions") or ()), timeout_s)
    return {host: one_line(returns[host].get("ret")) for host in host_ids if host in returns}


def _wait_for_returns(
    local: salt.client.LocalClient, jid: str, host_ids: set[str], timeout_s: float
) -> dict[str, Any]:
    end = time.monotonic() + timeout_s
    while True:
        returns: dict[str, Any] = local.get_cache_returns(jid) or {}
        if host_ids <= returns.keys() or time.monotonic() > end:
            return returns
        time.sleep(_EVERY_S)


def one_line(value: object) -> str:
    """Return a minion's reply as text that no terminal obeys."""
    return terminal.one_line(str(value), _LONGEST)
