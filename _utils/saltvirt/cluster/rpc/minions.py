"""
Ask minions, and wait for unresponsive ones no longer than agreed.

Hypervisors sign their answers (:mod:`saltvirt.core.crypto.signed`); unsigned ones are passed over,
and logged.
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

from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import eventbus, publishing
from saltvirt.cluster.rpc.publishing import publish
from saltvirt.cluster.rpc.replies import Reply as Reply
from saltvirt.cluster.rpc.replies import ReplyCollector
from saltvirt.cluster.rpc.waits import Wait, describe_waiting
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import NO_ANSWER

_FIND_JOB_S = 10
# return_retry_timer_max times return_retry_tries: so long a minion repeats an unconfirmed return.
_RETURN_S = 30
# How long after a deadline earlier events are still read: the bus may hold many.
_DRAIN_S = 10
# For hosts with a brief wait, counted from the last reply of any host: when they get find_job, and
# when those that do not report the job as running are given up, unless no host has replied at all;
# and how often to check. An unresponsive host may cost two seconds, later steps included.
_ASK_S, _QUIET_S, _STEP_S = 0.4, 1.4, 0.1
# Grace period before find_job while there is no reply at all: find_job costs every host work and
# delays first replies.
_FIRST_S = 3
# How many hosts that replied last get find_job, too.
_ENDED = 3
# Progress names the awaited hosts only after so long.
_PROGRESS_AFTER_S = 10
_SIGNED = "virt.signed"
# Answers of virt.refuse_order; see saltvirt.core.salt.answering.
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
    Return ``{minion: Reply}`` of every target; an unresponsive one has ``Reply.is_missing``.

    A target that is not, or no longer, a hypervisor of this master has it, too, and is not asked.

    timeout_s
        How long to wait for an unresponsive minion. Defaults to ``virt:timeout_s``.
    wait
        Hosts with a shorter wait. Defaults to none.
    follow
        For long jobs: ask pending minions every ``virt:timeout_s`` whether the job runs, and give
        up those that do not confirm it.
    """
    members, requested_hosts = cloud.members, set(targets)
    strangers = {host: reason for host in requested_hosts if (reason := members.why_not(host))}
    timeout_s = cloud.settings.timeout_s if timeout_s is None else timeout_s
    call = {"fun": fun, "arg": list(arg), "kwarg": dict(kwarg or {})}
    asked_hosts = sorted(requested_hosts - strangers.keys())
    replies = _ask_hosts(cloud, asked_hosts, call, timeout_s, wait, follow=follow)
    left_out = {
        host: Reply(minion=host, is_missing=True, error=reason)
        for host, reason in strangers.items()
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
        # Only this process reads the replies: without nocache a thousand replies leave as many
        # files in the master's job cache for a day.
        jid, matched = publish(local, target, _SIGNED, [call], {}, timeout_s, nocache=True)
        hosts = matched.intersection(targets)
        collector, end = ReplyCollector(cloud, jid, hosts), time.monotonic() + timeout_s
        if wait is not None:
            collector.awaited -= wait.not_at_all
            _until_quiet(cloud, local, collector, wait.briefly, end)
        if follow:
            _follow_job(local, cloud, collector, end)
        collect(local, collector, min(end, time.monotonic() + _PROGRESS_AFTER_S))
        if time.monotonic() < end and collector.pending():
            cloud.progress(
                "Waiting", detail=describe_waiting(collector.pending(), end - time.monotonic())
            )
            collect(local, collector, end)
    replies = {t: collector.reply(t) for t in targets}
    if follow:
        error = f"still works on it after {timeout_s:.0f} s"
        for host in collector.pending():
            replies[host] = Reply(minion=host, is_missing=True, is_late=True, error=error)
    return replies


def _follow_job(local: Any, cloud: Cloud, collector: ReplyCollector, end: float) -> None:
    """Collect replies; give up hosts that twice in a row do not report the job as running."""
    # The caller's counter of replies must not count those to find_job.
    quiet_cloud, idle_before = replace(cloud, on_reply=lambda _reply: None), set[str]()
    while True:
        collect(local, collector, min(end, time.monotonic() + cloud.settings.timeout_s))
        pending = collector.pending()
        if not pending or time.monotonic() >= end:
            return
        replies = ask(
            quiet_cloud, pending, "saltutil.find_job", [collector.jid], timeout_s=_FIND_JOB_S
        )
        idle_hosts = {
            host
            for host, reply in replies.items()
            if not (reply.ok and _confirms_job(reply.value, collector.jid))
        }
        collector.awaited -= idle_hosts & idle_before
        idle_before = idle_hosts


class _JobStatus:
    """
    Which hosts report, on find_job, that a job runs there: they are alive, and no more.

    Salt itself sends these replies, which is faster on a slow host, but unsigned. A forged reply
    only makes the master wait for that host as long as without find_job. Some hosts that have
    replied to the job get find_job, too: once these have replied, the others had time to do so.
    """

    def __init__(self, cloud: Cloud, local: Any, collector: ReplyCollector) -> None:
        self._cloud, self._local, self._hearing = cloud, local, collector
        self._prefixes: tuple[str, ...] = ()
        self._asked, self._answered, self._confirmed = set[str](), set[str](), set[str]()
        self._asked_at = 0.0
        self._is_running_by_host: dict[str, bool] = {}

    def ask(self, hosts: Collection[str]) -> None:
        """Send find_job: once, and again after the job's first replies if none came before."""
        if self._answered or (self._prefixes and not self._hearing.replies):
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
        self._answered = {*answered_hosts}
        self._asked_at = time.monotonic()

    def _watch(self, tag: str, data: Mapping[str, Any]) -> None:
        host = data.get("id")
        # Any minion can fire events with any tag and any id.
        if not isinstance(host, str) or host not in self._asked:
            return
        if not tag.startswith(self._prefixes):
            return
        # The reply of such a host to an earlier find_job does not show how fast it replies now.
        if host in self._answered and tag.startswith(self._prefixes[-1]):
            self._confirmed.add(host)
        else:
            # A later "not running" may be forged: keep "running". The signed reply ends the wait.
            is_running = _confirms_job(data.get("return"), self._hearing.jid)
            self._is_running_by_host[host] = is_running or self._is_running_by_host.get(host, False)

    @property
    def watch(self) -> Watch | None:
        """The callback for events; None before the first find_job."""
        return self._watch if self._prefixes else None

    @property
    def hosts(self) -> set[str]:
        """The hosts that report the job as running."""
        return {host for host, is_running in self._is_running_by_host.items() if is_running}

    @property
    def heard(self) -> int:
        """How many hosts replied to find_job while the job was pending; it never falls."""
        return len(self._is_running_by_host)

    @property
    def is_quick(self) -> bool:
        """Whether hosts that replied to the job have replied to find_job since, as others could."""
        long_s = time.monotonic() - self._asked_at
        return (
            bool(self._answered)
            and self._answered <= self._confirmed
            and long_s >= _QUIET_S - _ASK_S
        )


def _until_quiet(
    cloud: Cloud, local: Any, collector: ReplyCollector, briefly: Collection[str], end: float
) -> None:
    """
    Collect replies as long as they keep coming; then stop waiting for some hosts.

    briefly
        The hosts to await only as long as they report the job as running.

    On a busy machine, where the others' replies took longer than usual and hosts that have replied
    are slow to answer find_job, the pending hosts may take as long.
    """
    job_status, begun, count = _JobStatus(cloud, local, collector), time.monotonic(), 0
    last = begun
    while time.monotonic() < end:
        pending = collector.pending().intersection(briefly) - job_status.hosts
        if not pending:
            return
        collect(local, collector, min(time.monotonic() + _STEP_S, end), job_status.watch)
        heard_count = len(collector.replies) + job_status.heard
        if heard_count > count:
            last, count = time.monotonic(), heard_count
        quiet_s = time.monotonic() - last
        if heard_count and quiet_s >= (
            _QUIET_S if job_status.is_quick else max(_QUIET_S, last - begun)
        ):
            collector.awaited -= pending - job_status.hosts
        elif quiet_s >= (_ASK_S if collector.replies else _FIRST_S):
            # If the master fails to send find_job, replies to the job still come.
            with contextlib.suppress(SaltClientError, VirtError):
                job_status.ask(pending)


def collect(
    local: Any, collector: ReplyCollector, deadline: float, watch: Watch | None = None
) -> None:
    """Collect replies until all have come, or until all events before the deadline are read."""
    prefix = f"salt/job/{collector.jid}/ret/"
    tag = "salt/" if watch else prefix
    while collector.pending():
        remaining_s = deadline - time.monotonic()
        if remaining_s <= -_DRAIN_S:
            return
        event = eventbus.next_event(local.event, max(min(remaining_s, 5), 0.01), tag)
        if event is None:
            if remaining_s <= 0:
                return
            continue
        if event["tag"].startswith(prefix):
            collector.accept(event["data"])
        elif watch:
            watch(event["tag"], event["data"])
            # All events are read here, and a busy master never runs out of them.
            if remaining_s <= 0 and _is_late(event["data"], -remaining_s):
                return


def _is_late(data: Mapping[str, Any], ago_s: float) -> bool:
    """Return whether an event was fired after a deadline that passed ``ago_s`` ago."""
    try:
        at = datetime.fromisoformat(data["_stamp"])
    except (KeyError, TypeError, ValueError):
        return False
    # Salt 3006 omits the time zone.
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
    Have one minion do something long, and wait as long as it reports that the job runs.

    limit_s
        How long at most. Defaults to ``virt:deploy_timeout_s``.
    watch
        Called with the tag and data of every other event meanwhile.
    order_id
        An id of :func:`new_id` that the caller has recorded.

    Returns the :class:`Reply`. A minion that is no hypervisor of this master gets no order, and has
    ``Reply.is_missing``. A job that runs after ``limit_s``, or when an exception ends this call, is
    told to end. An order that has not begun by then never begins if the minion learns of its
    refusal; see :func:`refuse`.
    """
    reason = cloud.members.why_not(minion)
    if reason is not None:
        return Reply(minion=minion, is_missing=True, error=reason)
    limit_s = limit_s or cloud.settings.deploy_timeout_s
    call = {"fun": fun, "arg": list(arg), "kwarg": dict(kwarg or {}), "id": order_id or new_id()}
    return _give_order(cloud, minion, call, limit_s, watch)


def new_id() -> str:
    """Return a new id for an order."""
    return uuid.uuid4().hex


def refuse(cloud: Cloud, minion: str, order_id: str) -> str | None:
    """
    Tell a minion that an order is given up, which may not have begun there.

    Returns :data:`REFUSED` if the order will never begin, :data:`RUNNING` if it runs, another word
    if it is over, and None if the minion does not answer.
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
        order_for_it = [minionkeys.seal_for(cloud.opts, minion, json.dumps(call))]
        jid, matched = publish(
            local, [minion], _SIGNED, order_for_it, None, cloud.settings.timeout_s
        )
        collector = ReplyCollector(cloud, jid, matched)
        end = time.monotonic() + limit_s
        try:
            is_running = _follow_order(local, cloud, collector, end, watch)
        except BaseException:
            _end_job(local, minion, jid)
            _give_up(cloud, minion, call["id"])
            raise
        if not collector.replies and time.monotonic() >= end:
            _end_job(local, minion, jid)
    reply = collector.reply(minion)
    if minion in collector.unreadable:
        return Reply(minion=minion, is_missing=True, error=f"{minion}: {reply.error}")
    if reply.is_missing and _give_up(cloud, minion, call["id"]) == REFUSED:
        reason = f"{minion} has not begun {fun}, and the master withdrew the order"
        return Reply(minion=minion, is_missing=True, error=reason)
    is_unresponsive = reply.is_missing and not reply.error
    return _no_reply(minion, fun, is_running, limit_s) if is_unresponsive else reply


def _follow_order(
    local: Any, cloud: Cloud, collector: ReplyCollector, end: float, watch: Watch | None
) -> bool | None:
    """Await one host's reply while its job runs; return the last :func:`_is_running`."""
    is_running: bool | None = True if collector.hosts else None
    timeout_s = cloud.settings.timeout_s
    while is_running and time.monotonic() < end:
        collect(local, collector, time.monotonic() + timeout_s, watch)
        (minion,) = collector.hosts
        is_running = None if collector.replies else _is_running(cloud, minion, collector.jid)
    if not collector.replies:
        late_s = _RETURN_S if is_running is False else 1
        collect(local, collector, time.monotonic() + late_s, watch)
    return is_running


def _no_reply(minion: str, fun: str, is_running: bool | None, limit_s: float) -> Reply:
    """Return the reply for a minion that sent none; ``is_running`` is None without any reply."""
    reason = f"{minion} {NO_ANSWER}; see: salt {shlex.quote(minion)} test.ping"
    if is_running:
        reason = f"{minion} still ran {fun} after {limit_s} s, the limit, and was told to end it"
    elif is_running is False:
        reason = f"{minion} has ended {fun}, but its answer did not come within {_RETURN_S} s"
    return Reply(minion=minion, is_missing=True, is_late=bool(is_running), error=reason)


def _is_running(cloud: Cloud, minion: str, jid: str) -> bool | None:
    """Return whether a minion reports a job as running; None if twice unresponsive."""
    for _time in range(2):
        reply = ask(cloud, [minion], "saltutil.find_job", [jid], timeout_s=_FIND_JOB_S)[minion]
        if not reply.is_missing:
            return reply.ok and _confirms_job(reply.value, jid)
    return None


def _confirms_job(answer: object, jid: str) -> bool:
    """Return whether an answer to find_job, which may be anything, says that the job runs."""
    return isinstance(answer, Mapping) and answer.get("jid") == jid


def _end_job(local: Any, minion: str, jid: str) -> None:
    # The master itself may have failed, and cannot send this then.
    with contextlib.suppress(SaltClientError):
        arg = salt.utils.args.condition_input([jid], None)
        local.pub([minion], "saltutil.term_job", arg, tgt_type="list")


def _give_up(cloud: Cloud, minion: str, order_id: str) -> str | None:
    with contextlib.suppress(SaltClientError, VirtError):
        return refuse(cloud, minion, order_id)
    return None
