"""Run the master's part of a move to its end, and settle interrupted moves."""

import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc.hostcommands import HostUnresponsive
from saltvirt.core.errors import VirtError
from saltvirt.core.journal.records import LockedRecord, Record
from saltvirt.core.protocol import effects, moveprotocol, recoveryprotocol
from saltvirt.core.protocol.moveprotocol import Source
from saltvirt.core.salt import threads
from saltvirt.migration.master import override
from saltvirt.migration.master.moveexecutor import MoveExecutor, MoveFailed, MoveHosts

# How many leftover moves are settled at a time.
_AT_ONCE = 8
# How a move would end, by the first step.
_FORETOLD = {
    moveprotocol.REDEFINE: "would move to {target}: defined there again, then removed on {source}",
    moveprotocol.ARRIVE: "would move to {target}, if it is whole there, and be removed on {source}",
    moveprotocol.FINISH: "has moved to {target}: what {source} has of it would be removed",
    moveprotocol.END: "has moved to {target}: the record there would end",
    moveprotocol.CANCEL: "would stay on {source}: what {target} has of it would be removed",
    moveprotocol.REFUSE: "would stay on {source}: what {target} has of it would be removed",
    moveprotocol.DROP: "stays on {source}: what {target} has of it would be removed",
    moveprotocol.FORGET: "stays on {source}: the record there would end",
    moveprotocol.DONE: "was settled before: the record of this master would end",
}


class Unsettled(MoveFailed):
    """A move is not over; the message says what it waits for, and the next command."""


def run_move(cloud: Cloud, hands: MoveExecutor) -> dict[str, Any]:
    """Move a VM and return its figures; raise if the VM stays or the move is not over."""
    try:
        step, is_moved, error = effects.run(recoveryprotocol.move(), hands)
    except VirtError as failed:
        raise _unsettled_error(hands, str(failed)) from failed
    if step == moveprotocol.MOVED_ON:
        raise Unsettled(override.describe_third_host(hands)) from error
    if step == moveprotocol.KEEP and hands.is_left_alone:
        raise Unsettled(override.describe_undecided(hands)) from error
    if step != moveprotocol.DONE:
        # After a failed post-copy, ``waits()`` and the error say the same.
        is_told = isinstance(error, Exception) and not hands.is_cut
        error_text = str(error) if is_told else ""
        raise _unsettled_error(
            hands, "; ".join(filter(None, [hands.waits(), error_text]))
        ) from error
    if is_moved:
        hands.hint()
        if error is None or isinstance(error, Exception):
            return _figures(hands, error)
        raise MoveFailed(
            f"interrupted, but VM {hands.name!r} has moved to {hands.target}"
        ) from error
    _note_stays(hands)
    if error is None:
        raise MoveFailed(
            f"the move of VM {hands.name!r} was settled by another command; see virt.query"
        )
    raise _stayed_error(hands, error)


def _note_stays(hands: MoveExecutor) -> None:
    """Record a target's report that it has nothing of the VM: it may not answer later."""
    target = hands.target_state
    if target is not None and target.phase is None and not target.has:
        hands.hint_left(hands.target)


def _stayed_error(hands: MoveExecutor, error: BaseException) -> BaseException:
    """Return the error for a VM that was not moved."""
    stays = f"on {hands.source} as before: {error}"
    if hands.is_sent and isinstance(error, Exception):
        return MoveFailed(f"VM {hands.name!r} was not taken by {hands.target}, and is {stays}")
    # The host has answered since, or there was nothing to settle.
    is_silence = isinstance(error, HostUnresponsive)
    return HostUnresponsive(f"VM {hands.name!r} is {stays}") if is_silence else error


def _figures(hands: MoveExecutor, error: object) -> dict[str, Any]:
    out = dict(hands.figures)
    warnings = [*hands.warnings, *([f"it has moved, but: {error}"] if error else [])]
    return {**out, "warning": "; ".join(warnings)} if warnings else out


