"""Mend leftovers of this host that ``virt.doctor`` names, after a new look under its lock."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from saltvirt.checks.doctor.host import facts, unusedfiles
from saltvirt.core import files
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.migration.host import peer
from saltvirt.seeding import submission
from saltvirt.storage import diskpaths
from saltvirt.vm.recovery.host import unfinished

# Checks that unfinished.settle mends, as every virt.init and virt.purge does first.
_SETTLED_CHECKS = ("unfinished", "lock", "download")
# The longest time that an authorization is valid.
TOKEN_S = 24 * 3600


def mend(
    conn: Any, settings: HostSettings, subjects_by_check: Mapping[str, Iterable[str]]
) -> list[str]:
    """
    Settle and remove what is over by its record or its age; return what was done.

    subjects_by_check
        ``{check: [subject]}``, as ``virt.doctor`` names them.

    Raises BadArgument for a check that is not mended on its host.
    """
    for check in subjects_by_check:
        if check not in (*_SETTLED_CHECKS, *_MENDERS):
            raise BadArgument("wanted", f"{check!r} is not mended on its host")
    outcomes: list[str] = []
    if any(check in subjects_by_check for check in _SETTLED_CHECKS):
        left_before = _find_leftovers(conn, settings, _SETTLED_CHECKS, subjects_by_check)
        unfinished.settle(conn, settings)
        left_after = _find_leftovers(conn, settings, _SETTLED_CHECKS, subjects_by_check)
        outcomes += [
            f"{check} {subject}: settled"
            for check, subject in left_before
            if (check, subject) not in left_after
        ]
    for check, act in _MENDERS.items():
        if check in subjects_by_check:
            outcomes += act(conn, settings, set(subjects_by_check[check]))
    return outcomes


def _find_leftovers(
    conn: Any,
    settings: HostSettings,
    checks: Iterable[str],
    subjects_by_check: Mapping[str, Iterable[str]],
) -> list[tuple[str, str]]:
    leftovers = facts.find_leftovers(conn, settings)
    return [
        (check, subject)
        for check in checks
        for subject in leftovers.get(check, ())
        if subject in set(subjects_by_check.get(check, ()))
    ]


def _remove_tokens(_conn: Any, settings: HostSettings, paths: set[str]) -> list[str]:
    """Remove tokens that are older than any authorization lasts."""
    outcomes = []
    with reservations.host_lock(settings):
        for token in unusedfiles.tokens(settings):
            if token.path in paths and token.quiet_s >= TOKEN_S:
                submission.forget_token(settings, token.vm)
                outcomes.append(f"token of VM {token.vm}: removed")
    return outcomes


def _remove_marks(conn: Any, settings: HostSettings, paths: set[str]) -> list[str]:
    outcomes = []
    with reservations.host_lock(settings):
        for path in facts.find_left_marks(settings, diskpaths.folders(conn, settings)):
            if str(path) in paths:
                files.unlink(path)
                outcomes.append(f"mark {path}: removed")
    return outcomes


def _end_pools(conn: Any, settings: HostSettings, pool_names: set[str]) -> list[str]:
    open_before = pool_names.intersection(peer.find_open_pools(conn, settings))
    # close_folders checks again under its own lock, and sees moves begun meanwhile.
    peer.close_folders(conn, settings, "")
    open_after = set(peer.find_open_pools(conn, settings))
    return [f"pool {pool}: ended" for pool in sorted(open_before - open_after)]


def _remove_parts(_conn: Any, _settings: HostSettings, paths: set[str]) -> list[str]:
    folders = {str(network_folder): network_folder for network_folder in facts.NETWORK_FOLDERS}
    outcomes = []
    for folder in sorted({str(Path(path).parent) for path in paths} & set(folders)):
        removed_paths = [path for path in files.find_abandoned(folder) if str(path) in paths]
        files.sweep(folder)
        outcomes += [f"network-file {path}: removed" for path in removed_paths]
    return outcomes


_MENDERS: dict[str, Callable[[Any, HostSettings, set[str]], list[str]]] = {
    "token": _remove_tokens,
    "mark": _remove_marks,
    "pool": _end_pools,
    "network-file": _remove_parts,
}
