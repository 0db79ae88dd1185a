"""End moves by an operator's decision, in place of a host that cannot answer."""

import shlex

from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, HostUnresponsive
from saltvirt.core.errors import BadArgument, VirtError, VmIncomplete
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import ThirdHosts
from saltvirt.core.protocol.moveprotocol import Source, Target
from saltvirt.migration.master.moveexecutor import MoveExecutor, MoveFailed

# The phases of a source after its VM has arrived; None: the record is gone.
_ARRIVED_PHASES = (moveprotocol.LEAVING, None)


def is_incomplete(error: VirtError) -> bool:
    """Return whether a host's error is that the VM which came there is incomplete."""
    return isinstance(error, HostCommandFailed) and error.kind == VmIncomplete.__name__


def refuse_keep(hands: MoveExecutor, keep: str) -> None:
    """Raise unless ``keep`` is a host of the move, and the move needs such a decision."""
    if keep not in (hands.source, hands.target):
        hosts_text = ", ".join(filter(None, (hands.source, hands.target)))
        raise BadArgument("keep", f"{keep!r}; one of {hosts_text}")
    if hands.source is None:
        raise MoveFailed(
            f"no host that answers knows of sending VM {hands.name!r}, so none can be given up for "
            f"{keep}: leave keep= out"
        )
    hands.look_at_source()
    hands.look_at_target()
    lost_host = _other_host(hands, keep)
    if hands.is_left_alone and keep == hands.source:
        return
    # A host that answers with an error, because its libvirtd is down, say, may run the VM.
    if lost_host not in hands.silent and not hands.is_on_both:
        answer = hands.answers.get(lost_host)
        detail = f" ({answer})" if isinstance(answer, str) else ""
        raise MoveFailed(f"{lost_host} answers, so it is not lost: leave keep= out{detail}")


def _other_host(hands: MoveExecutor, keep: str) -> str | None:
    return hands.source if keep == hands.target else hands.target


def is_third(hands: MoveExecutor, keep: str) -> bool:
    """Return whether ``keep`` is a third host that may have the VM."""
    if keep in (hands.source, hands.target):
        return False
    third_hosts = hands.look_at_third_hosts()
    return keep in (*third_hosts.has, *third_hosts.leaving)


def yield_to_third_host(hands: MoveExecutor, keep: str, force: bool) -> str:
    """
    End the move of a VM that a third host has; files of source and target stay, unused.

    ``force`` skips an unresponsive source or target; its record is settled when it is back.
    """
    source, target = hands.look_at_source(), hands.look_at_target()
    silent_hosts = sorted(str(host) for host in hands.silent)
    # With the target lost, no other command can end a move that the source decided or completed.
    is_last = force and hands.target in hands.silent and _is_decided(source)
    if force and hands.source in hands.silent:
        source = Source(phase=moveprotocol.HANDING)
    if force and hands.target in hands.silent:
        target = Target()
    step = moveprotocol.next_step(source, target, ThirdHosts(has=(keep,)))
    if step == moveprotocol.WAIT:
        more = (
            f"; if {' and '.join(silent_hosts)} never comes back, with force=True too"
            if silent_hosts
            else ""
        )
        raise MoveFailed(f"the move of VM {hands.name!r} is not over: {hands.waits()}{more}")
    if step != moveprotocol.MOVED_ON and not is_last:
        raise MoveFailed(
            f"the move of VM {hands.name!r} {hands.hosts} can be settled without {keep}: leave "
            "keep= out"
        )
    leftovers = _end_records(hands, keep, source)
    hands.hint_left(hands.source, hands.target)
    return "; ".join([f"is on {keep}", *leftovers])


def _end_records(hands: MoveExecutor, keep: str, source: Source | None) -> list[str]:
    """End the records of a VM that a third host has; return what source and target keep."""
    leftovers = []
    if source is not None and source.phase == moveprotocol.CANCELLED:
        hands.forget()
    else:
        leftovers = hands.give_way(keep)
    hands.close()
    return leftovers


