"""Deploy a VM somewhere in the cloud: place it, give it a key, have it built, wait for it."""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import config, keypair, profiles, terminal, undo
from saltvirt.errors import NameTaken, NoHostFits, VirtError
from saltvirt.fleet import (
    awaiting,
    hints,
    interrupted,
    inventory,
    keys,
    minions,
    moves,
    orders,
    reaching,
    sightings,
)
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import DeployError, HostSilent, warnings, watching, whose_time
from saltvirt.fleet.request import Request
from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import choose
from saltvirt.placement.answers import HostInfo
from saltvirt.recordfacts import OrderFacts
from saltvirt.records import Held

# The kinds of errors that say that another host may be tried, or that something is left on one.
_LEFT = "NotTakenBack"
# A host of the release before says the second.
_REFUSED = ("ReservationRefused", "ClaimRefused")
_OF_NAT = "nat: only its host reaches it, and a move breaks its connections"
# How long to wait before each question whether a host has ended what it was told to end.
_UNDOING_S = (0, 1, 2, 4, 8)


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
    seen = sightings.of_info(found.answers, request.name)
    unheard = late | inventory.unheard(cloud, found, request.name, seen, noted)
    if request.force:
        # A host that says that it is at it is no silent one.
        unheard = {host: why for host, why in late.items() if why == interrupted.AT_IT}
    return Hosts(found=found, wanted=wanted, seen=seen, unheard=unheard)


def refuse_taken(cloud: Cloud, request: Request) -> None:
    """Raise NameTaken if a host has a VM of a name, or may have one and cannot be asked."""
    _refuse_taken(_look(cloud, request), request.name)


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


def _refuse_taken(hosts: Hosts, name: str, settled: str = "") -> None:
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


def table(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Any]]:
    """Return ``{host: {"fits", "score", "reasons"}}``, what ``dry_run=True`` shows."""
    return {evaluation.host: evaluation.to_dict() for evaluation in evaluations}


def dry_run(cloud: Cloud, request: Request) -> dict[str, dict[str, Any]]:
    """Return the table of hosts for a deployment, and deploy nothing."""
    required = request.required()
    keys.refuse_reserved(cloud.opts, request.name)
    hosts = _look(cloud, request)
    _refuse_taken(hosts, request.name)
    return table(_evaluations(cloud, request, required, hosts))


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
        _refuse_taken(hosts, request.name, settled)
        evaluations = _evaluations(cloud, request, required, hosts)
        fitting = [evaluation.host for evaluation in evaluations if evaluation.fits]
        if not fitting:
            raise none_fits(required, evaluations)
        _tell_of_nat(cloud, required, hosts.found.answers[fitting[0]])
        seeded = {host for host in fitting if request.is_seeded(hosts.found.answers[host])}
        unasked = [] if request.force else sorted(hosts.found.reasons())
        others = sightings.beside(request.name, hosts.found.answers)
        told_of = {"unasked": unasked, "others": others}
        build = Build(cloud=cloud, request=request, required=required, order=order, report=told_of)
        host = _made(build, evaluations, seeded)
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


