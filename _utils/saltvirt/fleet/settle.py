"""Bring all moves to their end that any host, or this master, has on record."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from saltvirt import arguments, locks, records
from saltvirt.errors import BadArgument, VirtError
from saltvirt.fleet import inventory, moves, orders
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.effects import MoveHosts

# Of moves that one host says are on record: each costs two questions, and a host may make them up.
_MOST = 100


def every(
    cloud: Cloud, name: str | None = None, *, force: bool = False, keep: str | None = None
) -> dict[str, Any]:
    """
    Settle every move that is on record anywhere, or those of one VM; return ``{name: how}``.

    Raises :class:`saltvirt.fleet.moves.Unsettled`, with the table, if one is not over.
    """
    _refuse_unnamed(name, force=force)
    # What a command that was killed at its very end has left is a lock that nobody holds.
    locks.sweep(orders.folder(cloud.opts) / orders.PURPOSE)
    every = inventory.every(cloud)
    found = inventory.survey(cloud, every, "virt.migration_state")
    known, disputed = _on_record(cloud, found.answers, name)
    out: dict[str, str] = {}
    failed = _unreadable(cloud, found.answers, name)
    failed |= _too_many(found.answers, name)
    for vm, why in disputed.items():
        failed[vm] = _joined(failed.get(vm), why)
    # A host that is neither of a move's two, and is to be kept, ends that move; only then others.
    for (vm, token), (hosts, uuid) in sorted(known.items(), key=lambda one: _order(one, keep)):
        cloud.progress("Settling", detail=f"{vm}, {hosts}")
        word = keep if vm not in out or not _is_of(hosts, keep) else None
        is_forced = force and word == keep
        try:
            with orders.opened(cloud.opts, vm, is_there=True) as held:
                ended = moves.settle(cloud, held, token, hosts, uuid, force=is_forced, keep=word)
            out[vm] = _joined(out.get(vm), ended)
        except VirtError as error:
            failed[vm] = _joined(failed.get(vm), str(error))
    if not (known or failed):
        _refuse_silence(found, name)
    if failed:
        unsettled = moves.Unsettled("; ".join(failed.values()))
        every_failed = {**found.failed, **failed}
        unsettled.table = {"settled": out, **found.beside(), "failed": every_failed}
        raise unsettled
    return {"settled": out, **found.beside()}


def _refuse_unnamed(name: str | None, *, force: bool) -> None:
    """Refuse what names no VM, and what may not be done to all of them."""
    if name is not None:
        arguments.text("name", name)
    elif force:
        raise BadArgument("force", "it removes what may be all there is of a VM; name that VM")


def _order(
    one: tuple[tuple[str, str], tuple[MoveHosts, str | None]], keep: str | None
) -> tuple[bool, tuple[str, str]]:
    (move, (hosts, _uuid)) = one
    return _is_of(hosts, keep), move


def _joined(before: str | None, more: str) -> str:
    return f"{before}; {more}" if before else more


def _is_of(hosts: MoveHosts, keep: str | None) -> bool:
    """Return whether a host that is to be kept is one of a move's two."""
    return keep in (hosts.source, hosts.target)


def _refuse_silence(found: inventory.Survey, name: str | None) -> None:
    """Raise if no host answers, or none that answers has a move of the VM on record."""
    unheard = found.reasons()
    if unheard and not found.answers:
        raise found.silence()
    if name is not None:
        silent = f" that answers (not asked: {', '.join(sorted(unheard))})" if unheard else ""
        raise BadArgument(
            "name",
            f"no move of VM {name!r} is on record on any host{silent}; if its virt.init was "
            f"interrupted, run that again, or salt-run virt.purge {name}",
        )