def _unsettled_error(hands: MoveExecutor, reason: str) -> Unsettled:
    silent_hosts = [host for host in (hands.source, hands.target) if host in hands.silent]
    more = ""
    if len(silent_hosts) == 2:
        more = ", or if neither host ever comes back, with force=True"
    elif hands.third_hosts.silent:
        more = ", or, if no host that cannot be asked can have it, with force=True"
    elif hands.third_hosts.leaving and not silent_hosts:
        more = f", or, if {hands.third_hosts.leaving[0]} has what is newest of it, with "
        more += f"keep={hands.third_hosts.leaving[0]}"
    elif silent_hosts:
        (other_host,) = {hands.source, hands.target} - {*silent_hosts}
        never = f"if {silent_hosts[0]} never comes back"
        # An unknown source may be unresponsive, too, so there is no host to keep.
        more = (
            f", or {never}, with keep={other_host}"
            if other_host
            else f"; {never}: salt-run virt.host_lost {shlex.quote(str(silent_hosts[0]))}"
        )
    return Unsettled(
        f"the move of VM {hands.name!r} {hands.hosts} is not over: {reason}. "
        f"Nothing is lost; go on with: salt-run virt.settle {shlex.quote(hands.name)}{more}"
    )


def settle(
    cloud: Cloud,
    order: LockedRecord,
    token: str,
    hosts: MoveHosts,
    uuid: str | None = None,
    *,
    force: bool = False,
    keep: str | None = None,
) -> str:
    """
    Settle one move; return in one line how it ended, or raise :class:`Unsettled`.

    force
        Drop what the target has even if its source does not know of the move, or if nothing there
        can run; forget the move if neither host answers.
    keep
        The host that has the VM from now on; the other host is lost, or was lost and is back. If a
        third host has the VM, the files of source and target stay, unused.
    """
    hands = MoveExecutor(cloud, order, token, hosts, uuid)
    try:
        step, ended = _settle_as_asked(hands, force, keep)
    except VirtError as failed:
        if keep is not None:
            raise
        raise _unsettled_error(hands, str(failed)) from failed
    if step != moveprotocol.DONE:
        raise _open_error(hands, step)
    return ended


def foretell(cloud: Cloud, name: str, token: str, hosts: MoveHosts, uuid: str | None = None) -> str:
    """
    Return in one line how :func:`settle` would end a move, or raise :class:`Unsettled`.

    Nothing is changed: the hosts are asked, and decide nothing.
    """
    if orders.is_at_work(cloud.opts, name):
        raise orders.taken_error(name, "moved")
    # Without its lock: a dry run keeps no other command from the VM.
    order = LockedRecord(orders.folder(cloud.opts), orders.PURPOSE, name)
    hands = MoveExecutor(cloud, order, token, hosts, uuid)
    try:
        step = effects.run(recoveryprotocol.foretell(), hands)
    except VirtError as failed:
        raise _unsettled_error(hands, str(failed)) from failed
    if hands.source is None and step in moveprotocol.ON_SOURCE:
        raise _unsettled_error(hands, hands.no_departure_message)
    if step == moveprotocol.WAIT and override.can_forget(hands):
        step = moveprotocol.FORGET
    if step not in _FORETOLD:
        raise _open_error(hands, step)
    source = hands.source or "its unknown source"
    waits_text = (
        f"; it is over only when {hands.target} answers"
        if step == moveprotocol.CANCEL and hands.target_state is None
        else ""
    )
    return _FORETOLD[step].format(source=source, target=hands.target) + waits_text


def _open_error(hands: MoveExecutor, step: str) -> Unsettled:
    """Return the error for a move that is not over after a step."""
    if step == moveprotocol.KEEP:
        return Unsettled(override.describe_undecided(hands))
    if step == moveprotocol.MOVED_ON:
        return Unsettled(override.describe_third_host(hands))
    return _unsettled_error(hands, hands.waits())


def _settle_as_asked(hands: MoveExecutor, force: bool, keep: str | None) -> tuple[str, str]:
    """Settle as far as possible; return the last step, and how the move ended."""
    hands.is_forced = force
    if keep is not None and override.is_third(hands, keep):
        return moveprotocol.DONE, override.yield_to_third_host(hands, keep, force)
    if keep is not None:
        override.refuse_keep(hands, keep)
    step, is_moved = _try_settle(hands, force)
    if step == moveprotocol.KEEP and (keep is not None or hands.is_left_alone):
        return _settle_kept(hands, force, keep)
    is_given_up = step == moveprotocol.KEEP and force
    if is_given_up:
        hands.give_up()
        step, is_moved = effects.run(recoveryprotocol.settle(), hands)
    if step == moveprotocol.WAIT:
        ended = override.end_without_host(hands, force=force, keep=keep)
        return (step, "") if ended is None else (moveprotocol.DONE, ended)
    _note_ending(hands, step, is_moved)
    return step, _describe_ending(hands, is_moved, is_given_up)


