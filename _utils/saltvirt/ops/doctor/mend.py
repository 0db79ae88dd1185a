"""Mend what ``virt.doctor`` has found on this host: looked at again, under the host's lock."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt import files
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.ops import reservations, storage, trash, trashbases, unfinished
from saltvirt.ops.doctor import facts, loose
from saltvirt.ops.migration import reach
from saltvirt.ops.seeding import submission
from saltvirt.placement.doctor import LooseFile

log = logging.getLogger(__name__)
_WHY = "virt.doctor"
# What is settled, and swept, by what every virt.init and virt.purge does first.
_SETTLED = ("unfinished", "lock", "download")
_FILES = ("disk", "seed", "nvram", "managed-save", "console-log")
_UNMARKED = ("nvram", "managed-save")
# Nothing that was written to so shortly before is taken for garbage, whatever the master says.
QUIET_S = 3600
# As long as an authorization can last.
TOKEN_S = 24 * 3600


def mend(conn: Any, settings: HostSettings, wanted: Mapping[str, Iterable[str]]) -> list[str]:
    """
    Remove what is left over, if it still is; return what was done, in one line each.

    wanted
        ``{check: [subject]}``, as ``virt.doctor`` names them.

    Raises BadArgument for a check that is mended in another way.
    """
    for check in wanted:
        if check not in (*_SETTLED, *_FILES, *_OTHERS, "token"):
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
    with reservations.host_lock(settings):
        done += _files(conn, settings, wanted)
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


def _files(conn: Any, settings: HostSettings, wanted: Mapping[str, Iterable[str]]) -> list[str]:
    """Remove files that nothing uses; nobody begins anything with them under this lock."""
    if trashbases.unknown(settings) or loose.unreadable(conn, settings):
        return []
    paths = {path for check in (*_FILES, "token") for path in wanted.get(check, ())}
    done = []
    for one in list(loose.files(conn, settings)) if paths else ():
        if one.path not in paths or one.quiet_s < (TOKEN_S if one.kind == "token" else QUIET_S):
            continue
        if one.kind == "token":
            submission.forget(settings, one.vm)
            done.append(f"token of VM {one.vm}: removed")
        else:
            done += _file(conn, settings, one)
    return done


def _file(conn: Any, settings: HostSettings, one: LooseFile) -> list[str]:
    is_kept = one.kind in ("disk", *_UNMARKED) and settings.trash_days
    if one.kind in _UNMARKED and not is_kept:
        # Nothing but its name says whose it is: it goes where it can be brought back from.
        return []
    log.warning("virt.doctor removes %s %s of VM %s", one.kind, one.path, one.vm)
    if one.kind == "console-log":
        unfinished.remove_log(one.vm)
        return [f"console-log {one.path}: removed"]
    with trash.filling(settings, one.vm, why=_WHY, uuid=one.uuid or None) as drop:
        removed = unfinished.remove(conn, settings, one.vm, [one.path], drop)
    how = "moved into the trash" if is_kept else "removed"
    return [f"{one.kind} {path}: {how}" for path in removed]


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
    "mark": _marks,
    "pool": _pools,
    "network-file": _parts,
}
