"""Have one host do something, wait as long as it is at it, and show how far it is."""

import logging
from collections.abc import Mapping
from typing import Any

from saltvirt import signed, terminal
from saltvirt.errors import VirtError
from saltvirt.fleet import keys, minions
from saltvirt.fleet.cloud import Cloud

log = logging.getLogger(__name__)
# Letters of one line of progress.
_MAX_LINE_CHARS = 400
_MAX_WARNINGS, _MAX_WARNING_CHARS = 5, 400


class HostCommandFailed(VirtError):
    """A host could not build the VM; the message is the host's own, with its name."""


class HostUnresponsive(HostCommandFailed):
    """A host has not said how it ended, and what it was asked to do may go on."""


def act(
    cloud: Cloud,
    host: str,
    fun: str,
    *args: Any,
    kwarg: Mapping[str, Any] | None = None,
    watch: minions.Watch | None = None,
    limit_s: float | None = None,
    order_id: str | None = None,
) -> Any:
    """Have a host do something, with a VM mostly, or raise with the host's own words."""
    reply = minions.order(
        cloud, host, fun, list(args), kwarg, limit_s=limit_s, watch=watch, order_id=order_id
    )
    if reply.missing:
        raise HostUnresponsive(timeout_message(reply, limit_s))
    if not reply.ok:
        raise HostCommandFailed(f"{host}: {reply.error}")
    return reply.value


def timeout_message(reply: minions.Reply, limit_s: float | None) -> str:
    """Return whose time ran out: a host's that is silent, or ours."""
    is_option = reply.is_late and limit_s is None
    return f"{reply.error}{' (virt:deploy_timeout_s)' if is_option else ''}"


def warnings(answer: object) -> list[str]:
    """Return what a host warns of in its answer, which is True where there is nothing."""
    entries = answer.get("warnings") if isinstance(answer, dict) else None
    lines = entries if isinstance(entries, list) else []
    texts = [line for line in lines[:_MAX_WARNINGS] if isinstance(line, str)]
    return [terminal.one_line(line, _MAX_WARNING_CHARS) for line in texts]


def _read_signed_event(cloud: Cloud, host: str, tag: str, packed: object) -> Mapping[str, Any]:
    """
    Return an event's data, empty if the host's signed answer is a text or a list.

    Raises :class:`signed.NotSigned` or :class:`signed.NotUnderstood` if this host has not signed
    it: any minion fires any tag.
    """
    public = keys.read_accepted(cloud.opts, host) or ""
    value = signed.unpack(packed, public, minion=host, about=tag).value
    return value if isinstance(value, dict) else {}


def _one_line(value: Any) -> Any:
    """Return a number as it is, and everything else as the text of a line of progress."""
    if value is None or isinstance(value, int | float):
        return value
    return " ".join(str(value).split())[:_MAX_LINE_CHARS]


def progress_watcher(cloud: Cloud, progress_tag: str, host: str, name: str) -> minions.Watch:
    """Return what shows the progress events of one tag that a host fires about a name."""
    passed_over = 0

    def watch(tag: str, event: Mapping[str, Any]) -> None:
        nonlocal passed_over
        if tag != progress_tag or event.get("id") != host:
            return
        try:
            data = _read_signed_event(cloud, host, tag, event.get("data"))
        except (signed.NotSigned, signed.NotUnderstood) as reason:
            # Any minion can fire thousands of them: the first is said, once in a command.
            level = logging.DEBUG if passed_over else logging.WARNING
            passed_over += 1
            log.log(level, "%s: passed over, in the name of %s: %s", tag, host, reason)
            return
        if data.get("name") == name:
            # One line each, whatever the host says.
            fields = {key: _one_line(value) for key, value in data.items()}
            cloud.progress(str(fields.pop("stage", "")), **fields)

    return watch
