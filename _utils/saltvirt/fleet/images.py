"""The cached images of all hypervisors."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt import locks, terminal, wire
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
    limit_s, begun = cloud.settings.deploy_timeout_s, time.monotonic()
    asking = _counting(cloud, "Fetched", found.answers)
    replies = minions.ask(
        asking, found.answers, _PULL, [image], kwarg, timeout_s=limit_s, follow=True
    )
    late = "it neither answers nor says that it is at it; call again when it is back"
    if time.monotonic() - begun >= limit_s:
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
    host = inventory.one(cloud, host)
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
    if is_dry:
        asking = _counting(cloud, "Searched", having)
        out, failed = _pruned(asking, having, unused, {"dry_run": True})
    else:
        with _alone(cloud):
            out, failed = _removed(cloud, found.answers, having, unused)
    removed = {host: one.removed for host, one in out.items()}
    if failed:
        raise _failed(failed, {"removed": removed})
    return removed


@contextmanager
def _alone(cloud: Cloud) -> Iterator[None]:
    """Raise MasterError if images are being removed: it would end what another has begun anew."""
    path = Path(cloud.opts["cachedir"]) / "salt-virt" / "image-prune.lock"
    with locks.held(path, wait=False) as lock:
        if lock is None:
            raise MasterError(
                "another virt.image_prune is at work on this master; try again when that is over"
            )
        yield


def _removed(
    cloud: Cloud, hosts: Collection[str], having: Collection[str], unused: list[str]
) -> tuple[dict[str, Pruned], dict[str, str]]:
    """
    Have hosts remove images; return what they say, and why others do not.

    Since all were asked, one may have made a disk, and another have its image in a folder of both.
    So they begin, all look once more, and what is used by now is kept.
    """
    begun: dict[str, Pruned] = {}
    # Whoever was told to begin may have, until it is known who has.
    hosts_begun, unused_still = [*having], list[str]()
    try:
        begun, failed = _pruned(cloud, having, unused, {"step": "begin"})
        hosts_begun = [host for host, one in begun.items() if one.begun]
        asked = sorted({*unused} & {digest for one in begun.values() for digest in one.begun})
        looked, unlooked = _pruned(cloud, hosts, asked, {"step": "look"}) if asked else ({}, {})
        if not unlooked:
            kept = {digest for one in looked.values() for digest in one.kept}
            unused_still = [digest for digest in asked if digest not in kept]
    finally:
        asking = _counting(cloud, "Removed", hosts_begun)
        out, not_ended = _pruned(asking, hosts_begun, unused_still, {"step": "end"})
    return {**begun, **out}, {**unlooked, **failed, **not_ended}


def _pruned(
    cloud: Cloud, hosts: Collection[str], digests: list[str], kwarg: Mapping[str, Any]
) -> tuple[dict[str, Pruned], dict[str, str]]:
    late = f"no answer within {cloud.settings.timeout_s} s (virt:timeout_s)"
    replies = minions.ask(cloud, hosts, _PRUNE, [digests], kwarg) if hosts else {}
    return _read(replies, _PRUNE, Pruned, late)
