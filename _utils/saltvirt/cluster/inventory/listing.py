"""Show the hypervisors and their VMs: selected, sorted and by pages."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastlisted
from saltvirt.cluster.inventory.lastlisted import RowsByName
from saltvirt.cluster.membership import is_glob
from saltvirt.cluster.rpc import waits
from saltvirt.cluster.rpc.replies import Reply
from saltvirt.core import arguments, terminal, wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.vmfilter import VmFilter
from saltvirt.placement import fit, shownvms
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.shownvms import FoundVms, ListedVm

_T = TypeVar("_T")
_SortKeys = Mapping[str, Callable[[Any], float]]
Line = Callable[[Mapping[str, Any]], None]
# What stands beside the hosts in an answer.
_BESIDE = ("unreachable", "failed", "duplicates", "last_seen")
# Fields of every ``virt.host_info``; ``moving`` is there only in the survey for a move.
HOST_FIELDS = tuple(sorted({host_field.name for host_field in fields(HostInfo)} - {"moving"}))
# Sorted in descending order.
QUERY_SORT_KEYS: _SortKeys = {
    "memory": lambda info: info.freemem,
    "cpu": lambda info: info.freecpu,
    "vms": lambda info: len(info.vm_info),
}
_LIST_SORT_KEYS: _SortKeys = {"vms": len}
INFO_SORT_KEYS: _SortKeys = {
    "memory": lambda info: fit.free(info)["memory_mib"],
    "cpu": lambda info: fit.free(info)["vcpus"],
    "disk": lambda info: fit.free(info)["disk_mib"],
    "vms": lambda info: len(info.vms),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    What an operator asks to see.

    hosts
        Ids and globs; empty for all.
    vms
        Which VMs, and which of their fields.
    sort
        ``host`` sorts by id; any other key sorts in descending order.
    limit, offset
        How many hosts, after how many; all if ``limit`` is None.
    """

    hosts: tuple[str, ...] = ()
    vms: VmFilter = field(default_factory=VmFilter)
    sort: str = "host"
    limit: int | None = None
    offset: int = 0

    def page(self, hosts: list[_T]) -> list[_T]:
        """Return the hosts on the page."""
        end = None if self.limit is None else self.offset + self.limit
        return hosts[self.offset : end]


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """
    A way to show hosts.

    fun, kwarg
        The function that hosts run, and its arguments.
    sort_keys
        Sort keys, applied to the result of ``select``.
    select
        Selects from a decoded answer; None hides the host.
    render
        Renders the result of ``select`` for users; receives the raw answer, too.
    older
        The function that hosts of a release without ``fun`` run, and what makes an answer of
        ``fun`` of theirs; None if there is none.
    """

    fun: str
    sort_keys: _SortKeys
    kwarg: Mapping[str, Any] = field(default_factory=dict)
    select: Callable[[Any], Any] = lambda info: info
    render: Callable[[Any, Any], Any] = lambda _info, raw_answer: raw_answer
    older: tuple[str, Callable[[Any], Any]] | None = None


def from_call(
    host: Any,
    vms: VmFilter | None = None,
    *,
    sort: Any = None,
    limit: Any = None,
    offset: Any = 0,
    stream: Any = False,
) -> Look:
    """Return the arguments of a call, checked; raise BadArgument if one is invalid."""
    look = Look(
        hosts=arguments.names("host", host),
        vms=vms or VmFilter(),
        sort="host" if sort is None else str(sort),
        limit=None if limit is None else arguments.whole_number("limit", limit),
        offset=arguments.whole_number("offset", offset, least=0),
    )
    if arguments.boolean("stream", stream):
        _refuse_stream(look, is_sorted=sort is not None)
    return look


def _refuse_stream(look: Look, *, is_sorted: bool) -> None:
    """Raise BadArgument for options that need the answers of all hosts first."""
    if is_sorted:
        raise BadArgument("sort", "has no use with stream, where hosts come as they answer")
    if look.vms.is_narrow and (look.limit is not None or look.offset):
        reason = "which hosts are on a page of these VMs is known only when all have answered"
        raise BadArgument(
            "limit" if look.limit is not None else "offset", f"{reason}; without stream"
        )


