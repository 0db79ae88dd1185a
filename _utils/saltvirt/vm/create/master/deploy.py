"""Deploy a VM: choose a host, have the host build the VM, wait for the minion."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
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
from saltvirt.migration.master import recovery
from saltvirt.placement import choose, wiring
from saltvirt.placement.answers import HostInfo
from saltvirt.vm import profiles
from saltvirt.vm.create.master import hostbuild, minionwait, offers
from saltvirt.vm.create.master.vmrequest import Terms, VmRequest
from saltvirt.vm.guest.master import reachvm
from saltvirt.vm.recovery.master import interrupted
from saltvirt.vm.recovery.master.interrupted import PendingJob

_MACHINE_TEXT = (
    "the hosts have different QEMUs, so a new VM gets {}, the newest machine type that all of them "
    "have, and can move to each; machine= or virt:machine of the master sets another"
)
_NAT_DETAIL = "nat: only its host reaches it, and a move breaks its connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """
    All hosts' answers, and the hosts that may have the VM already.

    survey
        The answers of all hosts.
    allowed_hosts
        The hosts that the request allows.
    vm
        Where the VM of that name is, or may be.
    names_only
        The hosts that were asked for names of VMs only.
    """

    survey: inventory.Survey
    allowed_hosts: frozenset[str]
    vm: Whereabouts
    names_only: frozenset[str] = frozenset()

    @property
    def is_sample(self) -> bool:
        """Whether some hosts that the request allows were asked for names only."""
        return not self.names_only.isdisjoint(self.allowed_hosts)


def _survey_hosts(
    cloud: Cloud,
    request: VmRequest,
    order: LockedRecord | None = None,
    *,
    is_whole: bool = False,
) -> Candidates:
    """
    Ask all hosts for their VMs and offers.

    Without ``is_whole``, a large cloud is asked for offers on a sample of hosts only.
    """
    pending_job = interrupted.give_up(cloud, order) if order else PendingJob()
    order_hosts = interrupted.order_hosts(order) if order else []
    all_hosts, allowed_hosts = list_hosts(cloud, request.terms)
    offer_survey = offers.survey(
        cloud,
        all_hosts,
        allowed_hosts,
        [request.requirements],
        request.terms.policy,
        sample=None if is_whole else request.name,
    )
    hosts = assess_hosts(
        cloud, request, offer_survey.survey, allowed_hosts, pending_job, order_hosts
    )
    return replace(hosts, names_only=offer_survey.names_only)


def list_hosts(cloud: Cloud, terms: Terms) -> tuple[list[str], frozenset[str]]:
    """Return all hosts, and those that a call allows; show that they are asked."""
    all_hosts = inventory.all_hosts(cloud)
    allowed_hosts = frozenset(inventory.narrow(cloud, all_hosts, terms.where, terms.host))
    cloud.progress("Searching", detail=terminal.count_text(len(all_hosts), "hypervisor"))
    return all_hosts, allowed_hosts


def assess_hosts(
    cloud: Cloud,
    request: VmRequest,
    survey: inventory.Survey,
    allowed_hosts: frozenset[str],
    pending_job: PendingJob,
    order_hosts: Iterable[str],
) -> Candidates:
    """
    Return the hosts' answers about a VM, and the hosts that may have it and cannot be asked.

    pending_job, order_hosts
        Results of ``interrupted.give_up`` and ``interrupted.order_hosts`` before the survey.
    """
    vm = locate(cloud, request.name, Purpose.REPORT, survey=survey, order_hosts=order_hosts)
    vm = replace(vm, ordered={**pending_job.reasons, **vm.ordered})
    if request.terms.force:
        # A host that reports the order as running is not unresponsive: force must not skip it.
        vm = replace(vm, suspects={}, ordered=pending_job.reasons if pending_job.is_running else {})
    return Candidates(survey=survey, allowed_hosts=allowed_hosts, vm=vm)


def _evaluate(cloud: Cloud, request: VmRequest, hosts: Candidates) -> list[Evaluation]:
    """Return the evaluations of all hosts, the best first; none of them may fit."""
    infos_by_host = {
        host: info for host, info in hosts.survey.answers.items() if host not in hosts.names_only
    }
    evaluations = choose.evaluate(
        infos_by_host, request.requirements, cloud.settings.weights, request.terms.policy
    )
    evaluations = [
        evaluation for evaluation in evaluations if evaluation.host in hosts.allowed_hosts
    ]
    reasons_by_host = {
        **dict.fromkeys(
            hosts.survey.answers.keys() - hosts.allowed_hosts, request.terms.other_host_reason
        ),
        **hosts.survey.reasons(),
    }
    evaluations += [
        Evaluation(host=host, reasons=(reason,)) for host, reason in reasons_by_host.items()
    ]
    return choose.rank(evaluations)


def refuse_taken(vm: Whereabouts, outcome_text: str = "") -> None:
    """Raise NameTaken if a host has a VM of that name, or may have one and cannot be asked."""
    whereabouts.decide(vm, Purpose.CREATE, outcome_text=outcome_text)


def survey_or_refuse(cloud: Cloud, request: VmRequest) -> Candidates:
    """Return the hosts' answers; raise what :func:`deploy` raises before it builds anything."""
    minionkeys.refuse_reserved(cloud.opts, request.name)
    hosts = _survey_hosts(cloud, request)
    refuse_taken(hosts.vm)
    minionwait.refuse_unproved(cloud.opts, [request], hosts.survey.answers)
    return hosts


