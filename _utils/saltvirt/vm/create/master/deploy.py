"""Deploy a VM: choose a host, have the host build the VM, wait for the minion."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, presence, whereabouts
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.core import terminal
from saltvirt.core.errors import NoHostFits
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.model import Evaluation, Requirements
from saltvirt.core.options import config
from saltvirt.migration.master import recovery
from saltvirt.placement import choose, wiring
from saltvirt.placement.answers import HostInfo
from saltvirt.vm import profiles
from saltvirt.vm.create.master import fileserver, hostbuild, minionwait, offers
from saltvirt.vm.create.master.hostbuild import Request as Request
from saltvirt.vm.guest.master import reachvm
from saltvirt.vm.recovery.master import interrupted
from saltvirt.vm.recovery.master.interrupted import PendingJob

_NAT_DETAIL = "nat: only its host reaches it, and a move breaks its connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """
    All hosts' answers, and the hosts that may have the VM already.

    found
        The survey of all hosts.
    wanted
        The hosts that the request allows.
    vm
        Where the VM of that name is, or may be.
    passed
        The hosts that were asked for names of VMs only.
    """

    found: inventory.Survey
    wanted: frozenset[str]
    vm: Whereabouts
    passed: frozenset[str] = frozenset()

    @property
    def is_sample(self) -> bool:
        """Whether some hosts that the request allows were asked for names only."""
        return not self.passed.isdisjoint(self.wanted)


def _survey_hosts(
    cloud: Cloud,
    request: Request,
    requirements: Requirements,
    order: LockedRecord | None = None,
    *,
    is_whole: bool = False,
) -> Hosts:
    """Ask all hosts for their VMs and offers; without ``is_whole`` maybe a sample for offers."""
    pending_job = interrupted.give_up(cloud, order) if order else PendingJob()
    order_hosts = interrupted.order_hosts(order) if order else []
    all_hosts = inventory.all_hosts(cloud)
    requested_hosts = frozenset(inventory.narrow(cloud, all_hosts, request.where, request.host))
    cloud.progress("Searching", detail=terminal.count_text(len(all_hosts), "hypervisor"))
    policy = config.policy(cloud.settings, request.placed)
    offer_survey = offers.survey(
        cloud,
        all_hosts,
        requested_hosts,
        [requirements],
        policy,
        sample=None if is_whole else request.name,
    )
    hosts = assess_hosts(
        cloud, request, offer_survey.found, requested_hosts, pending_job, order_hosts
    )
    return replace(hosts, passed=offer_survey.passed)


def assess_hosts(
    cloud: Cloud,
    request: Request,
    survey: inventory.Survey,
    requested_hosts: frozenset[str],
    pending_job: PendingJob,
    order_hosts: Iterable[str],
) -> Hosts:
    """
    Return the hosts' answers about a VM, and the hosts that may have it and cannot be asked.

    pending_job, order_hosts
        Results of ``interrupted.give_up`` and ``interrupted.order_hosts`` before the survey.
    """
    vm = locate(cloud, request.name, Purpose.REPORT, survey=survey, order_hosts=order_hosts)
    vm = replace(vm, ordered={**pending_job.reasons, **vm.ordered})
    if request.force:
        # A host that reports the order as running is not unresponsive: force must not skip it.
        vm = replace(vm, suspects={}, ordered=pending_job.reasons if pending_job.is_running else {})
    return Hosts(found=survey, wanted=requested_hosts, vm=vm)


def _evaluations(
    cloud: Cloud, request: Request, requirements: Requirements, hosts: Hosts
) -> list[Evaluation]:
    """Return the evaluations, the best first, without wanted hosts that made no offer."""
    settings, policy = cloud.settings, config.policy(cloud.settings, request.placed)
    infos_by_host = {h: info for h, info in hosts.found.answers.items() if h not in hosts.passed}
    raw_evaluations = choose.evaluate(infos_by_host, requirements, settings.weights, policy)
    raw_evaluations += [Evaluation(host=host) for host in hosts.passed - hosts.wanted]
    evaluations = [
        _narrow_evaluation(evaluation, hosts.wanted, request) for evaluation in raw_evaluations
    ]
    unresponsive_hosts = hosts.found.reasons()
    evaluations += [
        Evaluation(host=name, reasons=(reason,)) for name, reason in unresponsive_hosts.items()
    ]
    return choose.rank(evaluations)


def _narrow_evaluation(
    evaluation: Evaluation, requested_hosts: Collection[str], request: Request
) -> Evaluation:
    if evaluation.host in requested_hosts:
        return evaluation
    host, where = request.host, request.where
    reason = f"not the host asked for ({host})" if host else f"not in where={where}"
    return Evaluation(host=evaluation.host, reasons=(reason,))


def refuse_taken(vm: Whereabouts, outcome_text: str = "") -> None:
    """Raise NameTaken if a host has a VM of that name, or may have one and cannot be asked."""
    whereabouts.decide(vm, Purpose.CREATE, outcome_text=outcome_text)


def refuse(cloud: Cloud, request: Request, *, wait: bool) -> None:
    """Raise NameTaken if the VM exists or may exist, and MasterError as :func:`deploy` does."""
    hosts = _survey_hosts(cloud, request, request.required())
    refuse_taken(hosts.vm)
    if wait:
        minionwait.refuse_unproved(cloud.opts, [request], hosts.found.answers)


def dry_run(cloud: Cloud, request: Request, *, wait: bool = True) -> dict[str, dict[str, Any]]:
    """Return the table of hosts and deploy nothing; raise the errors of a deployment."""
    requirements = request.required()
    minionkeys.refuse_reserved(cloud.opts, request.name)
    hosts = _survey_hosts(cloud, request, requirements)
    refuse_taken(hosts.vm)
    if wait:
        minionwait.refuse_unproved(cloud.opts, [request], hosts.found.answers)
    evaluations = _evaluations(cloud, request, requirements, hosts)
    if hosts.is_sample and not any(evaluation.fits for evaluation in evaluations):
        hosts = _survey_hosts(cloud, request, requirements, is_whole=True)
        evaluations = _evaluations(cloud, request, requirements, hosts)
    if not any(evaluation.fits for evaluation in evaluations):
        raise hostbuild.no_host_fits_error(requirements, evaluations)
    return hostbuild.table(evaluations)


def deploy(cloud: Cloud, request: Request, *, wait: bool = True) -> dict[str, Any]:
    """
    Deploy a VM; return ``{"name", "host", "minion", "seconds", "addresses", "login"}``, and
    ``warnings`` if the host has any.

    wait
        Wait until the VM's own minion answers. Defaults to True.
    """
    requirements, options = request.required(), request.given
    minionkeys.refuse_reserved(cloud.opts, request.name)
    with orders.opened(cloud.opts, request.name) as order:
        recovery.settle_order(cloud, order)
        hosts = _survey_hosts(cloud, request, requirements, order)
        outcome_text = interrupted.settle(
            cloud.opts, order, hosts.vm.presence_by_host, hosts.vm.may_have
        )
        refuse_taken(hosts.vm, outcome_text)
        if wait:
            minionwait.refuse_unproved(cloud.opts, [request], hosts.found.answers)
        try:
            new_vm = _build_on_best_host(cloud, request, requirements, order, hosts)
        except NoHostFits:
            if not hosts.is_sample:
                raise
            hosts = _survey_hosts(cloud, request, requirements, order, is_whole=True)
            refuse_taken(hosts.vm)
            new_vm = _build_on_best_host(cloud, request, requirements, order, hosts)
    is_starting = options.get("start", True)
    warnings_entry = {"warnings": new_vm.warnings} if new_vm.warnings else {}
    answer: dict[str, Any] = {}
    if wait and is_starting and new_vm.is_seeded:
        info = hosts.found.answers[new_vm.host]
        is_emulated = minionwait.is_emulated(info, options.get("hypervisor"))
        patience = minionwait.patience(cloud.settings, request.wait_s, emulated=is_emulated)
        answer = minionwait.wait_for_minion(
            cloud, request.name, new_vm.host, patience, warnings_entry
        )
    if is_starting:
        answer |= reachvm.find_login(cloud, new_vm.host, request.name, has_minion=bool(answer))
    return {"name": request.name, "host": new_vm.host, **answer, **warnings_entry}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewVm:
    """A built VM: its host, whether it has a seed, and the host's warnings."""

    host: str
    is_seeded: bool
    warnings: list[str]


