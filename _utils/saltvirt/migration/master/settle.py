"""Settle all moves that any host, or this master, has on record."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core import arguments, locks
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.journal import records
from saltvirt.migration.master import recovery
from saltvirt.migration.master.moveexecutor import MoveHosts

# The most recorded moves of one host: each costs two requests, and a host may make them up.
_MOST = 100


def settle_all(
    cloud: Cloud,
    name: str | None = None,
    *,
    force: bool = False,
    keep: str | None = None,
    is_dry: bool = False,
) -> dict[str, Any]:
    """
    Settle all recorded moves, or those of one VM; return ``{"settled": {name: how}, ...}``.

    is_dry
        Change nothing; return how each would end. Goes without ``keep`` and ``force``. Defaults to
        False.

    Raises :class:`saltvirt.migration.master.recovery.Unsettled`, with the table, if a move is not
    over.
    """
    _refuse_unnamed(name, force=force)
    _refuse_decision(is_dry=is_dry, force=force, keep=keep)
    if not is_dry:
        # A command that was killed at its very end leaves a lock that no process holds.
        locks.sweep(orders.folder(cloud.opts) / orders.PURPOSE)
    all_hosts = inventory.all_hosts(cloud)
    survey = inventory.survey(cloud, all_hosts, "virt.migration_state")
    recorded_moves, disputed = _collect_moves(cloud, survey.answers, name)
    out: dict[str, str] = {}
    failed = _unreadable(cloud, survey.answers, name)
    failed |= _describe_excess(survey.answers, name)
    for vm, reason in disputed.items():
        failed[vm] = _join(failed.get(vm), reason)
    # Moves for which ``keep`` is a third host come first, and end by that; then the others.
    for (vm, token), (hosts, uuid) in sorted(
        recorded_moves.items(), key=lambda item: _sort_key(item, keep)
    ):
        cloud.progress("Settling", detail=f"{vm}, {hosts}")
        word = keep if vm not in out or not _is_end(hosts, keep) else None
        is_forced = force and word == keep
        try:
            if is_dry:
                ended = recovery.foretell(cloud, vm, token, hosts, uuid)
            else:
                ended = _settle(cloud, vm, token, (hosts, uuid), force=is_forced, keep=word)
            out[vm] = _join(out.get(vm), ended)
        except VirtError as error:
            failed[vm] = _join(failed.get(vm), str(error))
    if not (recorded_moves or failed):
        _refuse_silence(survey, name)
    if failed:
        unsettled = recovery.Unsettled("; ".join(failed.values()))
        every_failed = {**survey.failed, **failed}
        unsettled.table = {"settled": out, **survey.errors_by_kind(), "failed": every_failed}
        raise unsettled
    return {"settled": out, **survey.errors_by_kind()}


def _settle(
    cloud: Cloud,
    vm: str,
    token: str,
    route: tuple[MoveHosts, str | None],
    *,
    force: bool,
    keep: str | None,
) -> str:
    """Settle one recorded move under the order of its VM; return how it ended."""
    with orders.opened(cloud.opts, vm) as order:
        return recovery.settle(cloud, order, token, *route, force=force, keep=keep)


def find_moves(
    cloud: Cloud, answers: Mapping[str, Any], host: str
) -> dict[tuple[str, str], MoveHosts]:
    """
    Return ``{(VM, token): its hosts}`` of the recorded moves from and to a host.

    answers
        Those of the other hosts to ``virt.migration_state``.
    """
    recorded_moves, _disputed = _collect_moves(cloud, answers, None)
    return {
        move: hosts
        for move, (hosts, _uuid) in recorded_moves.items()
        if host in (hosts.source, hosts.target)
    }


def _refuse_unnamed(name: str | None, *, force: bool) -> None:
    """Raise BadArgument for a name that is no text, and for ``force`` without a name."""
    if name is not None:
        arguments.text("name", name)
    elif force:
        raise BadArgument("force", "it removes what may be all there is of a VM; name that VM")


def _refuse_decision(*, is_dry: bool, force: bool, keep: str | None) -> None:
    """Raise BadArgument for a dry run with what the operator decides."""
    if is_dry and (force or keep is not None):
        raise BadArgument("dry_run", "goes without keep and force: with these the operator decides")


def _sort_key(
    item: tuple[tuple[str, str], tuple[MoveHosts, str | None]], keep: str | None
) -> tuple[bool, tuple[str, str]]:
    (move, (hosts, _uuid)) = item
    return _is_end(hosts, keep), move


def _join(before: str | None, more: str) -> str:
    return f"{before}; {more}" if before else more


def _is_end(hosts: MoveHosts, keep: str | None) -> bool:
    """Return whether ``keep`` is the source or the target of a move."""
    return keep in (hosts.source, hosts.target)


def _refuse_silence(survey: inventory.Survey, name: str | None) -> None:
    """Raise if no host answers, or if no host that answers has a recorded move of the VM."""
    unresponsive = survey.reasons()
    if unresponsive and not survey.answers:
        raise survey.no_answers_error()
    if name is not None:
        unresponsive_text = (
            f" that answers (not asked: {', '.join(sorted(unresponsive))})" if unresponsive else ""
        )
        raise BadArgument(
            "name",
            f"no move of VM {name!r} is on record on any host{unresponsive_text}; if its "
            "virt.move_disk was interrupted, run that again; if its virt.init was, run that "
            f"again, or salt-run virt.purge {name}",
        )


def _collect_moves(
    cloud: Cloud, answers: Mapping[str, Any], name: str | None
) -> tuple[dict[tuple[str, str], tuple[MoveHosts, str | None]], dict[str, str]]:
    """
    Return ``{(name, token): (hosts, uuid)}`` of all recorded moves, and ``{name: reason}`` of
    those that are left out, as their records do not agree on the hosts.
    """
    out: dict[tuple[str, str], tuple[MoveHosts, str | None]] = {}
    # This master knows both hosts of its own moves; the hosts' records do not change that.
    for record in orders.list_moves(cloud.opts):
        if name in (None, record.name):
            out.setdefault((record.name, record.token), recovery.read_route(record))
    own_moves, disputed = set(out), {}
    for host, vm, host_record in _read_host_records(answers, name):
        hosts = _move_hosts(answers, host, vm, host_record)
        first, _uuid = out.setdefault((vm, host_record.token), (hosts, host_record.uuid))
        if (vm, host_record.token) not in own_moves and not _agree(first, hosts):
            disputed[vm, host_record.token] = _dispute(vm, first, hosts, host)
    agreed_moves = {move: out[move] for move in out if move not in disputed}
    return agreed_moves, {vm: reason for (vm, _token), reason in disputed.items()}


def _read_host_records(
    answers: Mapping[str, Any], name: str | None
) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(host, VM, record)`` of the hosts' readable records, up to a number of each host."""
    for host, records_by_vm in sorted(answers.items()):
        for vm, record in itertools.islice(_readable_records(records_by_vm, name), _MOST):
            yield host, vm, record


