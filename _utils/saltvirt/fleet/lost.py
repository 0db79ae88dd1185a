"""What an operator decides of a move, whose word stands for a host that cannot say it."""

import shlex

from saltvirt import protocol
from saltvirt.errors import BadArgument, VirtError
from saltvirt.fleet.effects import Hands, MoveFailed
from saltvirt.fleet.hosts import HostSilent
from saltvirt.parts import Elsewhere
from saltvirt.protocol import Source, Target

# What a target says, also one of the release before, that has looked at a VM and found it wanting.
NOT_WHOLE = "has not come here whole"
# What the source of a VM that has arrived notes; then nothing.
_GONE = (protocol.LEAVING, None)


def refuse_keep(hands: Hands, keep: str) -> None:
    """Raise unless a host is lost, or came back, and the one to be kept is the other one."""
    if keep not in (hands.source, hands.target):
        known = ", ".join(filter(None, (hands.source, hands.target)))
        raise BadArgument("keep", f"{keep!r}; one of {known}")
    if hands.source is None:
        raise MoveFailed(
            f"no host that answers knows of sending VM {hands.name!r}, so none can be given up for "
            f"{keep}: leave keep= out"
        )
    hands.look_at_source()
    hands.look_at_target()
    lost = _other(hands, keep)
    if hands.is_left_alone and keep == hands.source:
        return
    # A host that only fails to look, for example because its libvirtd is down, may run the VM.
    if lost not in hands.silent and not hands.is_on_both:
        said = hands.seen.get(lost)
        why = f" ({said})" if isinstance(said, str) else ""
        raise MoveFailed(f"{lost} answers, so it is not lost: leave keep= out{why}")


def _other(hands: Hands, keep: str) -> str | None:
    return hands.source if keep == hands.target else hands.target


def is_third(hands: Hands, keep: str) -> bool:
    """Return whether a host that is to be kept is neither of the two, and may have the VM."""
    if keep in (hands.source, hands.target):
        return False
    others = hands.look_elsewhere()
    return keep in (*others.has, *others.leaving)


def given_way(hands: Hands, keep: str, force: bool) -> str:
    """
    End a move whose VM a third host has; what the two have stays as it is, and is not used.

    With ``force``, one of the two that is silent is passed over: it is asked when it is back.
    """
    source, target = hands.look_at_source(), hands.look_at_target()
    gone = sorted(str(host) for host in hands.silent)
    # Nobody else can end what the source has decided, or is done with, when the target is lost.
    is_last = force and hands.target in hands.silent and _is_decided(source)
    if force and hands.source in hands.silent:
        source = Source(phase=protocol.HANDING)
    if force and hands.target in hands.silent:
        target = Target()
    step = protocol.next_step(source, target, Elsewhere(has=(keep,)))
    if step == protocol.WAIT:
        more = f"; if {' and '.join(gone)} never comes back, with force=True too" if gone else ""
        raise MoveFailed(f"the move of VM {hands.name!r} is not over: {hands.waits()}{more}")
    if step != protocol.GONE_ON and not is_last:
        raise MoveFailed(
            f"the move of VM {hands.name!r} {hands.hosts} can be settled without {keep}: leave "
            "keep= out"
        )
    left = _left(hands, keep, source)
    hands.hint_left(hands.source, hands.target)
    return "; ".join([f"is on {keep}", *left])


def _left(hands: Hands, keep: str, source: Source | None) -> list[str]:
    """End what both have on record of a VM that a third host has; return what they keep of it."""
    left = []
    if source is not None and source.phase == protocol.CANCELLED:
        hands.forget()
    else:
        left = hands.give_way(keep)
    hands.close()
    return left


def _is_decided(source: Source | None) -> bool:
    return source is not None and source.phase in (*_GONE, protocol.CANCELLED)


def _settle(name: str) -> str:
    # A host may have chosen the name, and somebody will type it.
    return f"salt-run virt.settle {shlex.quote(name)}"


def gone_on(hands: Hands) -> str:
    """Return what is said of a VM that a third host has, while a move of it is on record."""
    name, has, begun = hands.name, hands.elsewhere.has, hands.hosts.begun
    where, when = " and ".join(has), f" that was begun at {begun}" if begun else ""
    return (
        f"VM {name!r} is on {where}, and the move {hands.hosts}{when} is not "
        f"over on record: if {has[0]}'s is the VM, run {_settle(name)} keep={shlex.quote(has[0])}"
    )


def kept(hands: Hands, keep: str) -> str:
    """Bring a move to its end whose target was given up, and has come back with the VM."""
    source = hands.seen.get(hands.source)
    if keep == hands.source:
        hands.give_up()
    else:
        hands.end()
    hands.forget()
    hands.close()
    hands.hint_left(_other(hands, keep))
    has_two = keep == hands.target and isinstance(source, Source) and source.has
    more = f"; {hands.source} has one too, see virt.query" if has_two else ""
    return f"is on {keep}{more}"


def kept_on_source(hands: Hands) -> str:
    """Bring a move to its end whose source still has the VM, which its target does not have."""
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


def left_alone(hands: Hands) -> str:
    """Forget a move whose VM neither host has whole; what the source has stays, and is not used."""
    left = hands.give_way(hands.target)
    hands.close()
    return "; ".join([f"was given up, and nothing was removed on {hands.source}", *left])