def query(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: {freecpu, freemem, node_info, vm_info}}``, and what stands beside it."""

    def render(info: Any, answer: Mapping[str, Any]) -> dict[str, Any]:
        return shownvms.select_vms(answer, info.vm_info)

    if look.vms == VmFilter():
        view = _View(fun="virt.full_info", sort_keys=QUERY_SORT_KEYS, render=render)
        return _show(cloud, look, view, line)

    def select(info: FoundVms) -> FoundVms | None:
        # A host of another release may ignore filters that it does not know.
        matching_info = _filter_by_name(info, look.vms)
        return matching_info if matching_info.vm_info or not look.vms.is_narrow else None

    view = _View(
        fun="virt.vms",
        kwarg=look.vms.plain(),
        sort_keys=QUERY_SORT_KEYS,
        select=select,
        render=render,
    )
    return _show(cloud, look, view, line)


def _filter_by_name(info: FoundVms, vms: VmFilter) -> FoundVms:
    """Return an answer with only the VMs of a matching name."""
    name_filter = VmFilter(name=vms.name)
    return replace(
        info, vm_info={n: v for n, v in info.vm_info.items() if name_filter.takes(n, "")}
    )


def listed(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: {state: [name]}}``, and what stands beside it."""
    # Only virt.vms reports tags.
    fun, kwarg = "virt.vm_state", {}
    if look.vms.tag:
        fun, kwarg = "virt.vms", {**look.vms.plain(), "fields": ["state"]}
    untagged = VmFilter(name=look.vms.name, state=look.vms.state)

    def select(info: Any) -> dict[str, str] | None:
        states_by_name = {
            name: state for name, state in _states(info).items() if untagged.takes(name, state)
        }
        return states_by_name if states_by_name or not look.vms.is_narrow else None

    view = _View(
        fun=fun,
        kwarg=kwarg,
        sort_keys=_LIST_SORT_KEYS,
        select=select,
        render=lambda vms, _answer: _by_state(vms),
    )
    return _show(cloud, look, view, line)


def listed_rows(cloud: Cloud, look: Look) -> tuple[dict[str, Any], dict[str, RowsByName]]:
    """
    Return the answer of :func:`listed`, and ``{host: {name: ListedVm}}`` of the same VMs.

    A host of a release without ``virt.vm_rows`` is asked for the states of its VMs.
    """
    rows_by_host: dict[str, RowsByName] = {}
    filter_arguments = {k: v for k, v in look.vms.plain().items() if k != "fields"}

    def select(info: RowsByName) -> RowsByName | None:
        rows = {name: row for name, row in info.items() if untagged.takes(name, row.state)}
        return rows if rows or not look.vms.is_narrow else None

    untagged = VmFilter(name=look.vms.name, state=look.vms.state)
    view = _View(
        fun="virt.vm_rows",
        kwarg=filter_arguments,
        sort_keys=_LIST_SORT_KEYS,
        select=select,
        render=lambda rows, _answer: rows,
        older=None if look.vms.tag else ("virt.vm_state", _rows_of_states),
    )
    shown = _show(cloud, look, view, None)
    for host in [host for host in shown if host not in _BESIDE]:
        rows_by_host[host] = shown[host]
        shown[host] = _by_state({name: row.state for name, row in shown[host].items()})
    if not look.vms.is_narrow:
        # Rows of a host of an older release have no sizes, but are all that is known.
        lastlisted.remember(cloud.opts, rows_by_host)
    return shown, rows_by_host


def _rows_of_states(states: Mapping[str, str]) -> RowsByName:
    return {name: ListedVm(state=state) for name, state in states.items()}


def _states(info: Any) -> dict[str, str]:
    if isinstance(info, FoundVms):
        return {name: vm.state for name, vm in info.vm_info.items()}
    return dict(info)


def _by_state(vms: Mapping[str, str]) -> dict[str, list[str]]:
    # One pass: a host may report as many states as VMs.
    out: dict[str, list[str]] = {}
    for name, state in sorted(vms.items()):
        out.setdefault(state, []).append(name)
    return out