def _build_on_best_host(
    cloud: Cloud, request: Request, requirements: Requirements, order: LockedRecord, hosts: Hosts
) -> _NewVm:
    """Have the best host build a VM; raise NoHostFits if no host takes it."""
    evaluations = _evaluations(cloud, request, requirements, hosts)
    fitting_hosts = [evaluation.host for evaluation in evaluations if evaluation.fits]
    if not fitting_hosts:
        raise hostbuild.no_host_fits_error(requirements, evaluations)
    answers = hosts.found.answers
    tell_of_nat(cloud, requirements, answers[fitting_hosts[0]])
    seeded_hosts = {host for host in fitting_hosts if request.is_seeded(answers[host])}
    unasked_hosts = [] if request.force else sorted(hosts.found.reasons())
    similar_names = presence.find_similar_names(request.name, presence.names(answers))
    images = fileserver.Images(cloud.opts).of(request.given)
    build = hostbuild.Build(
        cloud=cloud,
        request=request,
        order=order,
        tries=hostbuild.tries(request, requirements, evaluations),
        report={"unasked": unasked_hosts, "others": similar_names, "images": images},
    )
    host = hostbuild.run_build(build, seeded_hosts)
    return _NewVm(host=host, is_seeded=host in seeded_hosts, warnings=build.warnings)


def tell_of_nat(cloud: Cloud, requirements: Requirements, info: HostInfo) -> None:
    """
    Show the limits of NAT if the VM uses the built-in profile.

    No line is shown for a site's own profile of that name, or if the call moves the NIC elsewhere.
    """
    profile = info.profiles.nic.get(profiles.NAT)
    if requirements.nic_profile != profiles.NAT or profile is None:
        return
    if profile.networks != [profiles.NAT_NETWORK]:
        return
    if profiles.NAT_NETWORK in wiring.for_vm(requirements, profile).networks:
        cloud.progress("Network", detail=_NAT_DETAIL)
