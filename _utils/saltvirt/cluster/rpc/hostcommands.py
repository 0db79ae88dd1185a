"""Have one host run a function, wait as long as the host works on it, and show progress."""

import logging
from collections.abc import Mapping
from typing import Any

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.core import terminal
from saltvirt.core.crypto import signed
from saltvirt.core.errors import VirtError

log = logging.getLogger(__name__)
_MAX_LINE_CHARS = 400
_MAX_WARNINGS, _MAX_WARNING_CHARS = 5, 400


class HostCommandFailed(VirtError):
    """
    A host did not do what it was asked; the message has the host's reason.

    kind
        The class of the host's error; empty if unknown.
    """

    def __init__(self, message: object = "", *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class HostUnresponsive(HostCommandFailed):
    """A host has not reported the outcome; its job may still run."""


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
    """Have a host run a function; return its answer, or raise an error with its reason."""
    reply = minions.order(
        cloud, host, fun, list(args), kwarg, limit_s=limit_s, watch=watch, order_id=order_id
    )
    return require_value(reply, limit_s)


def require_value(reply: minions.Reply, limit_s: float | None = None) -> Any:
    """Return the answer in a host's reply, or raise an error with the host's reason."""
    if reply.is_missing:
        raise HostUnresponsive(timeout_message(reply, limit_s))
    if not reply.ok:
        raise HostCommandFailed(f"{reply.minion}: {reply.reason}", kind=reply.kind)
    return reply.value


def timeout_message(reply: minions.Reply, limit_s: float | None) -> str:
    """Return a missing reply's error; name the option if the master's own limit ran out."""
    is_option = reply.is_late and limit_s is None
    return f"{reply.reason}{' (virt:deploy_timeout_s)' if is_option else ''}"


def warnings(answer: object) -> list[str]:
    """Return the warnings in a host's answer, which is True if there are none."""
    entries = answer.get("warnings") if isinstance(answer, dict) else None
    lines = entries if isinstance(entries, list) else []
    texts = [line for line in lines[:_MAX_WARNINGS] if isinstance(line, str)]
    return [terminal.one_line(line, _MAX_WARNING_CHARS) for line in texts]


def _read_signed_event(cloud: Cloud, host: str, tag: str, packed: object) -> Mapping[str, Any]:
    """
    Return an event's data, empty if it is no mapping.

    Any minion fires any tag, so :class:`signed.NotSigned` or :class:`signed.NotUnderstood` is
    raised if this host has not signed the data.
    """
    public = minionkeys.read_accepted(cloud.opts, host) or ""
    value = signed.unpack(packed, public, minion=host, about=tag).value
    return value if isinstance(value, dict) else {}


def _one_line(value: Any) -> Any:
    """Return None or a number unchanged, and any other value as one line of text."""
    if value is None or isinstance(value, int | float):
        return value
    return " ".join(str(value).split())[:_MAX_LINE_CHARS]


def progress_watcher(cloud: Cloud, progress_tag: str, host: str, name: str) -> minions.Watch:
    """Return a watcher that shows a host's progress events of one tag about one VM."""
    passed_over = 0

    def watch(tag: str, event: Mapping[str, Any]) -> None:
        nonlocal passed_over
        if tag != progress_tag or event.get("id") != host:
            return
        try:
            data = _read_signed_event(cloud, host, tag, event.get("data"))
        except (signed.NotSigned, signed.NotUnderstood) as reason:
            # Any minion can fire thousands of these: only the first one is a warning.
            level = logging.DEBUG if passed_over else logging.WARNING
            passed_over += 1
            log.log(level, "%s: passed over, in the name of %s: %s", tag, host, reason)
            return
        if data.get("name") == name:
            # The host's values must not break the line.
            fields = {key: _one_line(value) for key, value in data.items()}
            cloud.progress(str(fields.pop("stage", "")), **fields)

    return watch