def _on_record(
    cloud: Cloud, answers: Mapping[str, Any], name: str | None
) -> tuple[dict[tuple[str, str], tuple[MoveHosts, str | None]], dict[str, str]]:
    """
    Return ``{(name, token): (hosts, uuid)}`` of all moves that somebody knows of, and ``{name:
    why}`` of those whose hosts do not agree on which they are: one of them is none of the two.
    """
    out: dict[tuple[str, str], tuple[MoveHosts, str | None]] = {}
    # This master knows both hosts of its own, whatever a host has noted.
    for record in orders.moving(cloud.opts):
        if name in (None, record.name):
            facts = orders.move(record)
            hosts = MoveHosts(source=facts.source, target=facts.target, begun=record.since_text)
            out.setdefault((record.name, record.token), (hosts, facts.uuid))
    own, disputed = set(out), {}
    for host, vm, one in _shown(answers, name):
        hosts = _claimed(answers, host, vm, one)
        first, _uuid = out.setdefault((vm, one.token), (hosts, one.uuid))
        if (vm, one.token) not in own and not _agree(first, hosts):
            disputed[vm, one.token] = _dispute(vm, first, hosts, host)
    known = {move: out[move] for move in out if move not in disputed}
    return known, {vm: why for (vm, _token), why in disputed.items()}


def _shown(answers: Mapping[str, Any], name: str | None) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(host, VM, record)`` of records of hosts that can be read: of each host, a number."""
    for host, there in sorted(answers.items()):
        for vm, one in itertools.islice(_readable(there, name), _MOST):
            yield host, vm, one


def _readable(there: Mapping[str, Any], name: str | None) -> Iterator[tuple[str, Any]]:
    for vm, known in there.items():
        yield from ((vm, one) for one in known if name in (None, vm) and one.error is None)


def _too_many(answers: Mapping[str, Any], name: str | None) -> dict[str, str]:
    """Return ``{host: why}`` of the hosts that say more is on record than is looked at at once."""
    counts = {host: sum(1 for _one in _readable(one, name)) for host, one in answers.items()}
    return {
        host: f"{host} says that {count:,} moves are on record there, of which {_MOST} were looked "
        "at: say virt.settle again, or with the name of a VM"
        for host, count in sorted(counts.items())
        if count > _MOST
    }


def _claimed(answers: Mapping[str, Any], host: str, vm: str, one: Any) -> MoveHosts:
    """Return the two hosts of a move as one that has it on record says."""
    since = records.time_text(one.since)
    if one.purpose == "departure":
        return MoveHosts(source=host, target=one.target, begun=since)
    return MoveHosts(source=one.source or _sender(answers, vm, host), target=host, begun=since)


def _agree(one: MoveHosts, other: MoveHosts) -> bool:
    """Return whether two hosts mean the same move; who does not know a host does not deny it."""
    pairs = ((one.source, other.source), (one.target, other.target))
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _dispute(vm: str, first: MoveHosts, other: MoveHosts, host: str) -> str:
    return (
        f"VM {vm!r}: {host} has a move {other} on record that is said to be {first}, and nothing "
        "is done for it: see which is right, and shut the other out: salt-run virt.disallow HOST"
    )


def _unreadable(cloud: Cloud, answers: Mapping[str, Any], name: str | None) -> dict[str, str]:
    """Return ``{name: why}`` of the VMs with a record, here or on a host, that cannot be read."""
    out = dict(records.unreadable(orders.folder(cloud.opts), orders.PURPOSE))
    for host, there in sorted(answers.items()):
        for vm, known in there.items():
            said = [f"{host}: {one.error}" for one in known if one.error is not None]
            out |= {vm: "; ".join(filter(None, [out.get(vm), *said]))} if said else {}
    return {vm: why for vm, why in out.items() if name in (None, vm)}


def _sender(answers: Mapping[str, Any], name: str, target: str) -> str | None:
    """Return the host that has a departure of a VM, of a move whose target does not know it."""
    leaving = [
        host
        for host, there in answers.items()
        if host != target and any(one.purpose == "departure" for one in there.get(name, ()))
    ]
    return leaving[0] if len(leaving) == 1 else None