def _is_decided(source: Source | None) -> bool:
    return source is not None and source.phase in (*_ARRIVED_PHASES, moveprotocol.CANCELLED)


def _settle_command(name: str) -> str:
    # A host may have chosen the name, and an operator will type the command.
    return f"salt-run virt.settle {shlex.quote(name)}"


def describe_third_host(hands: MoveExecutor) -> str:
    """Return the message for a VM on a third host while a move of the VM is on record."""
    name, hosts_with_vm, begun = hands.name, hands.third_hosts.has, hands.hosts.begun
    where, when = " and ".join(hosts_with_vm), f" that was begun at {begun}" if begun else ""
    return (
        f"VM {name!r} is on {where}, and the move {hands.hosts}{when} is not "
        f"over on record: if {hosts_with_vm[0]}'s is the VM, run {_settle_command(name)} "
        f"keep={shlex.quote(hosts_with_vm[0])}"
    )


def end_with_kept_host(hands: MoveExecutor, keep: str) -> str:
    """End a move after its target was given up, and has come back with the VM."""
    has_two = keep == hands.target and hands.source_has
    if keep == hands.source:
        hands.give_up()
    else:
        hands.end()
    hands.forget()
    hands.close()
    hands.hint_left(_other_host(hands, keep))
    more = f"; {hands.source} has one too, see virt.query" if has_two else ""
    return f"is on {keep}{more}"


def end_on_source(hands: MoveExecutor) -> str:
    """End a move if its source still has the VM and its target lacks it."""
    hands.lose_target()
    hands.look_at_source()
    target = hands.look_at_target()
    if hands.is_on_both:
        hands.give_up()
    elif target is not None and target.phase is not None:
        hands.drop()
    hands.forget()
    hands.close()
    return f"stays on {hands.source}"


def forget_incomplete(hands: MoveExecutor) -> str:
    """Forget the move of a VM that the target lacks; what the source has stays, unused."""
    leftovers = hands.give_way(hands.target)
    hands.close()
    return "; ".join([f"was given up, and nothing was removed on {hands.source}", *leftovers])


def end_without_host(hands: MoveExecutor, *, force: bool, keep: str | None) -> str | None:
    """End a move without a lost host; return how it ended, or None if it must wait."""
    both_hosts = {hands.source, hands.target}
    if keep is not None and _other_host(hands, keep) in hands.silent:
        return _end_without_one(hands, keep, force)
    if force and both_hosts <= hands.silent:
        hands.close()
        return (
            f"was given up, as neither {hands.source} nor {hands.target} answers; if one of them "
            "comes back, what it has on record is settled then"
        )
    return _forget_cancelled(hands)


def _end_without_one(hands: MoveExecutor, keep: str, force: bool) -> str:
    if keep == hands.source:
        return _end_without_target(hands, keep, force)
    return _end_without_source(hands, keep, force)


def _end_without_source(hands: MoveExecutor, keep: str, force: bool) -> str:
    target, lost_host = hands.target_state, hands.source
    phase = target.phase if target is not None else None
    has_come = target is not None and target.has
    if has_come and phase is None:
        hands.hint_left(lost_host)
        hands.close()
        return f"is on {keep}; {lost_host} is lost"
    if has_come and phase in (moveprotocol.READY, moveprotocol.ARRIVED):
        if _arrive_without_source(hands, keep, force):
            hands.hint_left(lost_host)
            return f"is on {keep}; {lost_host} is lost"
    elif not force:
        raise MoveFailed(
            f"nothing that could run has come to {keep}, so the VM is where {lost_host} is; if "
            "that never comes back, give up what has come with force=True too"
        )
    if phase is not None:
        hands.drop()
    hands.close()
    return f"was given up with {lost_host}: {keep} has nothing of it any more"


def _arrive_without_source(hands: MoveExecutor, keep: str, force: bool) -> bool:
    """Have the VM arrive without its source; False if ``force`` gives up an incomplete VM."""
    try:
        hands.lose_source()
        hands.close()
    except HostUnresponsive:
        raise
    except VirtError as error:
        if not (force and is_incomplete(error)):
            raise MoveFailed(
                f"{error}; bring back what it lacks on {keep}, or give up what has come, "
                f"and {hands.source} with the VM, with force=True too"
            ) from error
        return False
    return True


