"""Deploy many VMs: ask all hosts once, plan once, then build some at a time on each host."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import terminal, undo
from saltvirt.core.errors import NoSuchVm, VirtError
from saltvirt.core.model import Policy, Requirements
from saltvirt.core.options import config
from saltvirt.core.salt import threads
from saltvirt.placement.many import Plan
from saltvirt.vm.create.master import deploy, minionwait
from saltvirt.vm.create.master.many import minionwaits
from saltvirt.vm.create.master.many.builds import Builds, Claim
from saltvirt.vm.create.master.many.outcome import (
    Call,
    Outcome,
    describe_next_step,
    not_built_error,
)
from saltvirt.vm.create.master.many.planning import Picture, SortedNames, give_up, sort_names
from saltvirt.vm.purge.master import purge
from saltvirt.vm.recovery.master import interrupted

_PURGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployPlan:
    """The hosts' answers, the names that exist, and where the others go."""

    picture: Picture
    required: Mapping[str, Requirements]
    names: SortedNames
    plan: Plan
    policy: Policy

    def failed(self) -> dict[str, str]:
        """Return ``{name: reason}`` of the VMs that cannot be built."""
        lines_by_id: dict[int, str] = {}
        for host_reasons in self.plan.unplaced.values():
            # VMs with the same needs share this object, and so the line.
            lines_by_id.setdefault(id(host_reasons), self.picture.why_nowhere(host_reasons))
        nowhere = {
            name: lines_by_id[id(host_reasons)] for name, host_reasons in self.plan.unplaced.items()
        }
        return {**self.names.taken, **nowhere}


def dry_run(cloud: Cloud, call: Call) -> dict[str, Any]:
    """Return ``{"plan", "exists", "failed"}``, and build nothing; raise if a VM has no place."""
    deploy_plan = _make_plan(cloud, call, {})
    _refuse_unproved(cloud, call, deploy_plan)
    failed = deploy_plan.failed()
    out = {"plan": deploy_plan.plan.hosts, "exists": deploy_plan.names.exists, "failed": failed}
    if failed:
        raise not_built_error(call, failed, out, "nothing was built")
    return out


def _refuse_unproved(cloud: Cloud, call: Call, deploy_plan: DeployPlan) -> None:
    if call.wait:
        minionwait.refuse_unproved(cloud.opts, deploy_plan.names.new, deploy_plan.picture.answers)


def deploy_many(cloud: Cloud, call: Call) -> dict[str, Any]:
    """
    Build the VMs that do not exist yet, and return the :class:`Outcome` as plain data.

    Raises NotAllBuilt with the outcome if a VM is not built; NameTaken, before any build, if a name
    belongs to another VM.
    """
    with _claim_names(cloud, call) as claims:
        deploy_plan = _make_plan(cloud, call, claims)
        _refuse_unproved(cloud, call, deploy_plan)
        out = Outcome(exists=deploy_plan.names.exists, failed=deploy_plan.failed())
        if call.whole and out.failed:
            advice = "all or nothing: nothing was built"
            raise not_built_error(call, out.failed, out.to_dict(), advice)
        for name in claims.keys() - deploy_plan.plan.hosts.keys():
            claims.pop(name).stack.close()
        for name, host in [*deploy_plan.plan.hosts.items()][:1]:
            deploy.tell_of_nat(cloud, deploy_plan.required[name], deploy_plan.picture.answers[host])
        builds = Builds(
            cloud,
            call,
            deploy_plan.picture,
            deploy_plan.plan,
            deploy_plan.required,
            deploy_plan.policy,
            claims,
        )
        builds.all(out)
        if call.wait and not (call.whole and out.failed):
            _await_minions(cloud, call, deploy_plan.picture, out, builds)
        if call.whole and out.failed:
            _purge(cloud, claims, builds.uuids, out)
    if out.failed:
        raise not_built_error(call, out.failed, out.to_dict(), describe_next_step(call, out))
    return out.to_dict()


@contextmanager
def _claim_names(cloud: Cloud, call: Call) -> Iterator[dict[str, Claim]]:
    """Yield ``{name: Claim}``: all names are claimed before hosts are asked about them."""
    _check(cloud, call)
    with ExitStack() as outer_stack:
        out = {}
        for request in call.requests:
            stack = outer_stack.enter_context(ExitStack())
            order = stack.enter_context(orders.opened(cloud.opts, request.name))
            out[request.name] = Claim(order=order, stack=stack)
        yield out


def _check(cloud: Cloud, call: Call) -> Policy:
    """Return the placement policy; raise for what is refused before hosts are asked."""
    for request in call.requests:
        minionkeys.refuse_reserved(cloud.opts, request.name)
    return config.policy(cloud.settings, call.requests[0].placed)


