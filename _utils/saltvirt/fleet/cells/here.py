"""What this master, as a cell, says to the one above it: where a VM is, how a job of its is."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt import arguments, files, locks, records, wire
from saltvirt.errors import BadArgument
from saltvirt.fleet import hints, inventory, orders, sightings
from saltvirt.fleet.cells.answers import Found
from saltvirt.fleet.cloud import Cloud

_STEP_S = 0.2
# How long a job may take to begin, as a busy master has it wait, and its answer to be kept.
_BEGIN_S = 15
# Whoever waits for an answer asks within seconds.
_KEPT_S = 24 * 3600


def find(cloud: Cloud, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return ``{name: Found as plain data}`` of what this master and its hosts have of names."""
    for name in names:
        arguments.vm_name(name)
    # A master without hypervisors has no VM.
    if not inventory.allowed(cloud):
        return {name: wire.plain(_found(cloud, name, None, {})) for name in names}
    if len(names) == 1:
        (name,) = names
        found = inventory.look_for(cloud, name)
        seen = sightings.of_presence(found.answers)
        return {name: wire.plain(_found(cloud, name, found, seen))}
    found = inventory.survey(cloud, inventory.every(cloud), "virt.host_info")
    # Of most names nobody has heard, and there are hundreds: the hints are one large file.
    heard = {*sightings.names(found.answers), *itertools.chain(*hints.every(cloud.opts).values())}
    return {
        name: wire.plain(
            _found(cloud, name, found, sightings.of_info(found.answers, name))
            if name in heard
            else _found(cloud, name, None, {})
        )
        for name in names
    }


def _found(
    cloud: Cloud,
    name: str,
    found: inventory.Survey | None,
    seen: Mapping[str, sightings.Sighting],
) -> Found:
    having = sightings.having(seen)
    order = records.look(orders.folder(cloud.opts), orders.PURPOSE, name)
    return Found(
        hosts={host: str(seen[host].state) for host in having},
        traces=sorted(h for h, one in seen.items() if one.is_trace and h not in having),
        may_have=inventory.unheard(cloud, found, name, seen) if found else {},
        order=order.phase if order else None,
    )


@contextlib.contextmanager
def noted(opts: Mapping[str, Any], jid: str | None) -> Iterator[None]:
    """Have it seen, as long as the block lasts, that a job of this master runs."""
    if jid is None:
        yield
        return
    path = _path(opts, jid)
    locks.sweep(path.parent)  # what a killed one has left
    with locks.held(path):
        yield


def _path(opts: Mapping[str, Any], jid: str) -> Path:
    return Path(opts["cachedir"]) / "salt-virt" / "jobs" / f"{jid}.lock"


def job(cloud: Cloud, jid: str, wait_s: int) -> dict[str, Any]:
    """
    Return a job as ``answers.Job``, as plain data, at its end or after ``wait_s`` seconds.

    Only jobs of this project's runner are told of: whoever may call it need not see others'.
    """
    if not jid.replace("_", "").isdigit():
        raise BadArgument("jid", f"{jid!r} is not the id of a job")
    path, begin = _path(cloud.opts, jid), time.monotonic()
    seen = begin
    while True:
        now = time.monotonic()
        long_s = now - begin
        if locks.is_held(path):
            seen = now
        else:
            answer = _answer(cloud.opts, jid)
            if answer is not None:
                return _told("over", answer[0])
            # It has not begun, or its answer is not kept yet.
            if now - seen > _BEGIN_S:
                return _told("lost")
        if long_s >= wait_s:
            return _told("running")
        time.sleep(_STEP_S if long_s < 2 else 2 * _STEP_S)


def _told(state: str, answer: Any = None) -> dict[str, Any]:
    return {"state": state, "answer": answer}


def keep(opts: Mapping[str, Any], jid: str, answer: Any) -> None:
    """
    Keep for the master above what a job of this master has answered.

    What Salt's job cache has may be anybody's: a guest's minion may return to any job, as a syndic
    does, in any minion's name, also this master's, and the first who does it is stored.
    """
    path = _answer_path(opts, jid)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in path.parent.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink()
    files.write(path, json.dumps({"answer": answer}, default=str).encode())


def _answer_path(opts: Mapping[str, Any], jid: str) -> Path:
    return _path(opts, jid).with_suffix(".json")


def _answer(opts: Mapping[str, Any], jid: str) -> tuple[Any] | None:
    """Return what a job of our runner has answered, None if that is not there."""
    with contextlib.suppress(FileNotFoundError):
        return (json.loads(_answer_path(opts, jid).read_text())["answer"],)
    return None