def without(hands: Hands, *, force: bool, keep: str | None) -> str | None:
    """Bring a move to its end without a host that is lost; return how, None if it has to wait."""
    both = {hands.source, hands.target}
    if keep is not None and _other(hands, keep) in hands.silent:
        return _without_one(hands, keep, force)
    if force and both <= hands.silent:
        hands.close()
        return (
            f"was given up, as neither {hands.source} nor {hands.target} answers; if one of them "
            "comes back, what it has on record is settled then"
        )
    return _forgotten(hands)


def _without_one(hands: Hands, keep: str, force: bool) -> str:
    if keep == hands.source:
        return _without_target(hands, keep, force)
    return _without_source(hands, keep, force)


def _without_source(hands: Hands, keep: str, force: bool) -> str:
    target, lost = hands.seen.get(hands.target), hands.source
    phase = target.phase if isinstance(target, Target) else None
    has_come = isinstance(target, Target) and target.has
    if has_come and phase is None:
        hands.hint_left(lost)
        hands.close()
        return f"is on {keep}; {lost} is lost"
    if has_come and phase in (protocol.READY, protocol.ARRIVED):
        if _arrives(hands, keep, force):
            hands.hint_left(lost)
            return f"is on {keep}; {lost} is lost"
    elif not force:
        raise MoveFailed(
            f"nothing that could run has come to {keep}, so the VM is where {lost} is; if that "
            f"never comes back, give up what has come with force=True too"
        )
    if phase is not None:
        hands.drop()
    hands.close()
    return f"was given up with {lost}: {keep} has nothing of it any more"


def _arrives(hands: Hands, keep: str, force: bool) -> bool:
    """Have the VM arrive without its source; False if it is not whole, and force gives it up."""
    try:
        hands.lose_source()
        hands.close()
    except HostSilent:
        raise
    except VirtError as error:
        if not (force and NOT_WHOLE in str(error)):
            raise MoveFailed(
                f"{error}; bring back what it lacks on {keep}, or give up what has come, "
                f"and {hands.source} with the VM, with force=True too"
            ) from error
        return False
    return True


def _without_target(hands: Hands, keep: str, force: bool) -> str:
    _refuse_third(hands)
    source, lost = hands.seen.get(hands.source), hands.target
    if isinstance(source, Source) and source.phase in _GONE and not source.has:
        if not force:
            raise MoveFailed(
                f"VM {hands.name!r} has gone from {keep} already, and is lost if {lost} is; with "
                "force=True too this move is forgotten"
            )
        left = hands.give_way(lost)
        hands.close()
        return "; ".join([f"is lost with {lost}", *left])
    hands.lose_target()
    hands.hint_left(lost)
    hands.close()
    return f"stays on {keep}; {lost} is lost"


def _refuse_third(hands: Hands) -> None:
    """Raise MoveFailed if the VM may have gone on from a target that is lost."""
    others = hands.look_elsewhere()
    having = [*others.has, *others.leaving]
    if having:
        raise MoveFailed(
            f"VM {hands.name!r} is on {' and '.join(having)}, to which it has gone on: nothing is "
            f"taken back; end this move with keep={having[0]} force=True"
        )
    if others.silent or others.coming:
        more = "; if that cannot be, with force=True too" if others.silent else ""
        raise MoveFailed(f"{hands.waits_for_others()}; nothing is taken back{more}")


def _forgotten(hands: Hands) -> str | None:
    """Forget a cancelled move whose target is not a minion of this master any more."""
    source = hands.seen.get(hands.source)
    is_over = isinstance(source, Source) and source.phase == protocol.CANCELLED
    if not (is_over and hands.target in hands.silent and hands.is_unknown(hands.target)):
        return None
    hands.forget()
    hands.close()
    return f"stays on {hands.source}; {hands.target} is not a minion of this master any more"


def undecided(hands: Hands) -> str:
    """Return what is said of a VM that both hosts have, or that its target alone may have."""
    name, source, target = hands.name, hands.seen.get(hands.source), hands.target
    if hands.is_on_both:
        has = isinstance(source, Source) and source.has
        where = f"{hands.source} {'has it too' if has else 'no longer has it'}"
        return (
            f"VM {name!r} had come to {target} before that was given up, and {where}: see which "
            f"is right (salt HOST virt.vm_info {shlex.quote(name)}), stop the other, and end the "
            f"move with {_settle(name)} keep={hands.source}, which removes what {target} has, "
            f"or keep={target}, which leaves both as they are"
        )
    if hands.is_left_alone:
        return _left_alone(hands)
    return (
        f"what {target} has of VM {name!r} may be all there is of it: {_sources_word(hands)}; see "
        f"whether it is needed, and remove it with: {_settle(name)} force=True"
    )


def _left_alone(hands: Hands) -> str:
    source = hands.seen.get(hands.source)
    is_whole = isinstance(source, Source) and source.has
    stays = f"if it is to stay there, {_settle(hands.name)} keep={hands.source}"
    lacking = (
        f"bring back what {hands.source} lacks, then {_settle(hands.name)} keep={hands.source}"
    )
    return (
        f"VM {hands.name!r} was handed over to {hands.target}, which does not have it any more, "
        f"and no other host has it: nothing is removed on {hands.source}, as that may be the only "
        f"copy; {stays if is_whole else lacking}; to forget the move and leave all files where "
        f"they are, {_settle(hands.name)} force=True"
    )


def _sources_word(hands: Hands) -> str:
    if hands.source is None:
        return "no host that answers knows of sending it"
    return f"{hands.source} does not have all of it, or says that it has handed it over"
