"""Deploy a VM somewhere in the cloud: place it, give it a key, have it built, wait for it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import config, profiles, terminal
from saltvirt.errors import NameTaken, NoHostFits
from saltvirt.fleet import (
    awaiting,
    building,
    interrupted,
    inventory,
    keys,
    moves,
    offers,
    orders,
    reaching,
    served,
    sightings,
)
from saltvirt.fleet.building import Request as Request
from saltvirt.fleet.cloud import Cloud
from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import choose, wiring
from saltvirt.placement.answers import HostInfo
from saltvirt.records import Held

_OF_NAT = "nat: only its host reaches it, and a move breaks its connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """
    All hypervisors as they answered, and which of them may have the VM already.

    passed
        Those that have said no more than of which VMs they have anything.
    """

    found: inventory.Survey
    wanted: frozenset[str]
    seen: dict[str, sightings.Sighting]
    unheard: dict[str, str] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()

    @property
    def is_sample(self) -> bool:
        """Whether there are others on which the VM may be."""
        return not self.passed.isdisjoint(self.wanted)


def _look(
    cloud: Cloud,
    request: Request,
    required: Requirements,
    order: Held | None = None,
    *,
    is_whole: bool = False,
) -> Hosts:
    """Ask all hypervisors which VMs they have, and what they offer, at first some of many."""
    late = interrupted.give_up(cloud, order) if order else {}
    noted = interrupted.hosts(order) if order else []
    every = inventory.every(cloud)
    wanted = frozenset(inventory.narrow(cloud, every, request.where, request.host))
    cloud.progress("Searching", detail=terminal.counted(len(every), "hypervisor"))
    policy = config.policy(cloud.settings, request.placed)
    said = offers.survey(
        cloud, every, wanted, [required], policy, sample=None if is_whole else request.name
    )
    hosts = heard(cloud, request, said.found, wanted, late, noted)
    return replace(hosts, passed=said.passed)


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
    """Return the evaluation of every hypervisor that was looked at, the best first."""
    settings, policy = cloud.settings, config.policy(cloud.settings, request.placed)
    offered = {h: info for h, info in hosts.found.answers.items() if h not in hosts.passed}
    evaluated = choose.evaluate(offered, required, settings.weights, policy)
    evaluated += [Evaluation(host=host) for host in hosts.passed - hosts.wanted]
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


def refuse(cloud: Cloud, request: Request, *, wait: bool) -> None:
    """Raise NameTaken if a VM of the name is there, or may be; MasterError as :func:`deploy`."""
    hosts = _look(cloud, request, request.required())
    refuse_taken(hosts, request.name)
    if wait:
        awaiting.refuse_unproved(cloud.opts, [request], hosts.found.answers)


def dry_run(cloud: Cloud, request: Request, *, wait: bool = True) -> dict[str, dict[str, Any]]:
    """Return the table of hosts for a deployment, and deploy nothing; raise as that would."""
    required = request.required()
    keys.refuse_reserved(cloud.opts, request.name)
    hosts = _look(cloud, request, required)
    refuse_taken(hosts, request.name)
    if wait:
        awaiting.refuse_unproved(cloud.opts, [request], hosts.found.answers)
    evaluations = _evaluations(cloud, request, required, hosts)
    if hosts.is_sample and not any(one.fits for one in evaluations):
        hosts = _look(cloud, request, required, is_whole=True)
        evaluations = _evaluations(cloud, request, required, hosts)
    if not any(one.fits for one in evaluations):
        raise building.none_fits(required, evaluations)
    return building.table(evaluations)


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
        hosts = _look(cloud, request, required, order)
        settled = interrupted.settle(cloud.opts, order, hosts.seen, hosts.unheard)
        refuse_taken(hosts, request.name, settled)
        if wait:
            awaiting.refuse_unproved(cloud.opts, [request], hosts.found.answers)
        try:
            built = _built(cloud, request, required, order, hosts)
        except NoHostFits:
            if not hosts.is_sample:
                raise
            hosts = _look(cloud, request, required, order, is_whole=True)
            refuse_taken(hosts, request.name)
            built = _built(cloud, request, required, order, hosts)
    starts = given.get("start", True)
    told = {"warnings": built.warnings} if built.warnings else {}
    answer: dict[str, Any] = {}
    if wait and starts and built.is_seeded:
        info = hosts.found.answers[built.host]
        emulated = awaiting.is_emulated(info, given.get("hypervisor"))
        patience = awaiting.patience(cloud.settings, request.wait_s, emulated=emulated)
        answer = awaiting.minion(cloud, request.name, built.host, patience, told)
    if starts:
        answer |= reaching.of(cloud, built.host, request.name, has_minion=bool(answer))
    return {"name": request.name, "host": built.host, **answer, **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """Where a VM is, whether it has a seed, and what its host warns of."""

    host: str
    is_seeded: bool
    warnings: list[str]


def _built(
    cloud: Cloud, request: Request, required: Requirements, order: Held, hosts: Hosts
) -> _Built:
    """Have the best of the hosts build a VM; raise NoHostFits if none of them takes it."""
    evaluations = _evaluations(cloud, request, required, hosts)
    fitting = [evaluation.host for evaluation in evaluations if evaluation.fits]
    if not fitting:
        raise building.none_fits(required, evaluations)
    answers = hosts.found.answers
    tell_of_nat(cloud, required, answers[fitting[0]])
    seeded = {host for host in fitting if request.is_seeded(answers[host])}
    unasked = [] if request.force else sorted(hosts.found.reasons())
    others = sightings.alike(request.name, sightings.names(answers))
    images = served.Images(cloud.opts).of(request.given)
    build = building.Build(
        cloud=cloud,
        request=request,
        order=order,
        tries=building.tries(request, required, evaluations),
        report={"unasked": unasked, "others": others, "images": images},
        taking=building.taking(answers),
    )
    host = building.made(build, seeded)
    return _Built(host=host, is_seeded=host in seeded, warnings=build.warnings)


def tell_of_nat(cloud: Cloud, required: Requirements, info: HostInfo) -> None:
    """
    Say what the built-in profile cannot; a site's own of that name is the site's to know.

    Nothing is said of a call that has the profile's NIC elsewhere.
    """
    profile = info.profiles.nic.get(profiles.NAT)
    if required.nic_profile != profiles.NAT or profile is None:
        return
    if profile.networks != [profiles.NAT_NETWORK]:
        return
    if profiles.NAT_NETWORK in wiring.of(required, profile).networks:
        cloud.progress("Network", detail=_OF_NAT)