def dry_run(cloud: Cloud, request: VmRequest) -> dict[str, dict[str, Any]]:
    """
    Return the table of hosts and deploy nothing; raise the errors of a deployment.

    The row of the host that would get the VM has ``chosen``, ``vm`` and maybe ``warnings``, too.
    """
    hosts = survey_or_refuse(cloud, request)
    evaluations = _evaluate(cloud, request, hosts)
    if hosts.is_sample and not any(evaluation.fits for evaluation in evaluations):
        hosts = _survey_hosts(cloud, request, is_whole=True)
        evaluations = _evaluate(cloud, request, hosts)
    if not any(evaluation.fits for evaluation in evaluations):
        raise hostbuild.no_host_fits_error(request.requirements, evaluations)
    table, host = hostbuild.table(evaluations), evaluations[0].host
    machines_by_host = choose_machines(request, hosts)
    warnings = request.warnings(host, hosts.survey.answers[host])
    if host in machines_by_host:
        warnings.append(_MACHINE_TEXT.format(machines_by_host[host]))
    table[host] |= {"chosen": True, "vm": request.name}
    table[host] |= {"warnings": warnings} if warnings else {}
    return table


def deploy(cloud: Cloud, request: VmRequest) -> dict[str, Any]:
    """
    Deploy a VM; return ``{"name", "host", "minion", "seconds", "addresses", "login"}``, and
    ``warnings`` if the host has any.
    """
    minionkeys.refuse_reserved(cloud.opts, request.name)
    with orders.opened(cloud.opts, request.name) as order:
        recovery.settle_order(cloud, order)
        hosts = _survey_hosts(cloud, request, order)
        outcome_text = interrupted.settle(
            cloud.opts, order, hosts.vm.presence_by_host, hosts.vm.may_have
        )
        refuse_taken(hosts.vm, outcome_text)
        minionwait.refuse_unproved(cloud.opts, [request], hosts.survey.answers)
        try:
            new_vm = _build_on_best_host(cloud, request, order, hosts)
        except NoHostFits:
            if not hosts.is_sample:
                raise
            hosts = _survey_hosts(cloud, request, order, is_whole=True)
            refuse_taken(hosts.vm)
            new_vm = _build_on_best_host(cloud, request, order, hosts)
    warnings_entry = {"warnings": new_vm.warnings} if new_vm.warnings else {}
    answer: dict[str, Any] = {}
    if request.terms.wait and request.starts and new_vm.is_seeded:
        wait_limit = minionwait.find_wait_limit(
            cloud.settings, request, hosts.survey.answers[new_vm.host]
        )
        answer = minionwait.wait_for_minion(
            cloud, request.name, new_vm.host, wait_limit, warnings_entry
        )
    if request.starts:
        answer |= reachvm.find_login(cloud, new_vm.host, request.name, has_minion=bool(answer))
    return {"name": request.name, "host": new_vm.host, **answer, **warnings_entry}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewVm:
    """A built VM: its host, whether it has a seed, and the host's warnings."""

    host: str
    is_seeded: bool
    warnings: list[str]


def _build_on_best_host(
    cloud: Cloud, request: VmRequest, order: LockedRecord, hosts: Candidates
) -> _NewVm:
    """Have the best host build a VM; raise NoHostFits if no host takes it."""
    evaluations = _evaluate(cloud, request, hosts)
    fitting_hosts = [evaluation.host for evaluation in evaluations if evaluation.fits]
    if not fitting_hosts:
        raise hostbuild.no_host_fits_error(request.requirements, evaluations)
    answers = hosts.survey.answers
    tell_of_nat(cloud, request.requirements, answers[fitting_hosts[0]])
    machines_by_host = choose_machines(request, hosts)
    if fitting_hosts[0] in machines_by_host:
        tell_of_machine(cloud, machines_by_host[fitting_hosts[0]])
    seeded_hosts = {host for host in fitting_hosts if request.is_seeded(answers[host])}
    unasked_hosts = [] if request.terms.force else sorted(hosts.survey.reasons())
    similar_names = presence.find_similar_names(request.name, presence.names(answers))
    images = offers.Images(cloud.opts).digests(request.images, request.saltenv)
    fit_count_text = f"{len(fitting_hosts)} of {terminal.count_text(len(evaluations), 'host')} fit"
    # If the caller named a host, a count of hosts would mislead.
    progress_template = "{} fits" if request.terms.host else f"on {{}}, {fit_count_text}"
    build = hostbuild.Build(
        cloud=cloud,
        request=request,
        order=order,
        hosts=[(host, progress_template.format(host)) for host in fitting_hosts],
        no_host_error=partial(hostbuild.no_host_fits_error, request.requirements, evaluations),
        report={"unasked": unasked_hosts, "others": similar_names, "images": images},
        machines_by_host=machines_by_host,
    )
    host = hostbuild.run_build(build, seeded_hosts)
    return _NewVm(host=host, is_seeded=host in seeded_hosts, warnings=build.warnings)


def choose_machines(request: VmRequest, hosts: Candidates) -> dict[str, str]:
    """Return the machine types that hosts are to give the VM, if their own choices differ."""
    infos_by_host = {
        host: info for host, info in hosts.survey.answers.items() if host not in hosts.names_only
    }
    chosen_types = {host: request.choose_machine(infos_by_host, host) for host in infos_by_host}
    return {host: machine for host, machine in chosen_types.items() if machine}


def tell_of_machine(cloud: Cloud, machine: str) -> None:
    """Show that a VM gets an older machine type than its host's newest."""
    cloud.progress("Machine", detail=_MACHINE_TEXT.format(machine))


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
