"""Mend leftovers by the functions of an operator's commands, each of which checks again."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from saltvirt.certificates.master import allowing
from saltvirt.checks.doctor.master.leftover import Leftover
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import hostcommands
from saltvirt.core import locks, wire
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import MASTER
from saltvirt.migration.master import recovery, settle
from saltvirt.seeding.master import authorization
from saltvirt.vm.recovery.master import interrupted

FUN = "virt.doctor_mend"
_LIMIT_S = 600
# In this order: settling records decides about their files and keys, so it comes first.
_ORDER = ("unfinished", "half-move", "order", "authorization", "certificate", "lock")


def mend(cloud: Cloud, leftovers: Iterable[Leftover], now: datetime) -> tuple[list[str], list[str]]:
    """Mend fixable leftovers; return a line for each success, and for each failure."""
    successes: list[str] = []
    failures: list[str] = []
    fixable_leftovers = [leftover for leftover in leftovers if leftover.does]
    subjects_by_host = _group_by_host(
        leftover for leftover in fixable_leftovers if not _is_mended_here(leftover)
    )
    unfinished_by_host = {
        host: _select_checks(subjects_by_check, ("unfinished",))
        for host, subjects_by_check in subjects_by_host.items()
    }
    _mend_on_hosts(cloud, unfinished_by_host, successes, failures)
    for leftover in sorted(fixable_leftovers, key=_rank):
        if not _is_mended_here(leftover):
            continue
        try:
            outcome = _MENDERS[leftover.check](cloud, leftover.subject, now)
            successes.append(f"{leftover.check} {leftover.subject}: {outcome}")
        except (VirtError, OSError) as error:
            failures.append(f"{leftover.check} {leftover.subject}: {error}")
    remaining_by_host = {
        host: _drop_checks(subjects_by_check, ("unfinished",))
        for host, subjects_by_check in subjects_by_host.items()
    }
    _mend_on_hosts(cloud, remaining_by_host, successes, failures)
    return successes, failures


def _is_mended_here(leftover: Leftover) -> bool:
    """Return whether this master mends a leftover itself; a lock may be a host's."""
    return leftover.check in _MENDERS and (
        leftover.where == MASTER or leftover.check in _NAMED_WITH_HOST
    )


def _rank(leftover: Leftover) -> tuple[int, str]:
    return (
        _ORDER.index(leftover.check) if leftover.check in _ORDER else len(_ORDER)
    ), leftover.subject


def _group_by_host(leftovers: Iterable[Leftover]) -> dict[str, dict[str, list[str]]]:
    out: dict[str, dict[str, list[str]]] = {}
    for leftover in leftovers:
        out.setdefault(leftover.where, {}).setdefault(leftover.check, []).append(leftover.subject)
    return out


def _select_checks(
    subjects_by_check: Mapping[str, list[str]], checks: Iterable[str]
) -> dict[str, list[str]]:
    return {check: subjects_by_check[check] for check in checks if check in subjects_by_check}


def _drop_checks(
    subjects_by_check: Mapping[str, list[str]], checks: Iterable[str]
) -> dict[str, list[str]]:
    return {
        check: subjects for check, subjects in subjects_by_check.items() if check not in set(checks)
    }


def _mend_on_hosts(
    cloud: Cloud,
    subjects_by_host: Mapping[str, Mapping[str, list[str]]],
    successes: list[str],
    failures: list[str],
) -> None:
    for host, subjects_by_check in sorted(subjects_by_host.items()):
        if not subjects_by_check:
            continue
        try:
            answer = hostcommands.act(cloud, host, FUN, dict(subjects_by_check), limit_s=_LIMIT_S)
            successes += [f"{host}: {line}" for line in wire.read(host, FUN, list[str], answer)]
        except VirtError as error:
            failures.append(str(error))


def _settle_order(cloud: Cloud, name: str, _now: datetime) -> str:
    """Settle an interrupted command, as the next virt.purge of that VM would."""
    with orders.opened(cloud.opts, name) as order:
        if order.record is None:
            return "was settled meanwhile"
        recovery.settle_order(cloud, order)
        pending_reasons = interrupted.give_up(cloud, order).reasons
        vm = locate(cloud, name, Purpose.REPORT, order_hosts=interrupted.order_hosts(order))
        outcome = interrupted.settle(
            cloud.opts, order, vm.presence_by_host, {**pending_reasons, **vm.may_have}
        )
        return outcome or "settled"


def _settle_move(cloud: Cloud, name: str, _now: datetime) -> str:
    outcomes = settle.settle_all(cloud, name)["settled"]
    return str(outcomes.get(name, "settled"))


def _revoke_authorization(cloud: Cloud, name: str, _now: datetime) -> str:
    authorization.revoke(cloud, name)
    return "revoked"


def _revoke_certificates(cloud: Cloud, host: str, now: datetime) -> str:
    revoked_serials = allowing.disallow(cloud.opts, [host], now)["revoked"]
    return f"revoked {', '.join(revoked_serials)}"


def _remove_locks(cloud: Cloud, _path: str, _now: datetime) -> str:
    locks.sweep(orders.folder(cloud.opts) / orders.PURPOSE)
    return "removed"


_MENDERS: Mapping[str, Callable[[Cloud, str, datetime], Any]] = {
    "half-move": _settle_move,
    "order": _settle_order,
    "authorization": _revoke_authorization,
    "certificate": _revoke_certificates,
    "lock": _remove_locks,
}
# Leftovers of hosts that the master mends.
_NAMED_WITH_HOST = ("half-move", "certificate")
