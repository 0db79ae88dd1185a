"""The cached images of all hypervisors."""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import terminal, wire
from saltvirt.errors import MasterError
from saltvirt.fleet import inventory, minions, progress
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import act, watching
from saltvirt.placement.answers import Pruned, Words

# How often it is said how many are done, in seconds.
_SAY_S = 1
_PRUNE, _PULL, _BUILD = "virt.image_prune", "virt.image_pull", "virt.image_build"


def listed(cloud: Cloud, host: str | None) -> inventory.Survey:
    """Return the :class:`saltvirt.fleet.inventory.Survey` of the cached images."""
    targets = inventory.hosts(cloud, host=host)
    cloud.progress("Searching", detail=terminal.counted(len(targets), "hypervisor"))
    return inventory.survey(cloud, targets, "virt.images")


def shown(cloud: Cloud, host: str | None) -> dict[str, Any]:
    """Return ``{host: images}``, with who is silent; raise MasterError if no host answers."""
    found = listed(cloud, host)
    if not found.answers:
        raise found.silence()
    return {**found.said, **found.beside()}


def pull(
    cloud: Cloud,
    image: str,
    host: str | None,
    kwarg: Mapping[str, Any],
) -> dict[str, str]:
    """Have all hosts that answer fetch an image at once; return ``{host: digest}``."""
    found = listed(cloud, host)
    limit_s = cloud.settings.deploy_timeout_s
    asking = _counting(cloud, "Fetched", found.answers)
    replies = minions.ask(asking, found.answers, _PULL, [image], kwarg, timeout_s=limit_s)
    late = f"no answer within {limit_s} s (virt:deploy_timeout_s)"
    out, failed = _read(replies, _PULL, Words, late)
    failed = {**found.reasons(), **failed}
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


def _counting(cloud: Cloud, what: str, hosts: Collection[str]) -> Cloud:
    """Return the cloud of a question that says, as answers come, how many hosts are done."""
    pace, heard, said = progress.Pace(len(hosts)), set[str](), [0.0]

    def count(reply: minions.Reply) -> None:
        heard.add(reply.minion)
        now = time.monotonic()
        if len(heard) == len(hosts) or now - said[0] >= _SAY_S:
            said[0] = now
            cloud.progress(what, detail=pace.text(len(heard), "hypervisors"))

    return replace(cloud, heard=count)


def _read(
    replies: Mapping[str, minions.Reply], fun: str, shape: Any, late: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what hosts answered, and why others did not; ``late`` if they said nothing."""
    out, failed = {}, {}
    for host, reply in sorted(replies.items()):
        if not reply.ok:
            failed[host] = reply.error or late
            continue
        try:
            out[host] = wire.read(host, fun, shape, reply.value)
        except wire.BadAnswer as error:
            failed[host] = str(error)
    return out, failed


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
    free = {host: set(images) - used for host, images in found.answers.items()}
    having = [host for host, digests in free.items() if digests]
    # One question to all, at once: what a host does not have, or uses by now, it passes over.
    unused = sorted(set[str]().union(*free.values()))
    asking = _counting(cloud, "Searched" if is_dry else "Removed", having)
    replies = minions.ask(asking, having, _PRUNE, [unused], {"dry_run": is_dry})
    late = f"no answer within {cloud.settings.timeout_s} s (virt:timeout_s)"
    out, failed = _read(replies, _PRUNE, Pruned, late)
    removed = {host: one.removed for host, one in out.items()}
    if failed:
        raise _failed(failed, {"removed": removed})
    return removed
