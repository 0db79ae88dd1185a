"""Look for what faults have left, twice, and mend it if that is wanted."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from saltvirt import arguments, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import inventory, minions
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.doctor import masterfacts, mend, ofhost, ofmaster
from saltvirt.fleet.doctor.leftover import Leftover, Seen
from saltvirt.fleet.silence import Wait
from saltvirt.placement.doctor import DoctorFacts

FUN = "virt.doctor_facts"
# Between two looks: what is on its way is somewhere else then, or on another record. So many more
# there are at most, while it is not the same hosts that answer.
_AGAIN_S, _MOST_AGAIN = 2, 3
_NOT_CHECKED = "not-checked"


class LeftOver(VirtError):
    """Something is left over; :attr:`table` has what, and what was mended."""


def doctor(cloud: Cloud, now: datetime, *, fix: object = False) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "mended": []}`` of a cloud with nothing left over.

    fix
        Mend what is found at both looks. Defaults to False.

    Raises :class:`LeftOver` if anything is left over, after mending too.
    """
    is_fixing = arguments.boolean("fix", fix)
    cloud.progress("Looking", detail="at the master and all hosts")
    seen, found = _twice(cloud, now)
    done: list[str] = []
    failed: list[str] = []
    if is_fixing and found:
        for one in found:
            if one.does:
                cloud.progress("Mending", detail=f"{one.where}: {one.what}; {one.does}")
        done, failed = mend.mend(cloud, found, now)
        seen, found = _twice(cloud, now)
    out = {
        "findings": [_shown(one) for one in found],
        "checked": sorted(seen.hosts),
        "mended": done,
        **({"failed": failed} if failed else {}),
    }
    if found or failed:
        count = f"{len(found)} things are" if len(found) != 1 else "1 thing is"
        error = LeftOver("; ".join([f"{count} left over; each is named with its fix", *failed]))
        error.table = out
        raise error
    return {**out, "ready": _said(done)}


def _said(done: list[str]) -> str:
    if not done:
        return "nothing is left over"
    return "; ".join([*done, "now nothing is left over"])


def _shown(one: Leftover) -> dict[str, Any]:
    return {key: value for key, value in asdict(one).items() if key != "does"}


def _twice(cloud: Cloud, now: datetime) -> tuple[Seen, list[Leftover]]:
    """
    Look twice, if there is anything; return the last look, and what was found both times.

    While a host is silent little is judged: two looks at which not the same hosts have answered
    would find nothing both times, whatever there is.
    """
    seen = _look(cloud, now)
    found = list(_judged(seen))
    if not found:
        return seen, found
    for _again in range(_MOST_AGAIN):
        time.sleep(_AGAIN_S)
        before, seen = seen, _look(cloud, now)
        found = _both(before, seen)
        if before.hosts.keys() == seen.hosts.keys():
            break
    return seen, found


def _both(before: Seen, seen: Seen) -> list[Leftover]:
    """Return what was found at both looks, and who was not checked at either."""
    first = {_key(one): one for one in _judged(before)}
    last = list(_judged(seen))
    found = [one for one in last if _key(one) in first or one.check == _NOT_CHECKED]
    known = {_key(one) for one in found}
    late = (one for key, one in first.items() if key not in known)
    return found + [one for one in late if one.check == _NOT_CHECKED]


def _key(one: Leftover) -> tuple[str, str, str]:
    return one.check, one.where, one.subject


def _look(cloud: Cloud, now: datetime) -> Seen:
    # Before the hosts: what is begun after this is on their records, or on none of ours.
    at_work = masterfacts.at_work(cloud.opts)
    allowed = inventory.allowed(cloud)
    replies = minions.ask(cloud, allowed, FUN, wait=Wait.brief(allowed))
    hosts, silent = {}, {}
    for host, reply in replies.items():
        try:
            if reply.ok:
                hosts[host] = wire.read(host, FUN, DoctorFacts, reply.value)
            else:
                silent[host] = reply.error or "it does not answer"
        except wire.BadAnswer as error:
            silent[host] = str(error)
    master = masterfacts.of(cloud, list(hosts), now)
    master = replace(master, at_work=at_work | master.at_work)
    seen = Seen(master=master, hosts=hosts, silent=silent)
    unneeded = [name for name in master.noted if not ofmaster.is_key_needed(name, seen)]
    answering = masterfacts.answering(cloud, unneeded)
    return replace(seen, master=replace(master, answering=answering))


def _judged(seen: Seen) -> Iterator[Leftover]:
    yield from ofmaster.findings(seen)
    for host, why in sorted(seen.silent.items()):
        yield ofhost.silent(host, why)
    for host, names in sorted(seen.master.hints.items()):
        if host not in seen.hosts and host not in seen.silent:
            yield ofhost.remembered(host, names)
    for host in sorted(seen.hosts):
        yield from ofhost.findings(host, seen)
