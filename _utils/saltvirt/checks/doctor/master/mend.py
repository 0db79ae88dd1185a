"""Mend leftovers by the functions of an operator's commands, each of which checks again."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from saltvirt.certificates.master import allowing
from saltvirt.checks.doctor.hostleftovers import KINDS
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import hostcommands
from saltvirt.core import locks, wire
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import MASTER, Finding
from saltvirt.migration.master import recovery, settle
from saltvirt.seeding.master import authorization
from saltvirt.vm.recovery.master import interrupted

FUN = "virt.doctor_mend"
_LIMIT_S = 600
# What hosts mend first: settling these decides about their files and keys.
_FIRST = "unfinished"


def mend(cloud: Cloud, leftovers: Iterable[Finding], now: datetime) -> tuple[list[str], list[str]]:
    """Mend fixable leftovers; return a line for each success, and for each failure."""
    successes: list[str] = []
    failures: list[str] = []
    fixable_leftovers = [leftover for leftover in leftovers if leftover.mend]
    subjects_by_host = _group_by_host(
        leftover for leftover in fixable_leftovers if not _is_mended_here(leftover)
    )
    first_by_host = {
        host: {_FIRST: subjects_by_check.pop(_FIRST)}
        for host, subjects_by_check in subjects_by_host.items()
        if _FIRST in subjects_by_check
    }
    _mend_on_hosts(cloud, first_by_host, successes, failures)
    checks = list(_MENDERS)
    for leftover in sorted(
        filter(_is_mended_here, fixable_leftovers),
        key=lambda leftover: checks.index(leftover.check),
    ):
        name = f"{leftover.check} {leftover.subject}"
        try:
            outcome = _MENDERS[leftover.check](cloud, leftover.subject or "", now)
            successes.append(f"{name}: {outcome}")
        except (VirtError, OSError) as error:
            failures.append(f"{name}: {error}")
    _mend_on_hosts(cloud, subjects_by_host, successes, failures)
    return successes, failures


def _group_by_host(leftovers: Iterable[Finding]) -> dict[str, dict[str, list[str]]]:
    out: dict[str, dict[str, list[str]]] = {}
    for leftover in leftovers:
        subjects = out.setdefault(leftover.where, {}).setdefault(leftover.check, [])
        subjects.append(leftover.subject or "")
    return out


def _is_mended_here(leftover: Finding) -> bool:
    """Return whether this master mends a leftover itself; a host may have locks, too."""
    return leftover.check in _MENDERS and (leftover.where == MASTER or leftover.check not in KINDS)


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


def _revoke_certificates(cloud: Cloud, host: str, now: datetime) -> str:
    return f"revoked {', '.join(allowing.disallow(cloud.opts, [host], now)['revoked'])}"


def _settle_move(cloud: Cloud, name: str, _now: datetime) -> str:
    return str(settle.settle_all(cloud, name)["settled"].get(name, "settled"))


def _revoke_authorization(cloud: Cloud, name: str, _now: datetime) -> str:
    authorization.revoke(cloud, name)
    return "revoked"


def _remove_locks(cloud: Cloud, _path: str, _now: datetime) -> str:
    locks.sweep(orders.folder(cloud.opts) / orders.PURPOSE)
    return "removed"


# What this master mends, in this order: settling records decides about their files and keys.
_MENDERS: Mapping[str, Callable[[Cloud, str, datetime], str]] = {
    "half-move": _settle_move,
    "order": _settle_order,
    "authorization": _revoke_authorization,
    "certificate": _revoke_certificates,
    "lock": _remove_locks,
}
