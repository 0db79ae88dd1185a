"""Look at the hypervisors and their VMs: at some, sorted, a page of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from saltvirt import arguments, terminal, wire
from saltvirt.errors import BadArgument
from saltvirt.fleet import inventory, silence
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hearing import Reply
from saltvirt.fleet.membership import is_glob
from saltvirt.placement import fit, shownvms
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.shownvms import FoundVms
from saltvirt.vmfilter import VmFilter

_OLD = "it has an older version of Salt Virt, which shows all VMs alone: salt {} saltutil.sync_all"
_T = TypeVar("_T")
_By = Mapping[str, Callable[[Any], float]]
Line = Callable[[Mapping[str, Any]], None]
# What a host says of itself: of a move only where it is asked about one.
HOST_FIELDS = tuple(sorted({one.name for one in fields(HostInfo)} - {"moving"}))
# The most first.
OF_QUERY: _By = {
    "memory": lambda info: info.freemem,
    "cpu": lambda info: info.freecpu,
    "vms": lambda info: len(info.vm_info),
}
_OF_LIST: _By = {"vms": len}
OF_INFO: _By = {
    "memory": lambda info: fit.free(info)["memory_mib"],
    "cpu": lambda info: fit.free(info)["vcpus"],
    "disk": lambda info: fit.free(info)["disk_mib"],
    "vms": lambda info: len(info.vms),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    What a user wants to see.

    hosts
        Ids and globs; empty for all.
    vms
        Which VMs, and what of them.
    sort
        ``host``, by their ids, or by what there is the most of.
    limit, offset
        So many hosts, after so many; all if ``limit`` is None.
    """

    hosts: tuple[str, ...] = ()
    vms: VmFilter = field(default_factory=VmFilter)
    sort: str = "host"
    limit: int | None = None
    offset: int = 0

    def page(self, hosts: list[_T]) -> list[_T]:
        """Return those of the hosts that are on the page."""
        end = None if self.limit is None else self.offset + self.limit
        return hosts[self.offset : end]


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """
    One way to look at hosts.

    fun, kwarg
        What they are asked.
    by
        What they can be sorted by, of what is seen of them.
    seen
        What of an answer is looked for, None if nothing of it is.
    shown
        How users see that; called with it, and with the answer as it came.
    """

    fun: str
    by: _By
    kwarg: Mapping[str, Any] = field(default_factory=dict)
    seen: Callable[[Any], Any] = lambda info: info
    shown: Callable[[Any, Any], Any] = lambda _info, said: said


def asked(
    host: Any,
    vms: VmFilter | None = None,
    *,
    sort: Any = None,
    limit: Any = None,
    offset: Any = 0,
    stream: Any = False,
) -> Look:
    """Return the look of a call's arguments; refuse what they cannot be."""
    look = Look(
        hosts=arguments.names("host", host),
        vms=vms or VmFilter(),
        sort="host" if sort is None else str(sort),
        limit=None if limit is None else arguments.whole("limit", limit),
        offset=arguments.whole("offset", offset, least=0),
    )
    if arguments.boolean("stream", stream):
        _refuse_stream(look, is_sorted=sort is not None)
    return look


def _refuse_stream(look: Look, *, is_sorted: bool) -> None:
    """Refuse what is not known of a host before all have answered."""
    if is_sorted:
        raise BadArgument("sort", "has no use with stream, where hosts come as they answer")
    if look.vms.is_narrow and (look.limit is not None or look.offset):
        why = "which hosts are on a page of these VMs is known only when all have answered"
        raise BadArgument("limit" if look.limit is not None else "offset", f"{why}; without stream")


def query(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: {freecpu, freemem, node_info, vm_info}}``, and what stands beside it."""

    def shown(info: Any, said: Mapping[str, Any]) -> dict[str, Any]:
        return shownvms.shown(said, info.vm_info)

    if look.vms == VmFilter():
        view = _View(fun="virt.full_info", by=OF_QUERY, shown=shown)
        return _show(cloud, look, view, line)

    def seen(info: FoundVms) -> FoundVms | None:
        # A host of another release may not look at all that it is asked for by.
        few = _narrowed(info, look.vms)
        return few if few.vm_info or not look.vms.is_narrow else None

    view = _View(
        fun="virt.vms",
        kwarg=look.vms.plain(),
        by=OF_QUERY,
        seen=seen,
        shown=shown,
    )
    return _show(cloud, look, view, line)


def _narrowed(info: FoundVms, vms: VmFilter) -> FoundVms:
    """Return an answer with the VMs alone that are asked for, as far as it says."""
    by_name = VmFilter(name=vms.name)
    return replace(info, vm_info={n: v for n, v in info.vm_info.items() if by_name.takes(n, "")})


def listed(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: {state: [name]}}``, and what stands beside it."""
    # A host says of its VMs by itself what they are tagged with.
    fun, kwarg = "virt.vm_state", {}
    if look.vms.tag:
        fun, kwarg = "virt.vms", {**look.vms.plain(), "fields": ["state"]}
    untagged = VmFilter(name=look.vms.name, state=look.vms.state)

    def seen(info: Any) -> dict[str, str] | None:
        taken = {
            name: state for name, state in _states(info).items() if untagged.takes(name, state)
        }
        return taken if taken or not look.vms.is_narrow else None

    view = _View(
        fun=fun, kwarg=kwarg, by=_OF_LIST, seen=seen, shown=lambda vms, _said: _by_state(vms)
    )
    return _show(cloud, look, view, line)


