"""The master's part of a move: carried to its end, or settled after what has cut it short."""

import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from saltvirt import parts, protocol, settling
from saltvirt.errors import VirtError
from saltvirt.fleet import lost, orders, threads
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.effects import Hands, MoveFailed, MoveHosts
from saltvirt.fleet.hosts import HostSilent
from saltvirt.protocol import Source, Target
from saltvirt.records import Held

# How many moves that were left are settled at a time.
_AT_ONCE = 8


class Unsettled(MoveFailed):
    """A move has not come to its end; the message says what it waits for, and the next command."""


def carry(cloud: Cloud, hands: Hands) -> dict[str, Any]:
    """Move a VM; return its figures, or raise: it stays where it was, or how it is settled."""
    try:
        step, is_moved, error = parts.run(settling.move(), hands)
    except VirtError as failed:
        raise _unsettled(hands, str(failed)) from failed
    if step == protocol.GONE_ON:
        raise Unsettled(lost.gone_on(hands)) from error
    if step == protocol.KEEP and hands.is_left_alone:
        raise Unsettled(lost.undecided(hands)) from error
    if step != protocol.DONE:
        # Of a VM in halves both say the same.
        is_told = isinstance(error, Exception) and not hands.is_cut
        said = str(error) if is_told else ""
        raise _unsettled(hands, "; ".join(filter(None, [hands.waits(), said]))) from error
    if is_moved:
        hands.hint()
        if error is None or isinstance(error, Exception):
            return _figures(hands, error)
        raise MoveFailed(
            f"interrupted, but VM {hands.name!r} has moved to {hands.target}"
        ) from error
    _hint_stays(hands)
    if error is None:
        raise MoveFailed(
            f"the move of VM {hands.name!r} was settled by another command; see virt.query"
        )
    raise _stayed(hands, error)


def _hint_stays(hands: Hands) -> None:
    """Note that a target which says so has nothing of the VM: it may fall silent from now on."""
    target = hands.seen.get(hands.target)
    if isinstance(target, Target) and target.phase is None and not target.has:
        hands.hint_left(hands.target)


def _stayed(hands: Hands, error: BaseException) -> BaseException:
    """Return what is said of a VM that was not moved."""
    stays = f"on {hands.source} as before: {error}"
    if hands.is_sent and isinstance(error, Exception):
        return MoveFailed(f"VM {hands.name!r} was not taken by {hands.target}, and is {stays}")
    # It has answered since, or there was nothing to be settled.
    is_silence = isinstance(error, HostSilent)
    return HostSilent(f"VM {hands.name!r} is {stays}") if is_silence else error


def _figures(hands: Hands, error: object) -> dict[str, Any]:
    out = dict(hands.figures)
    warnings = [*hands.warnings, *([f"it has moved, but: {error}"] if error else [])]
    return {**out, "warning": "; ".join(warnings)} if warnings else out


def _unsettled(hands: Hands, why: str) -> Unsettled:
    gone = [host for host in (hands.source, hands.target) if host in hands.silent]
    more = ""
    if len(gone) == 2:
        more = ", or if neither host ever comes back, with force=True"
    elif hands.elsewhere.silent:
        more = ", or, if no host that cannot be asked can have it, with force=True"
    elif hands.elsewhere.leaving and not gone:
        more = f", or, if {hands.elsewhere.leaving[0]} has what is newest of it, with "
        more += f"keep={hands.elsewhere.leaving[0]}"
    elif gone:
        (other,) = {hands.source, hands.target} - {*gone}
        never = f"if {gone[0]} never comes back"
        # A source that nobody knows may be silent too, so there is none to keep.
        more = (
            f", or {never}, with keep={other}" if other else f"; {never}, see docs/maintenance.md"
        )
    return Unsettled(
        f"the move of VM {hands.name!r} {hands.hosts} is not over: {why}. "
        f"Nothing is lost; go on with: salt-run virt.settle {shlex.quote(hands.name)}{more}"
    )


def settle(
    cloud: Cloud,
    held: Held,
    token: str,
    hosts: MoveHosts,
    uuid: str | None = None,
    *,
    force: bool = False,
    keep: str | None = None,
) -> str:
    """
    Bring one move to its end; return in one line how it ended, or raise :class:`Unsettled`.

    force
        Drop what the target has though its source does not know of the move, or though nothing
        that can run has come; forget the move if neither host answers.
    keep
        The host that has the VM from now on: the other one is lost, or was, and has come back. Or a
        third one, to which it has gone on: then what both have of it stays there, and is not used.
    """
    hands = Hands(cloud, held, token, hosts, uuid)
    try:
        step, ended = _settled(hands, force, keep)
    except VirtError as failed:
        if keep is not None:
            raise
        raise _unsettled(hands, str(failed)) from failed
    if step == protocol.KEEP:
        raise Unsettled(lost.undecided(hands))
    if step == protocol.GONE_ON:
        raise Unsettled(lost.gone_on(hands))
    if step != protocol.DONE:
        raise _unsettled(hands, hands.waits())
    return ended