def _make_plan(cloud: Cloud, call: Call, claims: Mapping[str, Claim]) -> DeployPlan:
    policy = _check(cloud, call)
    orders_by_name = {name: claim.order for name, claim in claims.items()}
    pending_jobs, stuck_reasons = give_up(cloud, orders_by_name)
    required = {request.name: request.required() for request in call.requests}
    picture = Picture(cloud, call.requests, required.values(), policy)
    settled_requests = [request for request in call.requests if request.name not in stuck_reasons]
    names = sort_names(cloud, settled_requests, picture, orders_by_name, pending_jobs)
    names.taken.update(stuck_reasons)
    plan = picture.plan([required[new_request.name] for new_request in names.new], policy)
    cloud.progress("Placing", detail=_describe_plan(plan, names))
    return DeployPlan(picture=picture, required=required, names=names, plan=plan, policy=policy)


def _describe_plan(plan: Plan, names: SortedNames) -> str:
    hosts = terminal.count_text(len(set(plan.hosts.values())), "host")
    exists_text = f"; {len(names.exists)} there already" if names.exists else ""
    return f"{terminal.count_text(len(plan.hosts), 'VM')} on {hosts}{exists_text}"


def _await_minions(
    cloud: Cloud, call: Call, picture: Picture, out: Outcome, builds: Builds
) -> None:
    """Wait for the minions of built VMs; a VM without an answer has failed, and stays."""
    deadlines = {}
    for request in call.requests:
        host, kwargs = out.built.get(request.name), request.given
        if host is None or not kwargs.get("start", True):
            continue
        info = picture.answers[host]
        if request.is_seeded(info):
            emulated = minionwait.is_emulated(info, kwargs.get("hypervisor"))
            patience = minionwait.patience(cloud.settings, request.wait_s, emulated=emulated)
            deadlines[request.name] = builds.ended[request.name] + patience.wait_s
    if not deadlines:
        return
    longest_s = max(0, int(max(deadlines.values()) - time.monotonic()))
    minions = terminal.count_text(len(deadlines), "minion")
    cloud.progress("Waiting", detail=f"for {minions}, at most {longest_s} s")
    answer_times = dict[str, float]()
    problem = _wait_for_minions(cloud, deadlines, answer_times, builds)
    out.seconds = {name: round(at - builds.ended[name], 1) for name, at in answer_times.items()}
    out.failed |= {
        name: f"it is built on {out.built[name]} and keeps its key, but its minion {problem}"
        for name in deadlines
        if name not in answer_times
    }


def _wait_for_minions(
    cloud: Cloud, deadlines: Mapping[str, float], answer_times: dict[str, float], builds: Builds
) -> str:
    """Add minions to ``answer_times`` as they answer; return the problem of the others."""
    try:
        if not builds.is_interrupted:
            minionwaits.wait_for_minions(cloud, deadlines, answer_times)
    except (KeyboardInterrupt, SystemExit):
        builds.is_interrupted = True
    except VirtError as error:
        return f"was not waited for any longer: {error}"
    if builds.is_interrupted:
        return "was not waited for any longer, as the command was interrupted"
    return "does not answer in time"


def _purge(
    cloud: Cloud, claims: Mapping[str, Claim], uuids: Mapping[str, str], out: Outcome
) -> None:
    """Purge what this call has built, each VM under the order that the call holds."""
    built, out.built = out.built, {}
    # A failed VM that still has an order may be on its host.
    maybe_built = [n for n in out.failed if n in uuids and claims[n].order.record is not None]
    cloud.progress("Purging", detail=terminal.count_text(len(built), "VM"))

    def one(name: str) -> None:
        try:
            order = claims[name].order
            if name in built:
                purge.take_back(cloud, order, name, built[name], uuids[name])
                out.purged[name] = built[name]
            else:
                # Another VM made under that name meanwhile is not this call's.
                only, uuid = interrupted.order_hosts(order), uuids[name]
                purged_hosts = purge.purge_locked(
                    cloud, order, name, only=only, uuid=uuid, is_undo=True
                )
                out.purged[name] = next(iter(purged_hosts))
        except NoSuchVm as error:
            if name in built or error.silent:
                out.left[name] = str(error)
        except (VirtError, OSError) as error:
            out.left[name] = str(error)

    # Hold interruptions back: this call holds the names, and must report leftovers.
    held_back = undo.undisturbed()
    with suppress(KeyboardInterrupt, SystemExit), held_back, ThreadPoolExecutor(_PURGES) as pool:
        jobs = [threads.begin(pool, one, name) for name in dict.fromkeys([*built, *maybe_built])]
        wait(jobs)
    for job in jobs:
        job.result()