def _end_without_target(hands: MoveExecutor, keep: str, force: bool) -> str:
    _refuse_third(hands)
    source, lost_host = hands.source_state, hands.target
    if source is not None and source.phase in _ARRIVED_PHASES and not source.has:
        if not force:
            raise MoveFailed(
                f"VM {hands.name!r} has gone from {keep} already, and is lost if {lost_host} is; "
                "with force=True too this move is forgotten"
            )
        leftovers = hands.give_way(lost_host)
        hands.close()
        return "; ".join([f"is lost with {lost_host}", *leftovers])
    hands.lose_target()
    hands.hint_left(lost_host)
    hands.close()
    return f"stays on {keep}; {lost_host} is lost"


def _refuse_third(hands: MoveExecutor) -> None:
    """Raise MoveFailed if the VM may have moved on from the lost target."""
    third_hosts = hands.look_at_third_hosts()
    hosts_with_vm = [*third_hosts.has, *third_hosts.leaving]
    if hosts_with_vm:
        raise MoveFailed(
            f"VM {hands.name!r} is on {' and '.join(hosts_with_vm)}, to which it has moved on: "
            f"nothing is taken back; end this move with keep={hosts_with_vm[0]} force=True"
        )
    if third_hosts.silent or third_hosts.coming:
        more = "; if that cannot be, with force=True too" if third_hosts.silent else ""
        raise MoveFailed(f"{hands.waits_for_others()}; nothing is taken back{more}")


def can_forget(hands: MoveExecutor) -> bool:
    """Return whether a move was cancelled, and its target is no minion of this master any more."""
    source = hands.source_state
    is_over = source is not None and source.phase == moveprotocol.CANCELLED
    return is_over and hands.target in hands.silent and hands.is_unknown(hands.target)


def _forget_cancelled(hands: MoveExecutor) -> str | None:
    """Forget a cancelled move if its target is no longer a minion of this master."""
    if not can_forget(hands):
        return None
    hands.forget()
    hands.close()
    return f"stays on {hands.source}; {hands.target} is not a minion of this master any more"


def describe_undecided(hands: MoveExecutor) -> str:
    """Return the message for a VM that both hosts have, or that only its target may have."""
    name, target = hands.name, hands.target
    if hands.is_on_both:
        where = f"{hands.source} {'has it too' if hands.source_has else 'no longer has it'}"
        return (
            f"VM {name!r} had come to {target} before that was given up, and {where}: see which is "
            f"right (salt HOST virt.vm_info {shlex.quote(name)}), stop the other, and end the move "
            f"with {_settle_command(name)} keep={hands.source}, which removes what {target} has, "
            f"or keep={target}, which leaves both as they are"
        )
    if hands.is_left_alone:
        return _describe_incomplete(hands)
    return (
        f"what {target} has of VM {name!r} may be all there is of it: {_describe_source(hands)}; "
        f"see whether it is needed, and remove it with: {_settle_command(name)} force=True"
    )


def _describe_incomplete(hands: MoveExecutor) -> str:
    stays = f"if it is to stay there, {_settle_command(hands.name)} keep={hands.source}"
    lacking = (
        f"bring back what {hands.source} lacks, then {_settle_command(hands.name)} "
        f"keep={hands.source}"
    )
    return (
        f"VM {hands.name!r} was handed over to {hands.target}, which does not have it any more, "
        f"and no other host has it: nothing is removed on {hands.source}, as that may be the only "
        f"copy; {stays if hands.source_has else lacking}; to forget the move and leave all files "
        f"where they are, {_settle_command(hands.name)} force=True"
    )


def _describe_source(hands: MoveExecutor) -> str:
    if hands.source is None:
        return "no host that answers knows of sending it"
    return f"{hands.source} does not have all of it, or says that it has handed it over"