def _settled(hands: Hands, force: bool, keep: str | None) -> tuple[str, str]:
    """Settle as far as it goes; return how far, and how it ended."""
    hands.is_forced = force
    if keep is not None and lost.is_third(hands, keep):
        return protocol.DONE, lost.given_way(hands, keep, force)
    if keep is not None:
        lost.refuse_keep(hands, keep)
    step, is_moved = _tried(hands, force)
    if step == protocol.KEEP and (keep is not None or hands.is_left_alone):
        return _kept(hands, force, keep)
    is_given_up = step == protocol.KEEP and force
    if is_given_up:
        hands.give_up()
        step, is_moved = parts.run(settling.settle(), hands)
    if step == protocol.WAIT:
        ended = lost.without(hands, force=force, keep=keep)
        return (step, "") if ended is None else (protocol.DONE, ended)
    _hint(hands, step, is_moved)
    return step, _ending(hands, is_moved, is_given_up)


def _hint(hands: Hands, step: str, is_moved: bool | None) -> None:
    """Note which host has the VM once its move is settled."""
    if is_moved:
        hands.hint()
    elif step == protocol.DONE:
        _hint_stays(hands)


def _kept(hands: Hands, force: bool, keep: str | None) -> tuple[str, str]:
    """Settle a move that its operator alone decides, if that was done."""
    if keep is not None:
        kept = lost.kept_on_source(hands) if hands.is_left_alone else lost.kept(hands, keep)
        return protocol.DONE, kept
    return (protocol.DONE, lost.left_alone(hands)) if force else (protocol.KEEP, "")


def _ending(hands: Hands, is_moved: bool | None, is_given_up: bool) -> str:
    source = hands.seen.get(hands.source)
    if is_given_up and not (isinstance(source, Source) and source.has):
        other = f", nor has {hands.source}" if hands.source else ""
        return f"was given up: {hands.target} has nothing of it any more{other}"
    if is_moved is None:
        return "was settled before"
    return f"has moved to {hands.target}" if is_moved else f"stays on {hands.source}"


def _is_stuck(hands: Hands) -> bool:
    source = Source() if hands.source is None else hands.seen.get(hands.source)
    target = hands.seen.get(hands.target)
    if not (isinstance(source, Source) and isinstance(target, Target)):
        return False
    return protocol.is_stuck(source, target)


def _tried(hands: Hands, force: bool) -> tuple[str, Any]:
    """Settle a move; what has come and cannot be taken is given up by force alone."""
    try:
        step, is_moved = parts.run(settling.settle(), hands)
    except VirtError as error:
        # Any other failure, say of a full disk, passes: what is there may be whole.
        is_lacking = not isinstance(error, HostSilent) and lost.NOT_WHOLE in str(error)
        if not (is_lacking and _is_stuck(hands)):
            raise
        if force:
            return protocol.KEEP, None
        raise MoveFailed(
            f"{error}; the source no longer has it: bring back what it lacks on {hands.target} and "
            "settle it again, or remove what has come there, which may be all there is of the VM, "
            f"with: salt-run virt.settle {shlex.quote(hands.name)} force=True"
        ) from error
    return step, is_moved


def settle_order(cloud: Cloud, held: Held) -> None:
    """Settle the move that an interrupted command of this master has left on record."""
    left = held.record
    if left is not None and left.phase == orders.MOVING:
        facts = orders.move(left)
        hosts = MoveHosts(source=facts.source, target=facts.target, begun=left.since_text)
        settle(cloud, held, left.token, hosts, facts.uuid)


def settle_left(cloud: Cloud, host: str) -> None:
    """
    Settle the moves from and to a host that interrupted commands of this master left on record.

    Until then both hosts say that they have the VM, or await it, and it has a place on neither.
    What cannot be settled now is said, and said again by whoever moves that VM.
    """
    left = [name for name in _moving(cloud, host) if not orders.is_at_work(cloud.opts, name)]
    if not left:
        return
    lock = threading.Lock()

    def progress(stage: str, **figures: Any) -> None:
        with lock:
            cloud.progress(stage, **figures)

    own = replace(cloud, progress=progress)
    # Some at once: where the other host is silent, each of them waits for it.
    with ThreadPoolExecutor(min(len(left), _AT_ONCE)) as pool:
        jobs = [threads.begin(pool, _settle_one, own, name) for name in left]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _moving(cloud: Cloud, host: str) -> list[str]:
    """Return the VMs whose move from or to a host this master has on record."""
    out = []
    for record in orders.moving(cloud.opts):
        facts = orders.move(record)
        if host in (facts.source, facts.target):
            out.append(record.name)
    return out


def _settle_one(cloud: Cloud, name: str) -> None:
    try:
        with orders.opened(cloud.opts, name, is_there=True) as held:
            settle_order(cloud, held)
    except (VirtError, OSError) as error:
        cloud.progress("Settling", detail=str(error))