def _readable_records(
    records_by_vm: Mapping[str, Any], name: str | None
) -> Iterator[tuple[str, Any]]:
    for vm, vm_records in records_by_vm.items():
        yield from (
            (vm, record) for record in vm_records if name in (None, vm) and record.error is None
        )


def _describe_excess(answers: Mapping[str, Any], name: str | None) -> dict[str, str]:
    """Return ``{host: reason}`` of hosts with more recorded moves than are settled at once."""
    counts = {
        host: sum(1 for _record in _readable_records(records_by_vm, name))
        for host, records_by_vm in answers.items()
    }
    return {
        host: f"{host} says that {count:,} moves are on record there, of which {_MOST} were looked "
        "at: run virt.settle again, or with the name of a VM"
        for host, count in sorted(counts.items())
        if count > _MOST
    }


def _move_hosts(answers: Mapping[str, Any], host: str, vm: str, record: Any) -> MoveHosts:
    """Return the two hosts of a move by the record of one of them."""
    since = records.time_text(record.since)
    if record.purpose == "departure":
        return MoveHosts(source=host, target=record.target, begun=since)
    return MoveHosts(
        source=record.source or _find_source(answers, vm, host), target=host, begun=since
    )


def _agree(first: MoveHosts, second: MoveHosts) -> bool:
    """Return whether two records are of the same move; an unknown host fits any."""
    pairs = ((first.source, second.source), (first.target, second.target))
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _dispute(vm: str, first: MoveHosts, second: MoveHosts, host: str) -> str:
    return (
        f"VM {vm!r}: {host} has the move {second} on record, and another host {first}, so "
        "nothing is done: see which is right, and shut the other out: salt-run virt.disallow HOST"
    )


def _unreadable(cloud: Cloud, answers: Mapping[str, Any], name: str | None) -> dict[str, str]:
    """Return ``{name: reason}`` of the VMs with an unreadable record, here or on a host."""
    out = dict(records.find_unreadable(orders.folder(cloud.opts), orders.PURPOSE))
    for host, records_by_vm in sorted(answers.items()):
        for vm, vm_records in records_by_vm.items():
            errors = [
                f"{host}: {record.error}" for record in vm_records if record.error is not None
            ]
            out |= {vm: "; ".join(filter(None, [out.get(vm), *errors]))} if errors else {}
    return {vm: reason for vm, reason in out.items() if name in (None, vm)}


def _find_source(answers: Mapping[str, Any], name: str, target: str) -> str | None:
    """Return the host with a VM's departure, for a target that does not know its source."""
    source_hosts = [
        host
        for host, records_by_vm in answers.items()
        if host != target
        and any(record.purpose == "departure" for record in records_by_vm.get(name, ()))
    ]
    return source_hosts[0] if len(source_hosts) == 1 else None