def _tell_of_nat(cloud: Cloud, required: Requirements, info: HostInfo) -> None:
    """Say what the built-in profile cannot; a site's own of that name is the site's to know."""
    profile = info.profiles.nic.get(profiles.NAT)
    networks = profile.networks if profile else None
    if required.nic_profile == profiles.NAT and networks == [profiles.NAT_NETWORK]:
        cloud.progress("Network", detail=_OF_NAT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    A deployment in progress: what was asked for, its order, and what its host warns of.

    report
        What its host is told of the others.
    """

    cloud: Cloud
    request: Request
    required: Requirements
    order: Held
    warnings: list[str] = field(default_factory=list)
    report: Mapping[str, list[str]]

    @property
    def name(self) -> str:
        """The VM's name."""
        return self.request.name

    @property
    def facts(self) -> OrderFacts:
        """What is on record of it."""
        return orders.facts(self.order.now)


def _made(build: Build, evaluations: list[Evaluation], seeded: Collection[str]) -> str:
    """Have one of the hosts build a VM, and return that host; a VM that is not built has no key."""
    try:
        with undo.on_failure() as steps:
            orders.begin(build.order, orders.PLACING)
            steps.undo_with(_take_back, build)
            pair = _accepted_pair(build) if seeded else None
            host = _build(build, evaluations, {host: pair for host in seeded})
        build.order.enter(orders.BUILT)
        _settled(build, host, pair if host not in seeded else None)
    except (KeyboardInterrupt, SystemExit):
        if build.order.record is None:
            raise
        raise DeployError(f"interrupted, but {_open_end(build)}") from None
    except VirtError as error:
        if build.order.record is None:
            raise
        raise HostSilent(f"{error}; {_open_end(build)}") from error
    return host


def _settled(build: Build, host: str, unused: tuple[str, str] | None) -> None:
    """End the order of a VM that is built, and discard a key pair that its host did not need."""
    hints.moved(build.cloud.opts, build.name, host)
    if unused:
        keys.discard(build.cloud.opts, build.name, unused[0])
    build.order.end()


def _open_end(build: Build) -> str:
    """Return what is left of a deployment that failed, and which command takes it back."""
    name, host = build.name, build.facts.host
    on_it = f"may still be made, or be left, on {host}; when that answers,"
    left = on_it if host else "has left its key;"
    run = build.request.function
    return (
        f"VM {name!r} {left} run {run} again, which keeps what is complete and takes back what "
        f"is not, or salt-run virt.purge {name}"
    )


def _accepted_pair(build: Build) -> tuple[str, str]:
    keys.refuse_reserved(build.cloud.opts, build.name)
    keys.refuse_taken(build.cloud.opts, build.name)
    public, private = keypair.generate()
    orders.enter(build.order, orders.KEYED, replace(build.facts, public_key=public))
    keys.accept(build.cloud.opts, build.name, public)
    return public, private


def _take_back(build: Build) -> None:
    """End a failed deployment with its key, unless a host may still make its VM."""
    left = build.facts
    if build.order.now.phase == orders.ORDERED and not _has_given_up(build, left):
        return
    if left.public_key:
        keys.discard(build.cloud.opts, build.name, left.public_key)
    build.order.end()


def _has_given_up(build: Build, left: OrderFacts) -> bool:
    """
    Return whether the host that was asked says that it has nothing of a VM, and never will have.

    What it undoes is waited for.
    """
    host, order_id = left.host, left.order_id
    if host is None or order_id is None:
        return False
    for wait_s in _UNDOING_S:
        time.sleep(wait_s)
        said = minions.refuse(build.cloud, host, order_id)
        if said is None:
            return False
        if said == minions.RUNNING:
            continue
        found = inventory.survey(build.cloud, [host], "virt.presence", [build.name])
        one = sightings.of_presence(found.answers).get(host)
        if one is None or one.is_complete:
            return False
        if not one.is_trace or one.unfinished:
            return one.state is None
    return False


def none_fits(
    required: Requirements,
    evaluations: Iterable[Evaluation],
    late: Mapping[str, Iterable[str]] | None = None,
) -> NoHostFits:
    """
    Return the error that says of every host why a VM cannot be there.

    late
        ``{host: reasons}`` of hosts that fitted, but refused when they were asked.
    """
    told = {host: Evaluation(host=host, reasons=tuple(why)) for host, why in (late or {}).items()}
    evaluations = [told.get(evaluation.host, evaluation) for evaluation in evaluations]
    error = NoHostFits(required, {v.host: "; ".join(v.reasons) for v in evaluations})
    error.table = {"hosts": table(evaluations)}
    return error


def _build(
    build: Build, evaluations: list[Evaluation], pairs: Mapping[str, tuple[str, str] | None]
) -> str:
    """Have the best host build the VM; if it has no room any more, try the next one."""
    name, cloud = build.name, build.cloud
    refused: dict[str, list[str]] = {}
    fitting = [evaluation.host for evaluation in evaluations if evaluation.fits]
    for host in fitting:
        # Whoever names a host is told of that one.
        where = f"on {host}, {len(fitting)} of {terminal.counted(len(evaluations), 'host')} fit"
        cloud.progress("Placing", detail=f"{host} fits" if build.request.host else where)
        facts = replace(build.facts, host=host, order_id=minions.new_id())
        orders.enter(build.order, orders.ORDERED, facts)
        reply = _order(build, host, pairs.get(host))
        if reply.missing:
            raise HostSilent(f"{whose_time(reply, None)}, while it built {name!r}")
        if reply.ok:
            build.warnings.extend(warnings(reply.value))
            return host
        kind = reply.value.get("kind") if isinstance(reply.value, dict) else None
        if kind == _LEFT:
            raise DeployError(f"{host}: {reply.error}")
        # The host itself has said that it has nothing of the VM.
        before = orders.KEYED if pairs else orders.PLACING
        orders.enter(build.order, before, replace(build.facts, host=None))
        if kind not in _REFUSED:
            raise DeployError(f"{host}: {reply.error}")
        refused[host] = [reply.error or ""]
        cloud.progress("Placing", detail=f"{host} refused: {reply.error}")
    raise none_fits(build.required, evaluations, refused)


def _order(build: Build, host: str, pair: tuple[str, str] | None) -> minions.Reply:
    request = build.request
    kwarg = {**request.given, "report": build.report}
    if pair:
        kwarg |= {"pub_key": pair[0], "priv_key": keys.seal_for(build.cloud.opts, host, pair[1])}
    return minions.order(
        build.cloud,
        host,
        request.function,
        request.values,
        kwarg,
        watch=watching(build.cloud, "salt/virt/init", host, build.name),
        order_id=build.facts.order_id,
    )
