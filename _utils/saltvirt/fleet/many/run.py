"""Deploy many VMs: look at all hosts once, plan once, then build some at a time on each host."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from saltvirt import config, terminal, undo
from saltvirt.errors import NoSuchVm, VirtError
from saltvirt.fleet import awaiting, deploy, interrupted, keys, orders, threads
from saltvirt.fleet import purge as removing
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.many import answering
from saltvirt.fleet.many.builds import Builds, Claim
from saltvirt.fleet.many.outcome import Call, Outcome, not_all, what_now
from saltvirt.fleet.many.planning import Picture, Sorted, give_up, sort
from saltvirt.model import Policy, Requirements
from saltvirt.placement.many import Plan

_PURGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """All hosts as they answered, which names are there, and where the others go."""

    picture: Picture
    required: Mapping[str, Requirements]
    names: Sorted
    plan: Plan
    policy: Policy

    def failed(self) -> dict[str, str]:
        """Return ``{name: why}`` of those that cannot be built."""
        said: dict[int, str] = {}
        for why in self.plan.unplaced.values():
            # The same answer for all that need the same.
            said.setdefault(id(why), self.picture.why_nowhere(why))
        nowhere = {name: said[id(why)] for name, why in self.plan.unplaced.items()}
        return {**self.names.taken, **nowhere}


def dry_run(cloud: Cloud, call: Call) -> dict[str, Any]:
    """Return ``{"plan", "exists", "failed"}``, and build nothing; raise if one has no place."""
    planned = _planned(cloud, call, {})
    _refuse_unproved(cloud, call, planned)
    failed = planned.failed()
    out = {"plan": planned.plan.hosts, "exists": planned.names.exists, "failed": failed}
    if failed:
        raise not_all(call, failed, out, "nothing was built")
    return out


def _refuse_unproved(cloud: Cloud, call: Call, planned: Planned) -> None:
    if call.wait:
        awaiting.refuse_unproved(cloud.opts, planned.names.new, planned.picture.answers)


def deploy_many(cloud: Cloud, call: Call) -> dict[str, Any]:
    """
    Build the VMs that are not there yet, and return the :class:`Outcome` as plain data.

    Raises NotAllBuilt with it if one is not built; NameTaken, before anything is built, if a name
    is another VM's.
    """
    with _claimed(cloud, call) as claims:
        planned = _planned(cloud, call, claims)
        _refuse_unproved(cloud, call, planned)
        out = Outcome(exists=planned.names.exists, failed=planned.failed())
        if call.whole and out.failed:
            what = "all or nothing: nothing was built"
            raise not_all(call, out.failed, out.to_dict(), what)
        for name in claims.keys() - planned.plan.hosts.keys():
            claims.pop(name).stack.close()
        for name, host in [*planned.plan.hosts.items()][:1]:
            deploy.tell_of_nat(cloud, planned.required[name], planned.picture.answers[host])
        builds = Builds(
            cloud, call, planned.picture, planned.plan, planned.required, planned.policy, claims
        )
        builds.all(out)
        if call.wait and not (call.whole and out.failed):
            _await(cloud, call, planned.picture, out, builds)
        if call.whole and out.failed:
            _purge(cloud, claims, builds.uuids, out)
    if out.failed:
        raise not_all(call, out.failed, out.to_dict(), what_now(call, out))
    return out.to_dict()


@contextmanager
def _claimed(cloud: Cloud, call: Call) -> Iterator[dict[str, Claim]]:
    """Yield ``{name: Claim}``: all names are ours before hosts are asked who has them."""
    _check(cloud, call)
    with ExitStack() as every:
        out = {}
        for request in call.requests:
            stack = every.enter_context(ExitStack())
            order = stack.enter_context(orders.opened(cloud.opts, request.name))
            out[request.name] = Claim(order=order, stack=stack)
        yield out


def _check(cloud: Cloud, call: Call) -> Policy:
    """Return how hosts are chosen; refuse what is refused whatever the hosts say."""
    for request in call.requests:
        keys.refuse_reserved(cloud.opts, request.name)
    return config.policy(cloud.settings, call.requests[0].placed)


def _planned(cloud: Cloud, call: Call, claims: Mapping[str, Claim]) -> Planned:
    policy = _check(cloud, call)
    held = {name: claim.order for name, claim in claims.items()}
    late, stuck = give_up(cloud, held)
    required = {request.name: request.required() for request in call.requests}
    picture = Picture(cloud, call.requests, required.values(), policy)
    settled = [request for request in call.requests if request.name not in stuck]
    names = sort(cloud, settled, picture, held, late)
    names.taken.update(stuck)
    plan = picture.plan([required[one.name] for one in names.new], policy)
    cloud.progress("Placing", detail=_said(plan, names))
    return Planned(picture=picture, required=required, names=names, plan=plan, policy=policy)


def _said(plan: Plan, names: Sorted) -> str:
    hosts = terminal.counted(len(set(plan.hosts.values())), "host")
    there = f"; {len(names.exists)} there already" if names.exists else ""
    return f"{terminal.counted(len(plan.hosts), 'VM')} on {hosts}{there}"


def _await(cloud: Cloud, call: Call, picture: Picture, out: Outcome, builds: Builds) -> None:
    """Wait for the minions of what was built; one that does not answer has failed, and stays."""
    until = {}
    for request in call.requests:
        host, given = out.built.get(request.name), request.given
        if host is None or not given.get("start", True):
            continue
        info = picture.answers[host]
        if request.is_seeded(info):
            emulated = awaiting.is_emulated(info, given.get("hypervisor"))
            patience = awaiting.patience(cloud.settings, request.wait_s, emulated=emulated)
            until[request.name] = builds.ended[request.name] + patience.wait_s
    if not until:
        return
    longest_s = max(0, int(max(until.values()) - time.monotonic()))
    minions = terminal.counted(len(until), "minion")
    cloud.progress("Waiting", detail=f"for {minions}, at most {longest_s} s")
    found = dict[str, float]()
    late = _waited(cloud, until, found, builds)
    out.seconds = {name: round(at - builds.ended[name], 1) for name, at in found.items()}
    out.failed |= {
        name: f"it is built on {out.built[name]} and keeps its key, but its minion {late}"
        for name in until
        if name not in found
    }


def _waited(
    cloud: Cloud, until: Mapping[str, float], found: dict[str, float], builds: Builds
) -> str:
    """Wait for minions, of which those that answer come to ``found``; return why not the others."""
    try:
        if not builds.is_interrupted:
            answering.wait(cloud, until, found)
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
    """Take back what this call has built, each VM under the order that it still has."""
    built, out.built = out.built, {}
    # One that failed and has an order still may be on its host.
    may_be = [n for n in out.failed if n in uuids and claims[n].order.record is not None]
    cloud.progress("Purging", detail=terminal.counted(len(built), "VM"))

    def one(name: str) -> None:
        try:
            order = claims[name].order
            if name in built:
                removing.take_back(cloud, order, name, built[name], uuids[name])
                out.purged[name] = built[name]
            else:
                # One that somebody has made meanwhile is not this call's.
                only, uuid = interrupted.hosts(order), uuids[name]
                done = removing.under(cloud, order, name, only=only, uuid=uuid, is_undo=True)
                out.purged[name] = next(iter(done))
        except NoSuchVm as error:
            if name in built or error.silent:
                out.left[name] = str(error)
        except (VirtError, OSError) as error:
            out.left[name] = str(error)

    # Whoever interrupts it is told to wait: the names are ours, and what is left is to be said.
    held_back = undo.undisturbed()
    with suppress(KeyboardInterrupt, SystemExit), held_back, ThreadPoolExecutor(_PURGES) as pool:
        jobs = [threads.begin(pool, one, name) for name in dict.fromkeys([*built, *may_be])]
        wait(jobs)
    for job in jobs:
        job.result()
