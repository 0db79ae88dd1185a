"""
Ask minions, and wait no longer than agreed for those that are silent.

Hypervisors sign what they answer (:mod:`saltvirt.signed`): what others say in their name is passed
over, and logged.
"""

import contextlib
import json
import shlex
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import salt.utils.args
from salt.exceptions import SaltClientError

from saltvirt.errors import VirtError
from saltvirt.fleet import bus, keys, publishing
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hearing import Reply as Reply
from saltvirt.fleet.hearing import ReplyCollector
from saltvirt.fleet.publishing import publish as publish
from saltvirt.fleet.silence import Wait, describe_waiting

_FIND_JOB_S = 10
# Salt's return_retry_timer_max and return_retry_tries: a minion that is not heard says it again.
_RETURN_S = 30
# How long what came in time is still read after a deadline: others may have fired much before it.
_DRAIN_S = 10
# Of those that are waited for briefly: how long nobody has said anything when they are asked
# whether they are at it, and when those that do not say so are given up, unless nobody has said
# anything at all. How often that is looked at. Two seconds are what a silent host may cost, and
# what comes after takes some of them.
_ASK_S, _QUIET_S, _STEP_S = 0.4, 1.4, 0.1
# How long nobody is asked that as long as nobody has answered: it is work for all of them, which
# delays the first answers of many further.
_FIRST_S = 3
# So many who answered last are asked with them.
_ENDED = 3
# So long it is not said who is waited for.
_PROGRESS_AFTER_S = 10
_SIGNED = "virt.signed"
# What a host says of an order that was given up; see saltvirt.ops.ordered.
REFUSED, RUNNING = "refused", "running"
# Called with the tag and the data of an event.
Watch = Callable[[str, Mapping[str, Any]], None]


def ask(
    cloud: Cloud,
    targets: Iterable[str],
    fun: str,
    arg: Sequence[Any] = (),
    kwarg: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
    wait: Wait | None = None,
    follow: bool = False,
) -> dict[str, Reply]:
    """
    Return ``{minion: Reply}`` of every target; one that is silent has ``Reply.missing``.

    So has one that is not a hypervisor of this master (any more): it is not asked.

    timeout_s
        How long a silent minion is waited for. Defaults to ``virt:timeout_s``.
    wait
        Who is waited for less than that. Defaults to nobody.
    follow
        For what takes long: whoever does not say, asked each ``virt:timeout_s``, that it is at it
        is not waited for on.
    """
    members, requested_hosts = cloud.members, set(targets)
    strangers = {host: reason for host in requested_hosts if (reason := members.why_not(host))}
    timeout_s = cloud.settings.timeout_s if timeout_s is None else timeout_s
    call = {"fun": fun, "arg": list(arg), "kwarg": dict(kwarg or {})}
    asked_hosts = sorted(requested_hosts - strangers.keys())
    replies = _ask_hosts(cloud, asked_hosts, call, timeout_s, wait, follow=follow)
    left_out = {
        host: Reply(minion=host, missing=True, error=reason) for host, reason in strangers.items()
    }
    return dict(sorted({**replies, **left_out}.items()))


def _ask_hosts(
    cloud: Cloud,
    targets: Sequence[str],
    call: Mapping[str, Any],
    timeout_s: float,
    wait: Wait | None,
    *,
    follow: bool,
) -> dict[str, Reply]:
    if not targets:
        return {}
    with cloud.client() as local:
        target = publishing.target(cloud, targets)
        # Read here, by nobody else: a thousand answers are not to leave as many files for a day.
        # A host of an earlier release takes no notice of it.
        kwarg = {"small": True}
        jid, matched = publish(local, target, _SIGNED, [call], kwarg, timeout_s, nocache=True)
        hosts = matched.intersection(targets)
        hearing, end = ReplyCollector(cloud, jid, hosts), time.monotonic() + timeout_s
        if wait is not None:
            hearing.awaited -= wait.not_at_all
            _until_quiet(cloud, local, hearing, wait.briefly, end)
        if follow:
            _follow_job(local, cloud, hearing, end)
        collect(local, hearing, min(end, time.monotonic() + _PROGRESS_AFTER_S))
        if time.monotonic() < end and hearing.left():
            cloud.progress(
                "Waiting", detail=describe_waiting(hearing.left(), end - time.monotonic())
            )
            collect(local, hearing, end)
    return {t: hearing.reply(t) for t in targets}


