"""Ask minions, and wait no longer than agreed for those that are silent."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import salt.utils.args
from salt.exceptions import SaltClientError

from saltvirt.errors import MasterError
from saltvirt.fleet.cloud import Cloud

_FIND_JOB_S = 10
# Salt's return_retry_timer_max and return_retry_tries: a minion that is not heard says it again.
_RETURN_S = 30
# Called with the tag and the data of an event.
Watch = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """
    What one minion answered.

    missing
        It did not; ``error`` says whose time ran out, if it was :func:`order` that waited.
    is_late
        It said to the last that it was at it: the time that ran out was the caller's.
    """

    minion: str
    value: Any = None
    error: str | None = None
    missing: bool = False
    is_late: bool = False

    @property
    def ok(self) -> bool:
        """Whether the minion did what it was asked."""
        return not self.missing and self.error is None


def _publish(
    local: Any,
    targets: Iterable[str],
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    timeout_s: float,
) -> tuple[str, set[str]]:
    conditioned = salt.utils.args.condition_input(list(arg), kwarg)
    published = local.pub(
        list(targets), fun, conditioned, tgt_type="list", timeout=timeout_s, listen=True
    )
    if not published or "jid" not in published:
        why = (published or {}).get("error", "it refused the job")
        raise MasterError(f"the Salt master did not send {fun}: {why}")
    local.event.subscribe(f"salt/job/{published['jid']}/ret/")
    return published["jid"], set(published.get("minions") or ())


def _reply(data: Mapping[str, Any]) -> Reply:
    value, code = data.get("return"), data.get("retcode", 0)
    if code == 0 and data.get("success", True):
        return Reply(minion=data["id"], value=value)
    return Reply(minion=data["id"], value=value, error=_short(_said(value) or f"exit code {code}"))


def _said(value: object) -> str:
    """Return what a minion said went wrong: our functions in a dict, Salt's states in a list."""
    if isinstance(value, dict):
        value = value.get("error")
    lines = value if isinstance(value, list) else [value]
    return "\n".join(line for line in lines if isinstance(line, str))


def _short(error: str) -> str:
    """Return what went wrong without the words that Salt puts before it."""
    lines = [line for line in error.strip().splitlines() if line.strip()]
    text = lines[-1] if lines and lines[0].startswith("Traceback") else " ".join(lines)
    if text.startswith("Error running '"):
        text = text.split("': ", 1)[-1]
    return text.removeprefix("ERROR: ")


def ask(
    cloud: Cloud,
    targets: Iterable[str],
    fun: str,
    arg: Sequence[Any] = (),
    kwarg: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
) -> dict[str, Reply]:
    """
    Return ``{minion: Reply}`` of every target; one that is silent has ``Reply.missing``.

    So has one that is not a hypervisor of this master (any more): it is not asked.

    timeout_s
        How long a silent minion is waited for. Defaults to ``virt:timeout_s``.
    """
    members, wanted = cloud.members, set(targets)
    strangers = {t: why for t in wanted if (why := members.why_not(t))}
    timeout_s = cloud.settings.timeout_s if timeout_s is None else timeout_s
    replies = _asked(cloud, sorted(wanted - strangers.keys()), fun, arg, kwarg, timeout_s)
    left_out = {t: Reply(minion=t, missing=True, error=why) for t, why in strangers.items()}
    return dict(sorted({**replies, **left_out}.items()))


def _asked(
    cloud: Cloud,
    targets: Sequence[str],
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    timeout_s: float,
) -> dict[str, Reply]:
    if not targets:
        return {}
    with cloud.client() as local:
        jid, matched = _publish(local, targets, fun, arg, kwarg, timeout_s)
        replies: dict[str, Reply] = {}
        collect(local, jid, matched, replies, time.monotonic() + timeout_s)
    return {t: replies.get(t) or Reply(minion=t, missing=True) for t in targets}


def collect(
    local: Any,
    jid: str,
    wanted: Iterable[str],
    replies: dict[str, Reply],
    deadline: float,
    watch: Watch | None = None,
) -> None:
    """Take in answers until all wanted ones are there or the deadline has come."""
    prefix = f"salt/job/{jid}/ret/"
    tag = "salt/" if watch else prefix
    while set(wanted) - set(replies):
        left = deadline - time.monotonic()
        if left <= 0:
            return
        event = local.event.get_event(wait=min(left, 5), tag=tag, full=True)
        if event is None:
            continue
        if event["tag"].startswith(prefix):
            reply = _reply(event["data"])
            replies[reply.minion] = reply
        elif watch:
            watch(event["tag"], event["data"])


