"""Have a host build a VM, with its key and its order; undo a build that fails."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.inventory.locate import ask_presence
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import (
    HostCommandFailed,
    HostUnresponsive,
    progress_watcher,
    timeout_message,
    warnings,
)
from saltvirt.core import undo
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import NoHostFits, VirtError
from saltvirt.core.journal.recordfacts import OrderFacts
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.model import Evaluation, Requirements
from saltvirt.placement import choose, cures
from saltvirt.vm.create.master.vmrequest import VmRequest

# The kind of error after which the host may have leftovers.
_UNDO_FAILED_KIND = "NotTakenBack"
# The kind of error after which the next host is tried.
_REFUSED_KIND = "ReservationRefused"
# Seconds before each question whether a host has ended its job: a busy host takes a while to
# remove what it fetched.
_UNDOING_S = (0, 1, 2, 4, 8, 15, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    A deployment in progress.

    hosts
        ``(host, detail of progress)`` of the hosts to ask, the best first; may be lazy.
    no_host_error
        Returns the error for ``{host: reasons}`` when no host is left.
    turn
        Returns the context to hold while a host builds. Defaults to none.
    report
        The master's facts for the host: hosts not asked, similar names, images.
    machines_by_host
        The machine types of hosts that are not to choose one themselves.
    uuid
        The VM's UUID, which tells the VM from others of its name on all hosts.
    """

    cloud: Cloud
    request: VmRequest
    order: LockedRecord
    hosts: Iterable[tuple[str, str]]
    no_host_error: Callable[[Mapping[str, list[str]]], VirtError]
    turn: Callable[[str], AbstractContextManager[object]] = nullcontext
    warnings: list[str] = field(default_factory=list)
    report: Mapping[str, Any]
    machines_by_host: Mapping[str, str] = field(default_factory=dict)
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def name(self) -> str:
        """The VM's name."""
        return self.request.name

    @property
    def facts(self) -> OrderFacts:
        """The facts in the order's record."""
        return orders.read_facts(self.order.now)


def run_build(build: Build, seeded_hosts: Collection[str]) -> str:
    """
    Have one of the hosts build a VM; return that host. On failure discard the VM's key.

    seeded_hosts
        The hosts that make a seed for the VM.
    """
    try:
        with undo.on_failure() as steps:
            orders.begin(build.order, orders.PLACING)
            steps.undo_with(_take_back, build)
            pair = _accept_key_pair(build) if seeded_hosts else None
            host = _build(build, {host: pair for host in seeded_hosts})
        build.order.enter(orders.BUILT)
        _end_order(build, host, pair if host not in seeded_hosts else None)
    except (KeyboardInterrupt, SystemExit):
        if build.order.record is None:
            raise
        raise HostCommandFailed(f"interrupted, but {_describe_leftovers(build)}") from None
    except VirtError as error:
        if build.order.record is None:
            raise
        raise HostUnresponsive(f"{error}; {_describe_leftovers(build)}") from error
    return host


def _end_order(build: Build, host: str, unused_pair: tuple[str, str] | None) -> None:
    """End the order of a built VM; discard a key pair that its host did not need."""
    lastseen.record_move(build.cloud.opts, build.name, host)
    if unused_pair:
        minionkeys.discard(build.cloud.opts, build.name, unused_pair[0])
    build.order.end()


def _describe_leftovers(build: Build) -> str:
    """Return what a failed deployment left, and the commands that undo it."""
    name, host = build.name, build.facts.host
    on_host_text = f"may still be made, or be left, on {host}; when that answers,"
    leftover_text = on_host_text if host else "has left its key;"
    function = build.request.function
    return (
        f"VM {name!r} {leftover_text} run {function} again, which keeps what is complete and takes "
        f"back what is not, or salt-run virt.purge {name}"
    )


def _accept_key_pair(build: Build) -> tuple[str, str]:
    minionkeys.refuse_reserved(build.cloud.opts, build.name)
    minionkeys.refuse_taken(build.cloud.opts, build.name)
    public, private = keypair.generate()
    orders.enter(build.order, orders.KEYED, replace(build.facts, public_key=public))
    minionkeys.accept(build.cloud.opts, build.name, public)
    return public, private


def _take_back(build: Build) -> None:
    """End a failed order and discard its key, unless a host may still build the VM."""
    facts = build.facts
    if build.order.now.phase == orders.ORDERED and not _has_given_up(build, facts):
        return
    if facts.public_key:
        minionkeys.discard(build.cloud.opts, build.name, facts.public_key)
    build.order.end()