def _follow_job(local: Any, cloud: Cloud, hearing: ReplyCollector, end: float) -> None:
    """Take in answers; who twice does not say, asked for it, that it is at it is given up."""
    # What counts the answers to a job does not count these.
    quiet_cloud, idle_before = replace(cloud, heard=lambda _reply: None), set[str]()
    while True:
        collect(local, hearing, min(end, time.monotonic() + cloud.settings.timeout_s))
        pending = hearing.left()
        if not pending or time.monotonic() >= end:
            return
        replies = ask(
            quiet_cloud, pending, "saltutil.find_job", [hearing.jid], timeout_s=_FIND_JOB_S
        )
        idle_hosts = {host for host, reply in replies.items() if not (reply.ok and reply.value)}
        hearing.awaited -= idle_hosts & idle_before
        idle_before = idle_hosts


class _JobStatus:
    """
    Which hosts say, asked for it, that they are at a job: they are alive, and no more.

    They do not sign that, as Salt itself answers, which is quicker where a host is slow. Whoever
    says it in a host's name has that host waited for as long as if nobody had asked. Some who have
    answered the job are asked too: once they have said so, others could have.
    """

    def __init__(self, cloud: Cloud, local: Any, hearing: ReplyCollector) -> None:
        self._cloud, self._local, self._hearing = cloud, local, hearing
        self._prefixes: tuple[str, ...] = ()
        self._asked, self._ended, self._done = set[str](), set[str](), set[str]()
        self._asked_at = 0.0
        self._said: dict[str, bool] = {}

    def ask(self, hosts: Collection[str]) -> None:
        """Ask them: once, and once more if nobody had answered the job then."""
        if self._ended or (self._prefixes and not self._hearing.replies):
            return
        arg, answered_hosts = [self._hearing.jid], [*self._hearing.replies][-_ENDED:]
        jid, asked_hosts = publish(
            self._local,
            publishing.target(self._cloud, sorted({*hosts, *answered_hosts})),
            "saltutil.find_job",
            arg,
            None,
            _FIND_JOB_S,
            nocache=True,
        )
        self._prefixes += (f"salt/job/{jid}/ret/",)
        self._asked |= {*asked_hosts}
        self._ended = {*answered_hosts}
        self._asked_at = time.monotonic()

    def _watch(self, tag: str, data: Mapping[str, Any]) -> None:
        host = data.get("id")
        # Any minion fires events of any tag, with anything for an id.
        if not isinstance(host, str) or host not in self._asked:
            return
        if not tag.startswith(self._prefixes):
            return
        # What one of them said of it before its answer does not say how soon it says anything now.
        if host in self._ended and tag.startswith(self._prefixes[-1]):
            self._done.add(host)
        else:
            # Who takes it back may be another, and its answer is what says that it is not at it.
            self._said[host] = self._said.get(host, False) or bool(data.get("return"))

    @property
    def watch(self) -> Watch | None:
        """What takes in an event; None if nobody was asked yet."""
        return self._watch if self._prefixes else None

    @property
    def hosts(self) -> set[str]:
        """Those that are at it."""
        return {host for host, is_at_it in self._said.items() if is_at_it}

    @property
    def heard(self) -> int:
        """How many have said anything of a job that they had not answered; it never falls."""
        return len(self._said)

    @property
    def is_quick(self) -> bool:
        """Whether those who had answered have said so since, and others had time to say more."""
        long_s = time.monotonic() - self._asked_at
        return bool(self._ended) and self._ended <= self._done and long_s >= _QUIET_S - _ASK_S