def _states(info: Any) -> dict[str, str]:
    if isinstance(info, FoundVms):
        return {name: vm.state for name, vm in info.vm_info.items()}
    return dict(info)


def _by_state(vms: Mapping[str, str]) -> dict[str, list[str]]:
    # In one pass: a host may say as many states as it has VMs.
    out: dict[str, list[str]] = {}
    for name, state in sorted(vms.items()):
        out.setdefault(state, []).append(name)
    return out


def host_info(cloud: Cloud, look: Look, line: Line | None = None) -> dict[str, Any]:
    """Return ``{host: answer of virt.host_info}``, and what stands beside it."""
    view = _View(fun="virt.host_info", by=OF_INFO, shown=lambda _info, said: look.vms.shown(said))
    return _show(cloud, look, view, line)


def _show(cloud: Cloud, look: Look, view: _View, line: Line | None) -> dict[str, Any]:
    """
    Return what is shown, in its order, and what stands beside it.

    line
        Called with what is said of each host, as it answers, and of those that do not at the end.
    """
    found = _survey(cloud, look, view, line and _heard(view, line))
    looked = {host: view.seen(info) for host, info in found.answers.items()}
    seen = {host: one for host, one in looked.items() if one is not None}
    hosts = sorted(seen)
    if look.sort != "host":
        hosts.sort(key=lambda host: -view.by[look.sort](seen[host]))
    if look.sort != "host" or look.vms.is_narrow:
        hosts = look.page(hosts)
    if line is not None:
        _say_beside(found, line, silence.silent_since(cloud.opts))
    return {**{host: view.shown(seen[host], found.said[host]) for host in hosts}, **found.beside()}


def _heard(view: _View, line: Line) -> Callable[[Reply], None]:
    """Return what says an answer as it comes, if it can be read and there is anything to show."""

    def heard(reply: Reply) -> None:
        if not reply.ok:
            return
        try:
            seen = view.seen(inventory.read(reply.minion, view.fun, reply.value))
        except wire.BadAnswer:
            return
        if seen is not None:
            line({"host": reply.minion, "answer": view.shown(seen, reply.value)})

    return heard


def _say_beside(found: inventory.Survey, line: Line, since: Mapping[str, float]) -> None:
    """Say who has failed, who is silent, and which VMs are there twice."""

    def had(host: str) -> dict[str, list[str]]:
        return {"last_seen": found.last_seen[host]} if host in found.last_seen else {}

    for host, why in sorted(found.failed.items()):
        line({"host": host, "failed": why, **had(host)})
    now = time.time()
    for host in sorted(found.unreachable):
        silent_s = int(now - since.get(host, now))
        line({"host": host, "unreachable": True, "silent_s": silent_s, **had(host)})
    if found.duplicates:
        line({"duplicates": found.duplicates})


def _survey(
    cloud: Cloud, look: Look, view: _View, heard: Callable[[Reply], None] | None
) -> inventory.Survey:
    """Ask the hosts that may be shown; raise MasterError if none answers."""
    if look.sort not in ("host", *view.by):
        raise BadArgument("sort", f"{look.sort!r}; one of {', '.join(('host', *view.by))}")
    targets = _hosts(cloud, look)
    # Whoever is not on the page is not asked, if that is known before.
    if look.sort == "host" and not look.vms.is_narrow:
        targets = look.page(targets)
    if not targets:
        raise BadArgument("offset", f"{look.offset}: there are no more hypervisors")
    found = inventory.overview(
        cloud, view.fun, targets=targets, kwarg=dict(view.kwarg), heard=heard
    )
    if not found.answers:
        raise found.silence()
    old = {h: _OLD.format(h) for h, why in found.failed.items() if "is not available" in why}
    return replace(found, failed={**found.failed, **old}, last_seen=_last_seen(cloud, look, found))


def _last_seen(cloud: Cloud, look: Look, found: inventory.Survey) -> dict[str, list[str]]:
    """Return ``{host: names}`` of the VMs of hosts that gave no answer, or were shut out."""
    by_name, known = VmFilter(name=look.vms.name), found.last_seen
    if not look.hosts:
        known = {**inventory.of_strangers(cloud), **known}
    named = {
        host: [one for one in names if by_name.takes(one, "")] for host, names in known.items()
    }
    return {host: names for host, names in named.items() if names}


def _hosts(cloud: Cloud, look: Look) -> list[str]:
    every = inventory.every(cloud)
    if not look.hosts:
        return every
    out: set[str] = set()
    for one in look.hosts:
        if not is_glob(one):
            out.update(inventory.narrow(cloud, every, host=one))
            continue
        matching = {host for host in every if fnmatchcase(host, one)}
        if not matching:
            there = terminal.some(every)
            raise BadArgument("host", f"{one!r} matches none of the hypervisors {there}")
        out |= matching
    return sorted(out)
