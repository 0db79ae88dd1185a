"""The cached images of all hypervisors."""

from collections.abc import Mapping
from typing import Any

from saltvirt import wire
from saltvirt.errors import MasterError
from saltvirt.fleet import inventory, minions
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act, watching
from saltvirt.placement.answers import Pruned, Words

_PRUNE, _PULL, _BUILD = "virt.image_prune", "virt.image_pull", "virt.image_build"


def listed(cloud: Cloud, host: str | None) -> inventory.Survey:
    """Return the :class:`saltvirt.fleet.inventory.Survey` of the cached images."""
    targets = inventory.hosts(cloud, host=host)
    return inventory.survey(cloud, targets, "virt.images")


def pull(
    cloud: Cloud,
    image: str,
    host: str | None,
    kwarg: Mapping[str, Any],
) -> dict[str, str]:
    """Have all hosts that answer fetch an image at once; return ``{host: digest}``."""
    found = listed(cloud, host)
    limit_s = cloud.settings.deploy_timeout_s
    replies = minions.ask(cloud, found.answers, _PULL, [image], kwarg, timeout_s=limit_s)
    late = f"no answer within {limit_s} s (virt:deploy_timeout_s)"
    failed = {
        **found.reasons(),
        **{h: r.error or late for h, r in replies.items() if not r.ok},
    }
    out = {}
    for one, reply in sorted(replies.items()):
        if reply.ok:
            try:
                out[one] = wire.read(one, _PULL, Words, reply.value)
            except wire.BadAnswer as error:
                failed[one] = str(error)
    if failed:
        raise _failed(failed, {"pulled": out})
    return out


def build(
    cloud: Cloud,
    source: str,
    name: str,
    host: str | None,
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Have a host build a golden image; return ``{host: what it says}``."""
    (host,) = inventory.hosts(cloud, host=host)
    given = {key: value for key, value in given.items() if not key.startswith("__")}
    watch = watching(cloud, "salt/virt/image_build", host, name)
    done = act(
        cloud,
        host,
        "virt.image_build",
        source,
        name,
        watch=watch,
        kwarg={**given, "report": True},
    )
    return {host: wire.read(host, _BUILD, dict[str, Any], done)}


def _said(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{host}: {why}" for host, why in sorted(reasons.items()))


def _failed(reasons: Mapping[str, str], table: Mapping[str, Any]) -> MasterError:
    error = MasterError(_said(reasons))
    error.table = table
    return error


def prune(cloud: Cloud, *, is_dry: bool) -> dict[str, dict[str, int]]:
    """
    Remove from every host what no VM on any host uses; return ``{host: {digest: bytes}}``.

    Every host must answer: an image folder may be shared, and its VMs anywhere.
    """
    found = listed(cloud, None)
    silent = found.reasons()
    if silent:
        raise MasterError(
            "nothing was removed, as not all hosts say what they use: " f"{_said(silent)}"
        )
    used = {
        digest for images in found.answers.values() for digest, one in images.items() if one.users
    }
    out, failed = {}, {}
    for host, images in sorted(found.answers.items()):
        free = sorted(set(images) - used)
        if not free:
            continue
        reply = minions.ask(cloud, [host], _PRUNE, [free], {"dry_run": is_dry})[host]
        if reply.ok:
            try:
                out[host] = wire.read(host, _PRUNE, Pruned, reply.value).removed
            except wire.BadAnswer as error:
                failed[host] = str(error)
        else:
            late = f"no answer within {cloud.settings.timeout_s} s (virt:timeout_s)"
            failed[host] = reply.error or late
    if failed:
        raise _failed(failed, {"removed": out})
    return out