def _until_quiet(
    cloud: Cloud, local: Any, hearing: ReplyCollector, briefly: Collection[str], end: float
) -> None:
    """
    Take in answers for as long as some come; then no longer wait for some of those that gave none.

    briefly
        Those of whom only who says to be at it is waited for on.

    Where the others took longer than the usual while, and could not even say since that they are
    done, as on a busy machine, so may those.
    """
    at_it, begun, count = _JobStatus(cloud, local, hearing), time.monotonic(), 0
    last = begun
    while time.monotonic() < end:
        pending = hearing.left().intersection(briefly) - at_it.hosts
        if not pending:
            return
        collect(local, hearing, min(time.monotonic() + _STEP_S, end), at_it.watch)
        heard_count = len(hearing.replies) + at_it.heard
        if heard_count > count:
            last, count = time.monotonic(), heard_count
        quiet_s = time.monotonic() - last
        if heard_count and quiet_s >= (_QUIET_S if at_it.is_quick else max(_QUIET_S, last - begun)):
            hearing.awaited -= pending - at_it.hosts
        elif quiet_s >= (_ASK_S if hearing.replies else _FIRST_S):
            # A master that does not send this has sent the question, and has its answers.
            with contextlib.suppress(SaltClientError, VirtError):
                at_it.ask(pending)


def collect(
    local: Any, hearing: ReplyCollector, deadline: float, watch: Watch | None = None
) -> None:
    """Take in answers until all wanted ones are there, or all that came before the deadline."""
    prefix = f"salt/job/{hearing.jid}/ret/"
    tag = "salt/" if watch else prefix
    while hearing.left():
        remaining_s = deadline - time.monotonic()
        if remaining_s <= -_DRAIN_S:
            return
        event = bus.next_event(local.event, max(min(remaining_s, 5), 0.01), tag)
        if event is None:
            if remaining_s <= 0:
                return
            continue
        if event["tag"].startswith(prefix):
            hearing.take(event["data"])
        elif watch:
            watch(event["tag"], event["data"])
            # All others' events are read too, and on a busy master there is always one more.
            if remaining_s <= 0 and _is_late(event["data"], -remaining_s):
                return


def _is_late(data: Mapping[str, Any], ago_s: float) -> bool:
    """Return whether the master has fired an event after a deadline that was so long ago."""
    try:
        at = datetime.fromisoformat(data["_stamp"])
    except (KeyError, TypeError, ValueError):
        return False
    # Salt 3006 leaves the zone out.
    return at.replace(tzinfo=timezone.utc).timestamp() > time.time() - ago_s


def order(
    cloud: Cloud,
    minion: str,
    fun: str,
    arg: Sequence[Any],
    kwarg: Mapping[str, Any] | None,
    *,
    limit_s: float | None = None,
    watch: Watch | None = None,
    order_id: str | None = None,
) -> Reply:
    """
    Let one minion do something long, for as long as it says that it is working on it.

    limit_s
        How long at most. Defaults to ``virt:deploy_timeout_s``.
    watch
        Called with the tag and data of every other event meanwhile.
    order_id
        One of :func:`new_id`, for a caller that has it on record.

    Returns the :class:`Reply`; who is not a hypervisor of this master gets no orders, and has
    ``Reply.missing``. What has not ended after ``limit_s`` is told to end, and so is what is under
    way when an exception leaves this. What has not begun by then is not begun later, if the minion
    hears of it: see :func:`refuse`.
    """
    reason = cloud.members.why_not(minion)
    if reason is not None:
        return Reply(minion=minion, missing=True, error=reason)
    limit_s = limit_s or cloud.settings.deploy_timeout_s
    call = {"fun": fun, "arg": list(arg), "kwarg": dict(kwarg or {}), "id": order_id or new_id()}
    return _give_order(cloud, minion, call, limit_s, watch)


def new_id() -> str:
    """Return the id of an order that is to be given."""
    return uuid.uuid4().hex


