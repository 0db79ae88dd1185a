"""The cached images of all hypervisors."""

from saltvirt.errors import MasterError
from saltvirt.fleet import deploy, find, minions


def listed(opts, settings, host):
    """Return the :class:`saltvirt.fleet.find.Survey` of the cached images."""
    targets = find.hosts(opts, settings, host=host)
    return find.survey(opts, settings, targets, "virt.images")


def pull(opts, settings, image, host, kwarg):
    """Have all hosts that answer fetch an image at once; return ``{host: digest}``."""
    found = listed(opts, settings, host)
    replies = minions.ask(opts, found.answers, "virt.image_pull", [image], kwarg,
                          timeout_s=settings.deploy_timeout_s)  # fmt: skip
    failed = {**found.reasons(), **{h: r.error or "it stopped answering"
                                    for h, r in replies.items() if not r.ok}}  # fmt: skip
    out = {h: reply.value for h, reply in sorted(replies.items()) if reply.ok}
    if failed:
        raise _failed(failed, {"pulled": out})
    return out


def build(opts, settings, source, name, host, given, say):
    """Have a host build a golden image; return ``{host: what it says}``."""
    (host,) = find.hosts(opts, settings, host=host)
    given = {key: value for key, value in given.items() if not key.startswith("__")}
    watch = deploy.watching("salt/virt/image_build", host, name, say)
    done = deploy.act(opts, settings, host, "virt.image_build", source, name, watch=watch,
                      kwarg={**given, "report": True})  # fmt: skip
    return {host: done}


def _said(reasons):
    return "; ".join(f"{host}: {why}" for host, why in sorted(reasons.items()))


def _failed(reasons, table):
    error = MasterError(_said(reasons))
    error.table = table
    return error


def prune(opts, settings, *, is_dry):
    """
    Remove from every host what no VM on any host uses; return ``{host: {digest: bytes}}``.

    Every host must answer: an image folder may be shared, and its VMs anywhere.
    """
    found = listed(opts, settings, None)
    silent = found.reasons()
    if silent:
        raise MasterError("nothing was removed, as not all hosts say what they use: "
                          f"{_said(silent)}")  # fmt: skip
    used = {digest for images in found.answers.values() for digest, one in images.items()
            if one["users"]}  # fmt: skip
    out, failed = {}, {}
    for host, images in sorted(found.answers.items()):
        free = sorted(set(images) - used)
        if not free:
            continue
        reply = minions.ask(opts, [host], "virt.image_prune", [free], {"dry_run": is_dry},
                            timeout_s=settings.timeout_s)[host]  # fmt: skip
        if reply.ok:
            out[host] = reply.value["removed"]
        else:
            failed[host] = reply.error or "it stopped answering"
    if failed:
        raise _failed(failed, {"removed": out})
    return out
