"""Deploy many VMs: ask all hosts once, plan once, then build some at a time on each host."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import terminal, undo
from saltvirt.core.errors import NoSuchVm, VirtError
from saltvirt.core.salt import threads
from saltvirt.vm.create.master import deploy, minionwait
from saltvirt.vm.create.master.many.builds import Builds, Claim
from saltvirt.vm.create.master.many.manyrequest import (
    Call,
    Outcome,
    describe_next_step,
    not_built_error,
)
from saltvirt.vm.create.master.many.planning import DeployPlan, make_plan
from saltvirt.vm.purge.master import purging
from saltvirt.vm.recovery.master import interrupted

_PURGES = 8


def dry_run(cloud: Cloud, call: Call) -> dict[str, Any]:
    """
    Return ``{"plan", "exists", "failed"}``, and build nothing; raise if a VM has no place.

    ``warnings`` (``{name: [text]}``) is there if a VM would have an empty disk.
    """
    _refuse_reserved(cloud, call)
    deploy_plan = make_plan(cloud, call, {})
    failed = deploy_plan.failed()
    out = {"plan": deploy_plan.plan.hosts, "exists": deploy_plan.names.exists, "failed": failed}
    if failed:
        raise not_built_error(call, failed, out, "nothing was built")
    return {**out, **_warn_of_empty_disks(deploy_plan)}


def _warn_of_empty_disks(deploy_plan: DeployPlan) -> dict[str, Any]:
    """Return ``{"warnings": {name: [text]}}`` of the VMs that would have an empty disk."""
    warnings: dict[str, list[str]] = {}
    for request in deploy_plan.names.new:
        if host := deploy_plan.plan.hosts.get(request.name):
            warnings[request.name] = request.warnings(host, deploy_plan.hosts.answers[host])
    shown_warnings = {name: texts for name, texts in warnings.items() if texts}
    return {"warnings": shown_warnings} if shown_warnings else {}


def deploy_many(cloud: Cloud, call: Call) -> dict[str, Any]:
    """
    Build the VMs that do not exist yet, and return the :class:`Outcome` as plain data.

    Raises NotAllBuilt with the outcome if a VM is not built; NameTaken, before any build, if a name
    belongs to another VM.
    """
    with _claim_names(cloud, call) as claims:
        orders_by_name = {name: claim.order for name, claim in claims.items()}
        deploy_plan = make_plan(cloud, call, orders_by_name)
        out = Outcome(exists=deploy_plan.names.exists, failed=deploy_plan.failed())
        if call.all_or_nothing and out.failed:
            advice = "all or nothing: nothing was built"
            raise not_built_error(call, out.failed, out.to_dict(), advice)
        for name in claims.keys() - deploy_plan.plan.hosts.keys():
            claims.pop(name).stack.close()
        _tell_of_first(cloud, deploy_plan)
        builds = Builds(cloud, call, deploy_plan, claims)
        builds.build_all(out)
        if call.terms.wait and not (call.all_or_nothing and out.failed):
            _await_minions(cloud, deploy_plan, out, builds)
        if call.all_or_nothing and out.failed:
            _purge(cloud, claims, builds.uuids, out)
    if out.failed:
        raise not_built_error(call, out.failed, out.to_dict(), describe_next_step(call, out))
    return out.to_dict()


def _tell_of_first(cloud: Cloud, deploy_plan: DeployPlan) -> None:
    """Show the limits of NAT, and an older machine type, once, if they concern the first VM."""
    answers = deploy_plan.hosts.answers
    for request in deploy_plan.names.new:
        if host := deploy_plan.plan.hosts.get(request.name):
            deploy.tell_of_nat(cloud, request.requirements, answers[host])
            if machine := request.choose_machine(answers, host):
                deploy.tell_of_machine(cloud, machine)
            return


def _refuse_reserved(cloud: Cloud, call: Call) -> None:
    for request in call.requests:
        minionkeys.refuse_reserved(cloud.opts, request.name)


@contextmanager
def _claim_names(cloud: Cloud, call: Call) -> Iterator[dict[str, Claim]]:
    """Yield ``{name: Claim}``: all names are claimed before hosts are asked about them."""
    _refuse_reserved(cloud, call)
    with ExitStack() as outer_stack:
        out = {}
        for request in call.requests:
            stack = outer_stack.enter_context(ExitStack())
            order = stack.enter_context(orders.opened(cloud.opts, request.name))
            out[request.name] = Claim(order=order, stack=stack)
        yield out


def _await_minions(cloud: Cloud, deploy_plan: DeployPlan, out: Outcome, builds: Builds) -> None:
    """Wait for the minions of built VMs; a VM without an answer has failed, and stays."""
    deadlines = {}
    for request in deploy_plan.names.new:
        host = out.built.get(request.name)
        if host is None or not request.starts:
            continue
        info = deploy_plan.hosts.answers[host]
        if request.is_seeded(info):
            wait_limit = minionwait.find_wait_limit(cloud.settings, request, info)
            deadlines[request.name] = builds.ended[request.name] + wait_limit.wait_s
    if not deadlines:
        return
    longest_s = max(0, int(max(deadlines.values()) - time.monotonic()))
    minions = terminal.count_text(len(deadlines), "minion")
    cloud.progress("Waiting", detail=f"for {minions}, at most {longest_s} s")
    answer_times = dict[str, float]()
    consoles = minionwait.Consoles(cloud, {name: out.built[name] for name in deadlines})
    problem = _wait_for_minions(cloud, deadlines, answer_times, builds, consoles)
    out.seconds = {name: round(at - builds.ended[name], 1) for name, at in answer_times.items()}
    for name in deadlines.keys() - answer_times.keys():
        host = out.built[name]
        has_no_minion = name in consoles.without_minion
        reason = minionwait.describe_no_minion(name, host) if has_no_minion else problem
        out.failed[name] = f"it is built on {host} and keeps its key, but {reason}"


def _wait_for_minions(
    cloud: Cloud,
    deadlines: Mapping[str, float],
    answer_times: dict[str, float],
    builds: Builds,
    consoles: minionwait.Consoles,
) -> str:
    """Add minions to ``answer_times`` as they answer; return the problem of the others."""
    try:
        if not builds.is_interrupted:
            minionwait.wait_for_minions(cloud, deadlines, answer_times, consoles=consoles)
    except (KeyboardInterrupt, SystemExit):
        builds.is_interrupted = True
    except VirtError as error:
        return f"its minion was not waited for any longer: {error}"
    if builds.is_interrupted:
        return "its minion was not waited for any longer, as the command was interrupted"
    return "its minion does not answer in time"


def _purge(
    cloud: Cloud, claims: Mapping[str, Claim], uuids: Mapping[str, str], out: Outcome
) -> None:
    """Purge what this call has built, each VM under the order that the call holds."""
    built, out.built = out.built, {}
    # A failed VM that still has an order may be on its host.
    maybe_built = [n for n in out.failed if n in uuids and claims[n].order.record is not None]
    cloud.progress("Purging", detail=terminal.count_text(len(built), "VM"))

    def purge_vm(name: str) -> None:
        try:
            order = claims[name].order
            if name in built:
                purging.take_back(cloud, order, name, built[name], uuids[name])
                out.purged[name] = built[name]
            else:
                # Another VM made under that name meanwhile is not this call's.
                only, uuid = interrupted.order_hosts(order), uuids[name]
                purged_hosts = purging.purge_locked(
                    cloud, order, name, only=only, uuid=uuid, only_made=True
                )
                out.purged[name] = next(iter(purged_hosts))
        except NoSuchVm as error:
            if name in built or error.silent:
                out.not_purged[name] = str(error)
        except (VirtError, OSError) as error:
            out.not_purged[name] = str(error)

    # Hold interruptions back: this call holds the names, and must report leftovers.
    held_back = undo.undisturbed()
    with suppress(KeyboardInterrupt, SystemExit), held_back, ThreadPoolExecutor(_PURGES) as pool:
        jobs = [
            threads.begin(pool, purge_vm, name) for name in dict.fromkeys([*built, *maybe_built])
        ]
        wait(jobs)
    for job in jobs:
        job.result()