def refuse(cloud: Cloud, minion: str, order_id: str) -> str | None:
    """
    Tell a minion that an order is given up, which it may not have begun.

    Returns :data:`REFUSED` if it never will begin it, :data:`RUNNING` if it is at it, another word
    if that is over, and None if it cannot be told.
    """
    reply = ask(cloud, [minion], "virt.refuse_order", [order_id])[minion]
    return str(reply.value) if reply.ok else None


def _give_order(
    cloud: Cloud,
    minion: str,
    call: Mapping[str, Any],
    limit_s: float,
    watch: Watch | None,
) -> Reply:
    fun = call["fun"]
    with cloud.client() as local:
        order_for_it = [keys.seal_for(cloud.opts, minion, json.dumps(call))]
        jid, matched = publish(
            local, [minion], _SIGNED, order_for_it, None, cloud.settings.timeout_s
        )
        hearing = ReplyCollector(cloud, jid, matched)
        end = time.monotonic() + limit_s
        try:
            is_at_it = _follow_order(local, cloud, hearing, end, watch)
        except BaseException:
            _end_job(local, minion, jid)
            _give_up(cloud, minion, call["id"])
            raise
        if not hearing.replies and time.monotonic() >= end:
            _end_job(local, minion, jid)
    reply = hearing.reply(minion)
    if minion in hearing.garbled:
        return Reply(minion=minion, missing=True, error=f"{minion}: {reply.error}")
    if reply.missing and _give_up(cloud, minion, call["id"]) == REFUSED:
        reason = f"{minion} has not begun {fun}, and was told not to"
        return Reply(minion=minion, missing=True, error=reason)
    return _no_reply(minion, fun, is_at_it, limit_s) if reply.missing and not reply.error else reply


def _follow_order(
    local: Any, cloud: Cloud, hearing: ReplyCollector, end: float, watch: Watch | None
) -> bool | None:
    """Hear one host as long as it is at it; return what :func:`_is_running` said last."""
    is_at_it: bool | None = True if hearing.wanted else None
    timeout_s = cloud.settings.timeout_s
    while is_at_it and time.monotonic() < end:
        collect(local, hearing, time.monotonic() + timeout_s, watch)
        (minion,) = hearing.wanted
        is_at_it = None if hearing.replies else _is_running(cloud, minion, hearing.jid)
    if not hearing.replies:
        late_s = _RETURN_S if is_at_it is False else 1
        collect(local, hearing, time.monotonic() + late_s, watch)
    return is_at_it


def _no_reply(minion: str, fun: str, is_at_it: bool | None, limit_s: float) -> Reply:
    """Return the reply of a minion that gave none; ``is_at_it`` is None if it is silent."""
    reason = f"{minion} does not answer; see: salt {shlex.quote(minion)} test.ping"
    if is_at_it:
        reason = (
            f"{minion} was still at {fun} after {limit_s} s, which is our limit; told it to end"
        )
    elif is_at_it is False:
        reason = f"{minion} has ended {fun}, but its answer did not come within {_RETURN_S} s"
    return Reply(minion=minion, missing=True, is_late=bool(is_at_it), error=reason)


def _is_running(cloud: Cloud, minion: str, jid: str) -> bool | None:
    """Return whether a minion says that it is at a job; None if it is silent, asked twice."""
    for _time in range(2):
        reply = ask(cloud, [minion], "saltutil.find_job", [jid], timeout_s=_FIND_JOB_S)[minion]
        if not reply.missing:
            return bool(reply.ok and reply.value)
    return None


def _end_job(local: Any, minion: str, jid: str) -> None:
    # The master may be what failed; then nobody is left to be told.
    with contextlib.suppress(SaltClientError):
        arg = salt.utils.args.condition_input([jid], None)
        local.pub([minion], "saltutil.term_job", arg, tgt_type="list")


def _give_up(cloud: Cloud, minion: str, order_id: str) -> str | None:
    with contextlib.suppress(SaltClientError, VirtError):
        return refuse(cloud, minion, order_id)
    return None
