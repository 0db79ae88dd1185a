"""Deploy a VM somewhere in the cloud: place it, give it a key, have it built, wait for it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt import config, profiles, terminal
from saltvirt.errors import NameTaken
from saltvirt.fleet import (
    awaiting,
    building,
    interrupted,
    inventory,
    keys,
    moves,
    orders,
    reaching,
    sightings,
)
from saltvirt.fleet.building import Request as Request
from saltvirt.fleet.cloud import Cloud
from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import choose
from saltvirt.placement.answers import HostInfo
from saltvirt.records import Held

_OF_NAT = "nat: only its host reaches it, and a move breaks its connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """All hypervisors as they answered, and which of them may have the VM already."""

    found: inventory.Survey
    wanted: frozenset[str]
    seen: dict[str, sightings.Sighting]
    unheard: dict[str, str] = field(default_factory=dict)


def _look(cloud: Cloud, request: Request, order: Held | None = None) -> Hosts:
    """Ask all hypervisors what they have; return the :class:`Hosts`."""
    late = interrupted.give_up(cloud, order) if order else {}
    noted = interrupted.hosts(order) if order else []
    every = inventory.every(cloud)
    wanted = frozenset(inventory.narrow(cloud, every, request.where, request.host))
    cloud.progress("Searching", detail=terminal.counted(len(every), "hypervisor"))
    found = inventory.survey(cloud, every, "virt.host_info")
    return heard(cloud, request, found, wanted, late, noted)


def heard(
    cloud: Cloud,
    request: Request,
    found: inventory.Survey,
    wanted: frozenset[str],
    late: Mapping[str, str],
    noted: Iterable[str],
) -> Hosts:
    """
    Return what all hosts say of a VM, and which may have it and cannot be asked.

    late, noted
        What ``interrupted.give_up`` and ``interrupted.hosts`` said of its order before that.
    """
    seen = sightings.of_info(found.answers, request.name)
    unheard = {**late, **inventory.unheard(cloud, found, request.name, seen, noted)}
    if request.force:
        # A host that says that it is at it is no silent one.
        unheard = {host: why for host, why in late.items() if why == interrupted.AT_IT}
    return Hosts(found=found, wanted=wanted, seen=seen, unheard=unheard)


def _evaluations(
    cloud: Cloud, request: Request, required: Requirements, hosts: Hosts
) -> list[Evaluation]:
    """Return the evaluation of every hypervisor, the best first."""
    settings, policy = cloud.settings, config.policy(cloud.settings, request.placed)
    evaluated = choose.evaluate(hosts.found.answers, required, settings.weights, policy)
    evaluations = [_narrowed(evaluation, hosts.wanted, request) for evaluation in evaluated]
    silent = hosts.found.reasons()
    evaluations += [Evaluation(host=name, reasons=(why,)) for name, why in silent.items()]
    return choose.ranked(evaluations)


def _narrowed(evaluation: Evaluation, wanted: Collection[str], request: Request) -> Evaluation:
    if evaluation.host in wanted:
        return evaluation
    host, where = request.host, request.where
    why = f"not the host asked for ({host})" if host else f"not in where={where}"
    return Evaluation(host=evaluation.host, reasons=(why,))


def refuse_taken(hosts: Hosts, name: str, settled: str = "") -> None:
    """Raise NameTaken if a host has a VM of that name, or may have one and cannot be asked."""
    having = sightings.having(hosts.seen)
    if len(having) > 1:
        raise NameTaken(sightings.several(name, having))
    for host, one in sorted(hosts.seen.items()):
        if one.is_complete:
            raise NameTaken(
                f"VM {name!r} is on {host} already ({one.state}); choose another name, "
                f"or remove it first: salt-run virt.purge {name}{settled and f' ({settled})'}"
            )
        if one.building:
            raise NameTaken(sightings.coming(name, host))
        if one.unreadable:
            raise NameTaken(f"what {host} has of VM {name!r} is not known: {one.unreadable}")
    if hosts.unheard:
        listed = ", ".join(f"{host} ({why})" for host, why in hosts.unheard.items())
        raise NameTaken(
            f"VM {name!r} was on {listed} when it was last asked; wait until it can be asked, or, "
            "if you know that the VM is not there any more, give force=True"
        )


def refuse_name(cloud: Cloud, request: Request) -> None:
    """Raise NameTaken if a host has a VM of a name, or may have one and cannot be asked."""
    refuse_taken(_look(cloud, request), request.name)


def dry_run(cloud: Cloud, request: Request) -> dict[str, dict[str, Any]]:
    """Return the table of hosts for a deployment, and deploy nothing."""
    required = request.required()
    keys.refuse_reserved(cloud.opts, request.name)
    hosts = _look(cloud, request)
    refuse_taken(hosts, request.name)
    return building.table(_evaluations(cloud, request, required, hosts))


def deploy(cloud: Cloud, request: Request, *, wait: bool = True) -> dict[str, Any]:
    """
    Deploy a VM and return ``{"name", "host", "minion", "seconds", "addresses", "login"}``, and
    ``warnings`` if its host has any.

    wait
        Wait until the VM's own minion answers. Defaults to True.
    """
    required, given = request.required(), request.given
    keys.refuse_reserved(cloud.opts, request.name)
    with orders.opened(cloud.opts, request.name) as order:
        moves.settle_order(cloud, order)
        hosts = _look(cloud, request, order)
        settled = interrupted.settle(cloud.opts, order, hosts.seen, hosts.unheard)
        refuse_taken(hosts, request.name, settled)
        evaluations = _evaluations(cloud, request, required, hosts)
        fitting = [evaluation.host for evaluation in evaluations if evaluation.fits]
        if not fitting:
            raise building.none_fits(required, evaluations)
        tell_of_nat(cloud, required, hosts.found.answers[fitting[0]])
        seeded = {host for host in fitting if request.is_seeded(hosts.found.answers[host])}
        unasked = [] if request.force else sorted(hosts.found.reasons())
        others = sightings.alike(request.name, sightings.names(hosts.found.answers))
        build = building.Build(
            cloud=cloud,
            request=request,
            order=order,
            tries=building.tries(request, required, evaluations),
            report={"unasked": unasked, "others": others},
        )
        host = building.made(build, seeded)
    starts = given.get("start", True)
    told = {"warnings": build.warnings} if build.warnings else {}
    answer: dict[str, Any] = {}
    if wait and starts and host in seeded:
        info = hosts.found.answers[host]
        emulated = awaiting.is_emulated(info, given.get("hypervisor"))
        patience = awaiting.patience(cloud.settings, request.wait_s, emulated=emulated)
        answer = awaiting.minion(cloud, request.name, host, patience, told)
    if starts:
        answer |= reaching.of(cloud, host, request.name, has_minion=bool(answer))
    return {"name": request.name, "host": host, **answer, **told}


def tell_of_nat(cloud: Cloud, required: Requirements, info: HostInfo) -> None:
    """Say what the built-in profile cannot; a site's own of that name is the site's to know."""
    profile = info.profiles.nic.get(profiles.NAT)
    networks = profile.networks if profile else None
    if required.nic_profile == profiles.NAT and networks == [profiles.NAT_NETWORK]:
        cloud.progress("Network", detail=_OF_NAT)
