"""Mend what is left over, by the commands that an operator would run; each looks again itself."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from saltvirt import locks, wire
from saltvirt.errors import NoSuchVm, VirtError
from saltvirt.fleet import (
    allowing,
    authorization,
    hosts,
    interrupted,
    inventory,
    keys,
    moves,
    orders,
    settle,
    sightings,
)
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.doctor.leftover import Leftover
from saltvirt.fleet.findings import MASTER

FUN = "virt.doctor_mend"
_LIMIT_S = 600
# In this order: what a record says of files and keys is settled before those are judged.
_ORDER = ("unfinished", "half-move", "order", "key", "authorization", "certificate", "lock")


def mend(cloud: Cloud, found: Iterable[Leftover], now: datetime) -> tuple[list[str], list[str]]:
    """Mend what can be; return what was done, and what failed, in one line each."""
    done: list[str] = []
    failed: list[str] = []
    todo = [one for one in found if one.does]
    of_hosts = _by_host(one for one in todo if not _is_ours(one))
    first = {host: _only(there, ("unfinished",)) for host, there in of_hosts.items()}
    _on_hosts(cloud, first, done, failed)
    for one in sorted(todo, key=_rank):
        if not _is_ours(one):
            continue
        try:
            said = _MASTERS[one.check](cloud, one.subject, now)
            done.append(f"{one.check} {one.subject}: {said}")
        except (VirtError, OSError) as error:
            failed.append(f"{one.check} {one.subject}: {error}")
    rest = {host: _without(there, ("unfinished",)) for host, there in of_hosts.items()}
    _on_hosts(cloud, rest, done, failed)
    return done, failed


def _is_ours(one: Leftover) -> bool:
    """Return whether it is mended from here; a lock may be a host's."""
    return one.check in _MASTERS and (one.where == MASTER or one.check in _OF_HOSTS)


def _rank(one: Leftover) -> tuple[int, str]:
    return (_ORDER.index(one.check) if one.check in _ORDER else len(_ORDER)), one.subject


def _by_host(found: Iterable[Leftover]) -> dict[str, dict[str, list[str]]]:
    out: dict[str, dict[str, list[str]]] = {}
    for one in found:
        out.setdefault(one.where, {}).setdefault(one.check, []).append(one.subject)
    return out


def _only(there: Mapping[str, list[str]], checks: Iterable[str]) -> dict[str, list[str]]:
    return {check: there[check] for check in checks if check in there}


def _without(there: Mapping[str, list[str]], checks: Iterable[str]) -> dict[str, list[str]]:
    return {check: subjects for check, subjects in there.items() if check not in set(checks)}


def _on_hosts(
    cloud: Cloud,
    wanted: Mapping[str, Mapping[str, list[str]]],
    done: list[str],
    failed: list[str],
) -> None:
    for host, there in sorted(wanted.items()):
        if not there:
            continue
        try:
            said = hosts.act(cloud, host, FUN, dict(there), limit_s=_LIMIT_S)
            done += [f"{host}: {line}" for line in wire.read(host, FUN, list[str], said)]
        except VirtError as error:
            failed.append(str(error))


def _order(cloud: Cloud, name: str, _now: datetime) -> str:
    """Settle what an interrupted command has left, as the next virt.purge of that VM would."""
    # A VM that moves may have any name that libvirt allows.
    with orders.opened(cloud.opts, name, is_there=True) as order:
        if order.record is None:
            return "was settled meanwhile"
        moves.settle_order(cloud, order)
        late = interrupted.give_up(cloud, order)
        found = inventory.look_for(cloud, name)
        seen = sightings.of_presence(found.answers)
        unheard = inventory.unheard(cloud, found, name, seen, interrupted.hosts(order))
        said = interrupted.settle(cloud.opts, order, seen, {**late, **unheard})
        return said or "settled"


def _key(cloud: Cloud, name: str, _now: datetime) -> str:
    """Delete the key that was noted for a VM, unless a host has it by now, or may."""
    # Under the lock of the name: nobody builds a VM of that name meanwhile.
    with orders.opened(cloud.opts, name) as order:
        if order.record is not None:
            raise VirtError("a command for that VM was cut off meanwhile; run this again")
        found = inventory.look_for(cloud, name)
        if found.reasons():
            raise VirtError(f"{', '.join(sorted(found.reasons()))} cannot be asked; it stays")
        try:
            host = inventory.located(cloud, found, name)
        except NoSuchVm as error:
            if error.silent:
                raise VirtError(f"{', '.join(error.silent)} may have that VM; it stays") from None
            gone = keys.delete(cloud.opts, name, keys.noted(cloud.opts).get(name))
            return "deleted" if gone else "was deleted meanwhile"
        raise VirtError(f"{host} has that VM by now; it stays")


def _move(cloud: Cloud, name: str, _now: datetime) -> str:
    said = settle.every(cloud, name)["settled"]
    return str(said.get(name, "settled"))


def _authorization(cloud: Cloud, name: str, _now: datetime) -> str:
    authorization.revoke(cloud, name)
    return "revoked"


def _certificate(cloud: Cloud, host: str, now: datetime) -> str:
    revoked = allowing.disallow(cloud.opts, [host], now)["revoked"]
    return f"revoked {', '.join(revoked)}"


def _lock(cloud: Cloud, _path: str, _now: datetime) -> str:
    locks.sweep(orders.folder(cloud.opts) / orders.PURPOSE)
    return "removed"


_MASTERS: Mapping[str, Callable[[Cloud, str, datetime], Any]] = {
    "half-move": _move,
    "order": _order,
    "key": _key,
    "authorization": _authorization,
    "certificate": _certificate,
    "lock": _lock,
}
# These are named with a host, and mended from here all the same.
_OF_HOSTS = ("half-move", "certificate")