def _has_given_up(build: Build, facts: OrderFacts) -> bool:
    """
    Return whether the host that was asked confirms that it will never complete the VM.

    Waits while the host undoes the build. Leftovers of a build that died need no key.
    """
    host, order_id = facts.host, facts.order_id
    if host is None or order_id is None:
        return False
    timeout_count = 0
    for wait_s in _UNDOING_S:
        time.sleep(wait_s)
        answer = minions.refuse(build.cloud, host, order_id)
        if answer is None:
            # A host that is ending a job may miss one timeout; an unresponsive host costs two.
            timeout_count += 1
            if timeout_count > 1:
                return False
            continue
        if answer == minions.RUNNING:
            build.cloud.progress("Undoing", detail=f"on {host}, which is at it")
            continue
        sighting = ask_presence(build.cloud, host, build.name)
        if sighting is None or sighting.is_complete:
            return False
        if not sighting.is_trace or sighting.unfinished:
            return sighting.state is None
    return False


def table(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Any]]:
    """Return ``{host: {"fits", "score", "reasons"}}``, the table of ``dry_run=True``."""
    return {evaluation.host: evaluation.to_dict() for evaluation in evaluations}


def no_host_fits_error(
    requirements: Requirements,
    evaluations: Iterable[Evaluation],
    refusals: Mapping[str, Iterable[str]] | None = None,
    command: str = cures.INIT,
) -> NoHostFits:
    """
    Return the error with every host's reasons against a VM.

    refusals
        ``{host: reasons}`` of hosts that fitted, but refused the build.
    command
        The operator's command, which decides the remedies.
    """
    late_evaluations = {
        host: Evaluation(host=host, reasons=tuple(reasons))
        for host, reasons in (refusals or {}).items()
    }
    evaluations = [late_evaluations.get(evaluation.host, evaluation) for evaluation in evaluations]
    error = choose.no_host_fits(requirements, evaluations, command)
    reasons = (reason for host_evaluation in evaluations for reason in host_evaluation.reasons)
    texts = cures.find_cures(reasons, command, requirements.name or "NAME")
    error.table = {"hosts": table(evaluations), **({"helps": texts} if texts else {})}
    return error


def _build(build: Build, pairs: Mapping[str, tuple[str, str] | None]) -> str:
    """Have the best host build the VM; try the next host after a refusal."""
    name, cloud = build.name, build.cloud
    reasons_by_host: dict[str, list[str]] = {}
    for host, detail in build.hosts:
        cloud.progress("Placing", detail=detail)
        facts = replace(build.facts, host=host, order_id=minions.new_id(), given_uuid=build.uuid)
        orders.enter(build.order, orders.ORDERED, facts)
        with build.turn(host):
            reply = _order(build, host, pairs.get(host))
        if reply.is_missing:
            raise HostUnresponsive(f"{timeout_message(reply, None)}, while it built {name!r}")
        if reply.ok:
            build.warnings.extend(warnings(reply.value))
            return host
        if reply.kind == _UNDO_FAILED_KIND:
            raise HostCommandFailed(f"{host}: {reply.error}")
        # The host itself replied that it has nothing of the VM.
        previous_phase = orders.KEYED if pairs else orders.PLACING
        orders.enter(build.order, previous_phase, replace(build.facts, host=None))
        if reply.kind != _REFUSED_KIND:
            raise HostCommandFailed(f"{host}: {reply.error}")
        reasons_by_host[host] = [cures.strip_cures(reply.error or "")]
        cloud.progress("Placing", detail=f"{host} refused: {reply.error}")
    raise build.no_host_error(reasons_by_host)


def _order(build: Build, host: str, pair: tuple[str, str] | None) -> minions.Reply:
    request = build.request
    kwarg = {**request.kwarg, "report": {**build.report, "uuid": build.uuid}}
    machine = build.machines_by_host.get(host)
    kwarg |= {"machine": machine} if machine else {}
    if pair:
        kwarg |= {
            "pub_key": pair[0],
            "priv_key": minionkeys.seal_for(build.cloud.opts, host, pair[1]),
        }
    return minions.order(
        build.cloud,
        host,
        request.function,
        list(request.arg),
        kwarg,
        watch=progress_watcher(build.cloud, "salt/virt/init", host, build.name),
        order_id=build.facts.order_id,
    )
