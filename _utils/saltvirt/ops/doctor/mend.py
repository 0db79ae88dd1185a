"""Mend what ``virt.doctor`` has found on this host: looked at again, under the host's lock."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt import files
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.ops import reservations, storage, unfinished
from saltvirt.ops.doctor import facts, loose
from saltvirt.ops.migration import reach
from saltvirt.ops.seeding import submission

# What is settled, and swept, by what every virt.init and virt.purge does first.
_SETTLED = ("unfinished", "lock", "download")
# As long as an authorization can last.
TOKEN_S = 24 * 3600


def mend(conn: Any, settings: HostSettings, wanted: Mapping[str, Iterable[str]]) -> list[str]:
    """
    Settle and remove what a record, or its own time, says is over; return what was done.

    wanted
        ``{check: [subject]}``, as ``virt.doctor`` names them.

    Raises BadArgument for a check that is mended in another way.
    """
    for check in wanted:
        if check not in (*_SETTLED, *_OTHERS):
            raise BadArgument("wanted", f"{check!r} is not mended on its host")
    done: list[str] = []
    if any(check in wanted for check in _SETTLED):
        before = _left(conn, settings, _SETTLED, wanted)
        unfinished.settle(conn, settings)
        after = _left(conn, settings, _SETTLED, wanted)
        done += [f"{check} {one}: settled" for check, one in before if (check, one) not in after]
    for check, act in _OTHERS.items():
        if check in wanted:
            done += act(conn, settings, set(wanted[check]))
    return done


def _left(
    conn: Any,
    settings: HostSettings,
    checks: Iterable[str],
    wanted: Mapping[str, Iterable[str]],
) -> list[tuple[str, str]]:
    found = facts.left(conn, settings)
    return [
        (check, one)
        for check in checks
        for one in found.get(check, ())
        if one in set(wanted.get(check, ()))
    ]


def _tokens(_conn: Any, settings: HostSettings, wanted: set[str]) -> list[str]:
    """Remove tokens of authorizations that are over: their own time says that they are."""
    done = []
    with reservations.host_lock(settings):
        for one in loose.tokens(settings):
            if one.path in wanted and one.quiet_s >= TOKEN_S:
                submission.forget(settings, one.vm)
                done.append(f"token of VM {one.vm}: removed")
    return done


def _marks(conn: Any, settings: HostSettings, wanted: set[str]) -> list[str]:
    done = []
    with reservations.host_lock(settings):
        for path in facts.left_marks(settings, storage.folders(conn, settings)):
            if str(path) in wanted:
                files.unlink(path)
                done.append(f"mark {path}: removed")
    return done


def _pools(conn: Any, settings: HostSettings, wanted: set[str]) -> list[str]:
    before = wanted.intersection(reach.left_open(conn, settings))
    # Under its own lock it looks again who needs which; a move that is begun meanwhile does.
    reach.close_folders(conn, settings, "")
    after = set(reach.left_open(conn, settings))
    return [f"pool {one}: ended" for one in sorted(before - after)]


def _parts(_conn: Any, _settings: HostSettings, wanted: set[str]) -> list[str]:
    folders = {str(one): one for one in facts.NETWORK_FOLDERS}
    done = []
    for folder in sorted({str(Path(path).parent) for path in wanted} & set(folders)):
        there = [path for path in files.abandoned(folder) if str(path) in wanted]
        files.sweep(folder)
        done += [f"network-file {path}: removed" for path in there]
    return done


_OTHERS: dict[str, Callable[[Any, HostSettings, set[str]], list[str]]] = {
    "token": _tokens,
    "mark": _marks,
    "pool": _pools,
    "network-file": _parts,
}