def order(
    cloud: Cloud,
    minion: str,
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    *,
    limit_s: float | None = None,
    watch: Watch | None = None,
) -> Reply:
    """
    Let one minion do something long, for as long as it says that it is working on it.

    limit_s
        How long at most. Defaults to ``virt:deploy_timeout_s``.
    watch
        Called with the tag and data of every other event meanwhile.

    Returns the :class:`Reply`; who is not a hypervisor of this master gets no orders, and has
    ``Reply.missing``. What has not ended after ``limit_s`` is told to end, and so is what is under
    way when an exception leaves this.
    """
    why = cloud.members.why_not(minion)
    if why is not None:
        return Reply(minion=minion, missing=True, error=why)
    limit_s = limit_s or cloud.settings.deploy_timeout_s
    return _ordered(cloud, minion, fun, arg, kwarg, limit_s, watch)


def _ordered(
    cloud: Cloud,
    minion: str,
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    limit_s: float,
    watch: Watch | None,
) -> Reply:
    timeout_s = cloud.settings.timeout_s
    with cloud.client() as local:
        local.event.subscribe("salt/virt/")
        jid, matched = _publish(local, [minion], fun, arg, kwarg, timeout_s)
        replies: dict[str, Reply] = {}
        end = time.monotonic() + limit_s
        is_at_it = True if matched else None
        try:
            while is_at_it and time.monotonic() < end:
                collect(local, jid, matched, replies, time.monotonic() + timeout_s, watch)
                is_at_it = None if replies else _is_running(cloud, minion, jid)
            if not replies:
                late_s = _RETURN_S if is_at_it is False else 1
                collect(local, jid, matched, replies, time.monotonic() + late_s, watch)
        except BaseException:
            _end_job(local, minion, jid)
            raise
        if not replies and time.monotonic() >= end:
            _end_job(local, minion, jid)
    return replies.get(minion) or _unheard(minion, fun, is_at_it, limit_s)


def _unheard(minion: str, fun: str, is_at_it: bool | None, limit_s: float) -> Reply:
    """Return the reply of a minion that gave none; ``is_at_it`` is None if it is silent."""
    why = f"{minion} does not answer; see: salt {minion} test.ping"
    if is_at_it:
        why = f"{minion} was still at {fun} after {limit_s} s, which is our limit; told it to end"
    elif is_at_it is False:
        why = f"{minion} has ended {fun}, but its answer did not come within {_RETURN_S} s"
    return Reply(minion=minion, missing=True, is_late=bool(is_at_it), error=why)


def _is_running(cloud: Cloud, minion: str, jid: str) -> bool | None:
    """Return whether a minion says that it is at a job; None if it is silent, asked twice."""
    for _time in range(2):
        found = ask(cloud, [minion], "saltutil.find_job", [jid], timeout_s=_FIND_JOB_S)[minion]
        if not found.missing:
            return bool(found.ok and found.value)
    return None


def _end_job(local: Any, minion: str, jid: str) -> None:
    # The master may be what failed; then nobody is left to be told.
    with contextlib.suppress(SaltClientError):
        arg = salt.utils.args.condition_input([jid], None)
        local.pub([minion], "saltutil.term_job", arg, tgt_type="list")


def wait_for_start(cloud: Cloud, minion: str, *, wait_s: float, every_s: float = 5) -> float | None:
    """
    Return after how many seconds a new minion answers, or None if it does not within ``wait_s``.

    It is asked when it says that it started, and every few seconds in case that was missed.
    """
    begin = time.monotonic()
    with cloud.client() as local:
        while time.monotonic() - begin < wait_s:
            tag = f"salt/minion/{minion}/start"
            local.event.get_event(wait=every_s, tag=tag, full=True)
            reply = _asked(cloud, [minion], "test.ping", (), None, every_s)[minion]
            if reply.ok:
                return round(time.monotonic() - begin, 1)
    return None
