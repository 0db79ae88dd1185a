"""Have one of the hosts build a VM, with its key and its order; what fails is taken back."""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import keypair, profiles, spec, terminal, undo
from saltvirt.errors import BadArgument, NoHostFits, VirtError
from saltvirt.fleet import hints, inventory, keys, minions, orders, sightings
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import (
    HostCommandFailed,
    HostUnresponsive,
    progress_watcher,
    timeout_message,
    warnings,
)
from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import choose, cures
from saltvirt.placement.answers import HostInfo
from saltvirt.recordfacts import OrderFacts
from saltvirt.records import LockedRecord

# The kinds of errors that say that another host may be tried, or that something is left on one.
_UNDO_FAILED_KIND = "NotTakenBack"
# A host of the release before says the second.
_REFUSED_KINDS = ("ReservationRefused", "ClaimRefused")
# How long to wait before each question whether a host has ended what it was told to end: a busy
# one takes a while to remove what it has fetched.
_UNDOING_S = (0, 1, 2, 4, 8, 15, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    A VM that is asked for, and where it may go.

    name, cpu, mem, given
        The arguments of ``virt.init``, and its keyword arguments.
    host, where, placed
        This hypervisor alone, or those that match this compound target; how the best is chosen.
    force
        Make it even though a host that cannot be asked may have a VM of that name.
    wait_s
        How long its minion is waited for. Defaults to what its host needs.
    """

    name: str
    cpu: int | dict[str, Any]
    mem: int | dict[str, Any]
    given: dict[str, Any]
    host: str | None = None
    where: str | None = None
    placed: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    wait_s: int | None = None

    @property
    def function(self) -> str:
        """The function of a host that makes the VM."""
        return "virt.init"

    @property
    def values(self) -> list[Any]:
        """What that is given by position."""
        return [self.name, self.cpu, self.mem]

    def is_seeded(self, info: HostInfo) -> bool:
        """
        Return whether a host makes a seed for the VM.

        info
            The host's answer to ``virt.host_info``: its disk profile may have an image of its own.
        """
        options = self.given
        profile = info.profiles.disk.get(options.get("disk", spec.OPTIONS["disk"]) or "")
        has_image = any(profiles.images(options)) or (profile and profile.has_image)
        return bool(options.get("seed", True) and has_image)

    def required(self) -> Requirements:
        """Return what the VM takes of a host; refuse what the master cannot ask a host for."""
        requirements = spec.requirements_from_master(self.name, self.cpu, self.mem, self.given)
        self.refuse_keys()
        return requirements

    def refuse_keys(self) -> None:
        """Raise BadArgument if the call gives keys of its own."""
        for keyword in ("pub_key", "priv_key"):
            if self.given.get(keyword) is not None:
                raise BadArgument(
                    keyword,
                    "the runner makes the keys itself; to use your own, call "
                    f"salt HOST {self.function} {self.values[0]} ...",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """
    The hosts that are asked to build a VM, one after the other.

    hosts
        ``(host, what is said of it)``, the best first; they are looked for as they are needed.
    none
        Returns the error that none took it, for ``{host: why it refused}``.
    turn
        Returns what is held while a host is at it. Defaults to nothing.
    """

    hosts: Iterable[tuple[str, str]]
    none: Callable[[Mapping[str, list[str]]], VirtError]
    turn: Callable[[str], AbstractContextManager[object]] = nullcontext


def tries(request: Request, requirements: Requirements, evaluations: list[Evaluation]) -> Tries:
    """Return the hosts that fit a VM, of which at least one does."""
    fitting_hosts = [evaluation.host for evaluation in evaluations if evaluation.fits]
    fit_count_text = f"{len(fitting_hosts)} of {terminal.count_text(len(evaluations), 'host')} fit"

    def none(reasons_by_host: Mapping[str, list[str]]) -> VirtError:
        return no_host_fits_error(requirements, evaluations, reasons_by_host)

    # Whoever names a host is told of that one.
    detail_template = "{} fits" if request.host else f"on {{}}, {fit_count_text}"
    return Tries(hosts=[(host, detail_template.format(host)) for host in fitting_hosts], none=none)


def taking(answers: Mapping[str, HostInfo]) -> frozenset[str]:
    """Return which hosts say that they give a VM the UUID which the master has chosen."""
    return frozenset(host for host, info in answers.items() if info.takes_uuid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    A deployment in progress: what was asked for, its order, and what its host warns of.

    tries
        Who is asked to build it.
    report
        What its host is told of the others, and of images.
    taking
        The hosts that give a VM the UUID below.
    uuid
        What the VM is called to all hosts, so that nobody takes another of its name for it.
    """

    cloud: Cloud
    request: Request
    order: LockedRecord
    tries: Tries
    warnings: list[str] = field(default_factory=list)
    report: Mapping[str, Any]
    taking: Collection[str]
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def name(self) -> str:
        """The VM's name."""
        return self.request.name

    @property
    def facts(self) -> OrderFacts:
        """What is on record of it."""
        return orders.read_facts(self.order.now)


def run_build(build: Build, seeded_hosts: Collection[str]) -> str:
    """
    Have one of the hosts build a VM, and return that host; a VM that is not built has no key.

    seeded
        The hosts that make a seed for it.
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
    """End the order of a VM that is built, and discard a key pair that its host did not need."""
    hints.record_move(build.cloud.opts, build.name, host)
    if unused_pair:
        keys.discard(build.cloud.opts, build.name, unused_pair[0])
    build.order.end()


def _describe_leftovers(build: Build) -> str:
    """Return what is left of a deployment that failed, and which command takes it back."""
    name, host = build.name, build.facts.host
    on_host_text = f"may still be made, or be left, on {host}; when that answers,"
    leftover_text = on_host_text if host else "has left its key;"
    function = build.request.function
    return (
        f"VM {name!r} {leftover_text} run {function} again, which keeps what is complete and takes "
        "back what "
        f"is not, or salt-run virt.purge {name}"
    )


def _accept_key_pair(build: Build) -> tuple[str, str]:
    keys.refuse_reserved(build.cloud.opts, build.name)
    keys.refuse_taken(build.cloud.opts, build.name)
    public, private = keypair.generate()
    orders.enter(build.order, orders.KEYED, replace(build.facts, public_key=public))
    keys.accept(build.cloud.opts, build.name, public)
    return public, private


def _take_back(build: Build) -> None:
    """End a failed deployment with its key, unless a host may still make its VM."""
    facts = build.facts
    if build.order.now.phase == orders.ORDERED and not _has_given_up(build, facts):
        return
    if facts.public_key:
        keys.discard(build.cloud.opts, build.name, facts.public_key)
    build.order.end()


def _has_given_up(build: Build, facts: OrderFacts) -> bool:
    """
    Return whether the host that was asked says that it has nothing of a VM, and never will have.

    What it undoes is waited for.
    """
    host, order_id = facts.host, facts.order_id
    if host is None or order_id is None:
        return False
    timeout_count = 0
    for wait_s in _UNDOING_S:
        time.sleep(wait_s)
        answer = minions.refuse(build.cloud, host, order_id)
        if answer is None:
            # One answer may be late, on a host that ends a job; a host that is down costs two.
            timeout_count += 1
            if timeout_count > 1:
                return False
            continue
        if answer == minions.RUNNING:
            build.cloud.progress("Undoing", detail=f"on {host}, which is at it")
            continue
        survey = inventory.survey(build.cloud, [host], "virt.presence", [build.name])
        sighting = sightings.from_presence(survey.answers).get(host)
        if sighting is None or sighting.is_complete:
            return False
        if not sighting.is_trace or sighting.unfinished:
            return sighting.state is None
    return False


def table(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Any]]:
    """Return ``{host: {"fits", "score", "reasons"}}``, what ``dry_run=True`` shows."""
    return {evaluation.host: evaluation.to_dict() for evaluation in evaluations}


def no_host_fits_error(
    requirements: Requirements,
    evaluations: Iterable[Evaluation],
    refusals: Mapping[str, Iterable[str]] | None = None,
) -> NoHostFits:
    """
    Return the error that says of every host why a VM cannot be there.

    late
        ``{host: reasons}`` of hosts that fitted, but refused when they were asked.
    """
    late_evaluations = {
        host: Evaluation(host=host, reasons=tuple(reasons))
        for host, reasons in (refusals or {}).items()
    }
    evaluations = [late_evaluations.get(evaluation.host, evaluation) for evaluation in evaluations]
    error = choose.no_host_fits(requirements, evaluations)
    remedies = cures.find_cures(
        reason for host_evaluation in evaluations for reason in host_evaluation.reasons
    )
    error.table = {"hosts": table(evaluations), **({"helps": remedies} if remedies else {})}
    return error


def _build(build: Build, pairs: Mapping[str, tuple[str, str] | None]) -> str:
    """Have the best host build the VM; if it has no room any more, try the next one."""
    name, cloud = build.name, build.cloud
    reasons_by_host: dict[str, list[str]] = {}
    for host, detail in build.tries.hosts:
        cloud.progress("Placing", detail=detail)
        given_uuid = build.uuid if host in build.taking else None
        facts = replace(build.facts, host=host, order_id=minions.new_id(), given_uuid=given_uuid)
        orders.enter(build.order, orders.ORDERED, facts)
        with build.tries.turn(host):
            reply = _order(build, host, pairs.get(host))
        if reply.missing:
            raise HostUnresponsive(f"{timeout_message(reply, None)}, while it built {name!r}")
        if reply.ok:
            build.warnings.extend(warnings(reply.value))
            return host
        kind = reply.value.get("kind") if isinstance(reply.value, dict) else None
        if kind == _UNDO_FAILED_KIND:
            raise HostCommandFailed(f"{host}: {reply.error}")
        # The host itself has said that it has nothing of the VM.
        previous_phase = orders.KEYED if pairs else orders.PLACING
        orders.enter(build.order, previous_phase, replace(build.facts, host=None))
        if kind not in _REFUSED_KINDS:
            raise HostCommandFailed(f"{host}: {reply.error}")
        reasons_by_host[host] = [cures.strip_cures(reply.error or "")]
        cloud.progress("Placing", detail=f"{host} refused: {reply.error}")
    raise build.tries.none(reasons_by_host)


def _order(build: Build, host: str, pair: tuple[str, str] | None) -> minions.Reply:
    request = build.request
    kwarg = {**request.given, "report": {**build.report, "uuid": build.uuid}}
    if pair:
        kwarg |= {"pub_key": pair[0], "priv_key": keys.seal_for(build.cloud.opts, host, pair[1])}
    return minions.order(
        build.cloud,
        host,
        request.function,
        request.values,
        kwarg,
        watch=progress_watcher(build.cloud, "salt/virt/init", host, build.name),
        order_id=build.facts.order_id,
    )
