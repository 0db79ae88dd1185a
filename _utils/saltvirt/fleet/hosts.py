"""Have one host do something, wait as long as it is at it, and show how far it is."""

from collections.abc import Mapping
from typing import Any

from saltvirt.errors import VirtError
from saltvirt.fleet import minions
from saltvirt.fleet.cloud import Cloud


class DeployError(VirtError):
    """A host could not build the VM; the message is the host's own, with its name."""


class HostSilent(DeployError):
    """A host has not said how it ended, and what it was asked to do may go on."""


def act(
    cloud: Cloud,
    host: str,
    fun: str,
    *args: Any,
    kwarg: Mapping[str, Any] | None = None,
    watch: minions.Watch | None = None,
    limit_s: float | None = None,
) -> Any:
    """Have a host do something, with a VM mostly, or raise with the host's own words."""
    reply = minions.order(cloud, host, fun, list(args), kwarg, limit_s=limit_s, watch=watch)
    if reply.missing:
        raise HostSilent(whose_time(reply, limit_s))
    if not reply.ok:
        raise DeployError(f"{host}: {reply.error}")
    return reply.value


def whose_time(reply: minions.Reply, limit_s: float | None) -> str:
    """Return whose time ran out: a host's that is silent, or ours."""
    is_option = reply.is_late and limit_s is None
    return f"{reply.error}{' (virt:deploy_timeout_s)' if is_option else ''}"


def watching(cloud: Cloud, wanted: str, host: str, name: str) -> minions.Watch:
    """Return what shows the progress events of one tag that a host fires about a name."""

    def watch(tag: str, event: Mapping[str, Any]) -> None:
        # Any minion may fire any tag: it is shown, and nothing is decided by it.
        data = event.get("data") or {}
        if tag == wanted and event.get("id") == host and data.get("name") == name:
            cloud.progress(
                str(data.get("stage")), **{k: v for k, v in data.items() if k != "stage"}
            )

    return watch