def host_info(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: answer of virt.host_info}``, and what stands beside it."""
    view = _View(
        fun="virt.host_info",
        sort_keys=INFO_SORT_KEYS,
        render=lambda _info, answer: look.vms.shown(answer),
    )
    return _show(cloud, look, view, line)


def _show(cloud: Cloud, look: Look, view: _View, line: Line | None) -> dict[str, Any]:
    """
    Return the hosts to show, in their order, and what stands beside them.

    line
        Called for each host as it answers, and for the others at the end.
    """
    survey = _survey(cloud, look, view, line and _stream_replies(view, line))
    parts_by_host = {host: view.select(info) for host, info in survey.answers.items()}
    shown_parts = {host: part for host, part in parts_by_host.items() if part is not None}
    hosts = sorted(shown_parts)
    if look.sort != "host":
        hosts.sort(key=lambda host: -view.sort_keys[look.sort](shown_parts[host]))
    if look.sort != "host" or look.vms.is_narrow:
        hosts = look.page(hosts)
    if line is not None:
        _stream_failures(survey, line, waits.silent_since(cloud.opts))
    return {
        **{host: view.render(shown_parts[host], survey.raw_answers[host]) for host in hosts},
        **survey.errors_by_kind(),
    }


def _stream_replies(view: _View, line: Line) -> Callable[[Reply], None]:
    """Return a callback that streams each answer that can be read and has something to show."""

    def on_reply(reply: Reply) -> None:
        if not reply.ok:
            return
        try:
            part = view.select(inventory.read(reply.minion, view.fun, reply.value))
        except wire.BadAnswer:
            return
        if part is not None:
            line({"host": reply.minion, "answer": view.render(part, reply.value)})

    return on_reply


def _stream_failures(survey: inventory.Survey, line: Line, since: Mapping[str, float]) -> None:
    """Stream failed hosts, unresponsive hosts and duplicate VMs."""

    def last_seen_entry(host: str) -> dict[str, list[str]]:
        return {"last_seen": survey.last_seen[host]} if host in survey.last_seen else {}

    for host, reason in sorted(survey.failed.items()):
        line({"host": host, "failed": reason, **last_seen_entry(host)})
    now = time.time()
    for host in sorted(survey.unreachable):
        silent_s = int(now - since.get(host, now))
        line({"host": host, "unreachable": True, "silent_s": silent_s, **last_seen_entry(host)})
    if survey.duplicates:
        line({"duplicates": survey.duplicates})


def _survey(
    cloud: Cloud, look: Look, view: _View, on_reply: Callable[[Reply], None] | None
) -> inventory.Survey:
    """Ask the hosts that may be shown; raise MasterError if none answers."""
    if look.sort not in ("host", *view.sort_keys):
        raise BadArgument("sort", f"{look.sort!r}; one of {', '.join(('host', *view.sort_keys))}")
    targets = select_hosts(cloud, look)
    # Sorted by id, without a filter, the page is known before any host is asked.
    if look.sort == "host" and not look.vms.is_narrow:
        targets = look.page(targets)
    if not targets:
        raise BadArgument("offset", f"{look.offset}: there are no more hypervisors")
    survey = inventory.overview(
        cloud, view.fun, targets=targets, kwarg=dict(view.kwarg), on_reply=on_reply
    )
    if view.older is not None:
        survey = _ask_older_hosts(cloud, view.fun, *view.older, survey)
    if not survey.answers:
        raise survey.no_answers_error()
    return replace(survey, last_seen=_last_seen(cloud, look, survey))


def _ask_older_hosts(
    cloud: Cloud, fun: str, older_fun: str, adapt: Callable[[Any], Any], survey: inventory.Survey
) -> inventory.Survey:
    """Ask hosts without the function for another; return the survey with their answers."""
    older_hosts = [host for host, reason in survey.failed.items() if fun in str(reason)]
    if not older_hosts:
        return survey
    second = inventory.survey(cloud, older_hosts, older_fun)
    adapted = replace(
        second, answers={host: adapt(states) for host, states in second.answers.items()}
    )
    joined = inventory.join_surveys(survey, adapted)
    failed = {host: why for host, why in joined.failed.items() if host not in adapted.answers}
    return replace(joined, failed=failed, last_seen=survey.last_seen)


def _last_seen(cloud: Cloud, look: Look, survey: inventory.Survey) -> dict[str, list[str]]:
    """Return ``{host: names}`` of the VMs last seen on unresponsive or shut-out hosts."""
    name_filter, names_by_host = VmFilter(name=look.vms.name), survey.last_seen
    if not look.hosts:
        names_by_host = {**inventory.list_stranger_vms(cloud), **names_by_host}
    matching_names = {
        host: [name for name in names if name_filter.takes(name, "")]
        for host, names in names_by_host.items()
    }
    return {host: names for host, names in matching_names.items() if names}


def select_hosts(cloud: Cloud, look: Look) -> list[str]:
    """Return the hypervisors that a look means; raise BadArgument if it names none."""
    all_hosts = inventory.all_hosts(cloud)
    if not look.hosts:
        return all_hosts
    out: set[str] = set()
    for pattern in look.hosts:
        if not is_glob(pattern):
            out.update(inventory.narrow(cloud, all_hosts, host=pattern))
            continue
        matching_hosts = {host for host in all_hosts if fnmatchcase(host, pattern)}
        if not matching_hosts:
            hosts_text = terminal.join_some(all_hosts)
            raise BadArgument("host", f"{pattern!r} matches none of the hypervisors {hosts_text}")
        out |= matching_hosts
    return sorted(out)
