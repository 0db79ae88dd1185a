"""Look at the hypervisors and their VMs: at some, sorted, a page of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.fleet import inventory
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.membership import is_glob
from saltvirt.placement import fit
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.shownvms import FoundVms, FullInfo
from saltvirt.vmfilter import VmFilter

_OLD = "it has an older version of Salt Virt, which shows all VMs alone: salt {} saltutil.sync_all"
_By = Mapping[str, Callable[[Any], float]]
# The most first.
_OF_QUERY: _By = {
    "memory": lambda info: info.freemem,
    "cpu": lambda info: info.freecpu,
    "vms": lambda info: len(info.vm_info),
}
_OF_LIST: _By = {"vms": len}
_OF_INFO: _By = {
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

    def page(self, hosts: list[str]) -> list[str]:
        """Return those of the hosts that are on the page."""
        end = None if self.limit is None else self.offset + self.limit
        return hosts[self.offset : end]


def asked(
    host: Any, vms: VmFilter | None = None, *, sort: Any = None, limit: Any = None, offset: Any = 0
) -> Look:
    """Return the look of a call's arguments; refuse what they cannot be."""
    return Look(
        hosts=arguments.names("host", host),
        vms=vms or VmFilter(),
        sort="host" if sort is None else str(sort),
        limit=None if limit is None else arguments.whole("limit", limit),
        offset=arguments.whole("offset", offset, least=0),
    )


def query(cloud: Cloud, look: Look) -> dict[str, Any]:
    """Return ``{host: {freecpu, freemem, node_info, vm_info}}``, and what stands beside it."""
    is_plain = look.vms == VmFilter()
    fun = "virt.full_info" if is_plain else "virt.vms"
    found = _survey(cloud, look, _OF_QUERY, fun, look.vms.plain())
    seen: Mapping[str, FullInfo | FoundVms] = found.answers
    # A host of another release may not look at all that it is asked for by.
    seen = seen if is_plain else {h: _narrowed(info, look.vms) for h, info in found.answers.items()}
    if look.vms.is_narrow:
        seen = {host: info for host, info in seen.items() if info.vm_info}
    shown = {host: found.said[host] for host in seen}
    if not is_plain:
        shown = {host: _asked_for(found.said[host], seen[host].vm_info) for host in seen}
    return _shown(found, look, _OF_QUERY, seen, shown)


def _narrowed(info: FoundVms, vms: VmFilter) -> FoundVms:
    """Return an answer with the VMs alone that are asked for, as far as it says."""
    by_name = VmFilter(name=vms.name)
    return replace(info, vm_info={n: v for n, v in info.vm_info.items() if by_name.takes(n, "")})


def _asked_for(said: Mapping[str, Any], vms: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with these VMs, and without the names of all its host has."""
    return {key: one for key, one in {**said, "vm_info": dict(vms)}.items() if key != "names"}


def listed(cloud: Cloud, look: Look) -> dict[str, Any]:
    """Return ``{host: {state: [name]}}``, and what stands beside it."""
    # A host says of its VMs by itself what they are tagged with.
    fun, kwarg = "virt.vm_state", {}
    if look.vms.tag:
        fun, kwarg = "virt.vms", {**look.vms.plain(), "fields": ["state"]}
    found = _survey(cloud, look, _OF_LIST, fun, kwarg)
    states = {host: _states(info) for host, info in found.answers.items()}
    untagged = VmFilter(name=look.vms.name, state=look.vms.state)
    taken = {
        host: {name: state for name, state in vms.items() if untagged.takes(name, state)}
        for host, vms in states.items()
    }
    if look.vms.is_narrow:
        taken = {host: vms for host, vms in taken.items() if vms}
    shown = {host: _by_state(vms) for host, vms in taken.items()}
    return _shown(found, look, _OF_LIST, taken, shown)


def _states(info: Any) -> dict[str, str]:
    if isinstance(info, FoundVms):
        return {name: str(vm.get("state")) for name, vm in info.vm_info.items()}
    return dict(info)


def _by_state(vms: Mapping[str, str]) -> dict[str, list[str]]:
    return {state: sorted(n for n, s in vms.items() if s == state) for state in set(vms.values())}


def host_info(cloud: Cloud, look: Look) -> dict[str, Any]:
    """Return ``{host: answer of virt.host_info}``, and what stands beside it."""
    found = _survey(cloud, look, _OF_INFO, "virt.host_info", {})
    infos: Mapping[str, HostInfo] = found.answers
    shown = {host: look.vms.shown(found.said[host]) for host in infos}
    return _shown(found, look, _OF_INFO, infos, shown)


def _survey(cloud: Cloud, look: Look, by: _By, fun: str, kwarg: dict[str, Any]) -> inventory.Survey:
    """Ask the hosts that may be shown; raise MasterError if none answers."""
    if look.sort not in ("host", *by):
        raise BadArgument("sort", f"{look.sort!r}; one of {', '.join(('host', *by))}")
    targets = _hosts(cloud, look)
    # Whoever is not on the page is not asked, if that is known before.
    if look.sort == "host" and not look.vms.is_narrow:
        targets = look.page(targets)
    if not targets:
        raise BadArgument("offset", f"{look.offset}: there are no more hypervisors")
    found = inventory.overview(cloud, fun, targets=targets, kwarg=kwarg)
    if not found.answers:
        raise found.silence()
    old = {h: _OLD.format(h) for h, why in found.failed.items() if "is not available" in why}
    return replace(found, failed={**found.failed, **old})


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
            raise BadArgument("host", f"{one!r} matches none of the hypervisors {', '.join(every)}")
        out |= matching
    return sorted(out)


def _shown(
    found: inventory.Survey,
    look: Look,
    by: _By,
    answers: Mapping[str, Any],
    shown: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what is shown, in its order, and what stands beside it."""
    hosts = sorted(answers)
    if look.sort != "host":
        hosts.sort(key=lambda host: -by[look.sort](answers[host]))
    if look.sort != "host" or look.vms.is_narrow:
        hosts = look.page(hosts)
    return {**{host: shown[host] for host in hosts}, **found.beside()}