def _note_ending(hands: MoveExecutor, step: str, is_moved: bool | None) -> None:
    """Record which host has the VM once its move is settled."""
    if is_moved:
        hands.hint()
    elif step == moveprotocol.DONE:
        _note_stays(hands)


def _settle_kept(hands: MoveExecutor, force: bool, keep: str | None) -> tuple[str, str]:
    """Settle a move that only an operator can decide, if ``keep`` or ``force`` decides."""
    if keep is not None:
        ending = (
            override.end_on_source(hands)
            if hands.is_left_alone
            else override.end_with_kept_host(hands, keep)
        )
        return moveprotocol.DONE, ending
    return (
        (moveprotocol.DONE, override.forget_incomplete(hands)) if force else (moveprotocol.KEEP, "")
    )


def _describe_ending(hands: MoveExecutor, is_moved: bool | None, is_given_up: bool) -> str:
    if is_given_up and not hands.source_has:
        source_text = f", nor has {hands.source}" if hands.source else ""
        return f"was given up: {hands.target} has nothing of it any more{source_text}"
    if is_moved is None:
        return "was settled before"
    return f"has moved to {hands.target}" if is_moved else f"stays on {hands.source}"


def _is_stuck(hands: MoveExecutor) -> bool:
    source = Source() if hands.source is None else hands.source_state
    target = hands.target_state
    return source is not None and target is not None and moveprotocol.is_stuck(source, target)


def _try_settle(hands: MoveExecutor, force: bool) -> tuple[str, Any]:
    """Settle a move; give up an incomplete VM on the target only by ``force``."""
    try:
        step, is_moved = effects.run(recoveryprotocol.settle(), hands)
    except VirtError as error:
        # After any other failure, such as a full disk, the VM there may be whole: raise.
        if not (override.is_incomplete(error) and _is_stuck(hands)):
            raise
        if force:
            return moveprotocol.KEEP, None
        raise MoveFailed(
            f"{error}; the source no longer has it: bring back what it lacks on {hands.target} and "
            "settle it again, or remove what has come there, which may be all there is of the VM, "
            f"with: salt-run virt.settle {shlex.quote(hands.name)} force=True"
        ) from error
    return step, is_moved


def settle_order(cloud: Cloud, order: LockedRecord) -> None:
    """Settle the move that an interrupted command of this master left on record."""
    record = order.record
    if record is not None and record.phase == orders.MOVING:
        hosts, uuid = read_route(record)
        settle(cloud, order, record.token, hosts, uuid)


def read_route(record: Record) -> tuple[MoveHosts, str | None]:
    """Return the hosts, and the VM's UUID if known, of this master's order of a move."""
    facts = orders.read_move(record)
    hosts = MoveHosts(source=facts.source, target=facts.target, begun=record.since_text)
    return hosts, facts.uuid


def settle_left(cloud: Cloud, host: str) -> None:
    """
    Settle the moves from and to a host that interrupted commands of this master left on record.

    Until then both hosts report or await the VM, and it can be placed on neither. Moves that cannot
    be settled are reported as progress; the next command for that VM reports them again.
    """
    names = [name for name in _list_moving(cloud, host) if not orders.is_at_work(cloud.opts, name)]
    if not names:
        return
    lock = threading.Lock()

    def progress(stage: str, **figures: Any) -> None:
        with lock:
            cloud.progress(stage, **figures)

    locked_cloud = replace(cloud, progress=progress)
    # Several at once: each move with an unresponsive host waits for it.
    with ThreadPoolExecutor(min(len(names), _AT_ONCE)) as pool:
        jobs = [threads.begin(pool, _settle_one, locked_cloud, name) for name in names]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _list_moving(cloud: Cloud, host: str) -> list[str]:
    """Return the VMs with a recorded move from or to a host."""
    out = []
    for record in orders.list_moves(cloud.opts):
        facts = orders.read_move(record)
        if host in (facts.source, facts.target):
            out.append(record.name)
    return out


def _settle_one(cloud: Cloud, name: str) -> None:
    try:
        with orders.opened(cloud.opts, name) as order:
            settle_order(cloud, order)
    except (VirtError, OSError) as error:
        cloud.progress("Settling", detail=str(error))
