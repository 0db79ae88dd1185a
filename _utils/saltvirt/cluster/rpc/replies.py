"""The hosts' replies to one job; only signed answers count."""

import logging
import shlex
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.crypto import signed
from saltvirt.core.errors import FunctionMissing
from saltvirt.core.findings import NO_ANSWER
from saltvirt.core.salt import compat

log = logging.getLogger(__name__)
_MAX_ERROR_CHARS = 4000
# From _MANY hosts on, progress shows the number of replies every _SHOW_EVERY_S seconds.
_MANY, _SHOW_EVERY_S = 20, 3
# Salt's reply on a host without this project's code: expected, so it is no warning in the log.
_NO_CODE = "'virt.signed' is not available"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """
    One minion's reply.

    is_missing
        No valid answer came; ``error`` is the reason, if known: a timeout of
        :func:`saltvirt.cluster.rpc.minions.order`, an unsigned answer, or a minion that is no
        hypervisor.
    is_late
        The minion was still working when the caller's time ran out.
    kind
        The class of the host's error; empty if unknown.
    """

    minion: str
    value: Any = None
    error: str | None = None
    is_missing: bool = False
    is_late: bool = False
    kind: str = ""

    @property
    def ok(self) -> bool:
        """Whether the minion answered without an error."""
        return not self.is_missing and self.error is None

    @property
    def reason(self) -> str:
        """Why there is no usable answer; empty if there is one."""
        return "" if self.ok else self.error or NO_ANSWER


class ReplyCollector:
    """The signed replies to one job, as they come."""

    def __init__(self, cloud: Cloud, jid: str, hosts: Iterable[str]) -> None:
        self.jid, self._cloud, self._store = jid, cloud, compat.KeyStore(cloud.opts)
        self._shown_at_s = time.monotonic()
        self.hosts = set(hosts)
        # The hosts still waited for; replies of others of these hosts count, too.
        self.awaited = set(self.hosts)
        self.replies: dict[str, Reply] = {}
        # Hosts with a signed but unreadable answer: the outcome of their job is unknown.
        self.unreadable: set[str] = set()
        self._unsigned: dict[str, str] = {}
        self._public_keys: dict[str, str] = {}

    def pending(self) -> set[str]:
        """Return the awaited hosts without a reply."""
        return self.awaited.difference(self.replies)

    def accept(self, data: Mapping[str, Any]) -> None:
        """Accept an answer, if the host signed it."""
        host = data.get("id")
        if not isinstance(host, str) or host not in self.hosts or host in self.replies:
            return
        # Read once, so that a flood of forged answers costs little.
        if host not in self._public_keys:
            self._public_keys[host] = minionkeys.read_accepted_from(self._store, host) or ""
        try:
            answer = signed.unpack(
                data.get("return"), self._public_keys[host], minion=host, about=self.jid
            )
        except signed.NotSigned as reason:
            # The event's tag stays out of the log: its sender chose the text.
            if host not in self._unsigned:
                payload = data.get("return")
                is_bare = isinstance(payload, str) and payload.startswith(_NO_CODE)
                level = logging.INFO if is_bare else logging.WARNING
                log.log(level, "job %s: passed over, in the name of %s: %s", self.jid, host, reason)
            self._unsigned[host] = _unsigned_message(host, reason)
        except signed.NotUnderstood as reason:
            self.unreadable.add(host)
            self._add(Reply(minion=host, error=f"its answer is not understood: {reason}"))
        else:
            self._add(reply_from_answer(answer))

    def _add(self, reply: Reply) -> None:
        self.replies[reply.minion] = reply
        if self._cloud.on_reply is not None:
            self._cloud.on_reply(reply)
        else:
            self._show_count()

    def _show_count(self) -> None:
        count, now = len(self.hosts), time.monotonic()
        if count >= _MANY and now - self._shown_at_s >= _SHOW_EVERY_S and self.pending():
            self._shown_at_s = now
            self._cloud.progress("Asking", detail=f"{len(self.replies):,} of {count:,} answered")

    def reply(self, host: str) -> Reply:
        """Return a host's reply; a missing one has an error if an unsigned answer came."""
        unsigned_reason = self._unsigned.get(host)
        return self.replies.get(host) or Reply(minion=host, is_missing=True, error=unsigned_reason)


def _unsigned_message(host: str, reason: signed.NotSigned) -> str:
    if isinstance(reason, signed.Cut):
        return (
            f"{host} sent no signed answer ({reason}): raise that option in its "
            "minion's configuration and in the master's, and restart both"
        )
    name = shlex.quote(host)
    return (
        f"{host} sent no signed answer ({reason}): it is not set up yet (salt {name} state.apply "
        f"hypervisor), its code is of an earlier release (salt {name} saltutil.sync_all), its "
        f"libvirt has no Python module (salt {name} virt.vm_state says so), or another minion "
        "poses as it"
    )


def reply_from_answer(answer: signed.SignedAnswer) -> Reply:
    """Return the reply for a host's signed answer."""
    if answer.retcode == 0 and answer.why is None:
        return Reply(minion=answer.minion, value=answer.value)
    error = answer.why or _error_text(answer.value) or f"exit code {answer.retcode}"
    kind = answer.kind or _error_kind(answer.value)
    if kind == FunctionMissing.__name__:
        host = answer.minion
        error = (
            f"{answer.fun} is not available: {host} has an older version of Salt Virt; run: salt "
            f"{shlex.quote(host)} saltutil.sync_all"
        )
    return Reply(minion=answer.minion, value=answer.value, error=shorten_error(error), kind=kind)


def _error_kind(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def _error_text(value: object) -> str:
    """Return a minion's error: this project's functions use a dict, Salt's states a list."""
    if isinstance(value, dict):
        value = value.get("error")
    lines = value if isinstance(value, list) else [value]
    return "\n".join(line for line in lines if isinstance(line, str))


def shorten_error(error: str) -> str:
    """Return an error without Salt's prefixes, at most ``_MAX_ERROR_CHARS`` long."""
    lines = [line for line in error.strip().splitlines() if line.strip()]
    text = lines[-1] if lines and lines[0].startswith("Traceback") else " ".join(lines)
    if text.startswith("Error running '"):
        text = text.split("': ", 1)[-1]
    text = text.removeprefix("ERROR: ")
    return text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]} …"
