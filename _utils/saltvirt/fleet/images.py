"""The cached images of all hypervisors."""

from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.config import MasterSettings
from saltvirt.errors import MasterError
from saltvirt.fleet import inventory, minions
from saltvirt.fleet.hosts import act, watching


def listed(opts: Mapping[str, Any], settings: MasterSettings, host: str | None) -> inventory.Survey:
    """Return the :class:`saltvirt.fleet.inventory.Survey` of the cached images."""
    targets = inventory.hosts(opts, settings, host=host)
    return inventory.survey(opts, settings, targets, "virt.images")


def pull(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    image: str,
    host: str | None,
    kwarg: Mapping[str, Any],
) -> dict[str, str]:
    """Have all hosts that answer fetch an image at once; return ``{host: digest}``."""
    found = listed(opts, settings, host)
    replies = minions.ask(
        opts, found.answers, "virt.image_pull", [image], kwarg, timeout_s=settings.deploy_timeout_s
    )
    late = f"no answer within {settings.deploy_timeout_s} s (virt:deploy_timeout_s)"
    failed = {
        **found.reasons(),
        **{h: r.error or late for h, r in replies.items() if not r.ok},
    }
    out = {h: reply.value for h, reply in sorted(replies.items()) if reply.ok}
    if failed:
        raise _failed(failed, {"pulled": out})
    return out


def build(
    opts: Mapping[str, Any],
    settings: MasterSettings,
    source: str,
    name: str,
    host: str | None,
    given: Mapping[str, Any],
    say: Callable[..., None],
) -> dict[str, Any]:
    """Have a host build a golden image; return ``{host: what it says}``."""
    (host,) = inventory.hosts(opts, settings, host=host)
    given = {key: value for key, value in given.items() if not key.startswith("__")}
    watch = watching("salt/virt/image_build", host, name, say)
    done = act(
        opts,
        settings,
        host,
        "virt.image_build",
        source,
        name,
        watch=watch,
        kwarg={**given, "report": True},
    )
    return {host: done}


def _said(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{host}: {why}" for host, why in sorted(reasons.items()))


def _failed(reasons: Mapping[str, str], table: Mapping[str, Any]) -> MasterError:
    error = MasterError(_said(reasons))
    error.table = table
    return error


def prune(
    opts: Mapping[str, Any], settings: MasterSettings, *, is_dry: bool
) -> dict[str, dict[str, int]]:
    """
    Remove from every host what no VM on any host uses; return ``{host: {digest: bytes}}``.

    Every host must answer: an image folder may be shared, and its VMs anywhere.
    """
    found = listed(opts, settings, None)
    silent = found.reasons()
    if silent:
        raise MasterError(
            "nothing was removed, as not all hosts say what they use: " f"{_said(silent)}"
        )
    used = {
        digest
        for images in found.answers.values()
        for digest, one in images.items()
        if one["users"]
    }
    out, failed = {}, {}
    for host, images in sorted(found.answers.items()):
        free = sorted(set(images) - used)
        if not free:
            continue
        reply = minions.ask(
            opts,
            [host],
            "virt.image_prune",
            [free],
            {"dry_run": is_dry},
            timeout_s=settings.timeout_s,
        )[host]
        if reply.ok:
            out[host] = reply.value["removed"]
        else:
            failed[host] = (
                reply.error or f"no answer within {settings.timeout_s} s (virt:timeout_s)"
            )
    if failed:
        raise _failed(failed, {"removed": out})
    return out
