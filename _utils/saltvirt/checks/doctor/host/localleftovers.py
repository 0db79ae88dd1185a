"""Find and mend the leftovers that concern this host alone, each after a look under its lock."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import salt.utils.systemd

from saltvirt.checks.doctor.host import unusedfiles
from saltvirt.checks.doctor.hostleftovers import TOKEN_S
from saltvirt.core import files, locks
from saltvirt.core.errors import BadArgument
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.migration.host import peer
from saltvirt.seeding import submission
from saltvirt.storage import claims, diskpaths, sharing, trash
from saltvirt.storage.images import removal
from saltvirt.vm.recovery.host import unfinished

_UNITS, _RULES = Path("/etc/systemd/system"), Path("/etc/salt-virt")
# Folders in which files of bridges and firewalls are replaced atomically.
NETWORK_FOLDERS = (
    *(_RULES, _UNITS, Path("/etc/netplan"), Path("/etc/systemd/network")),
    *(Path("/etc/NetworkManager/system-connections"), Path("/etc/network")),
    Path("/etc/network/interfaces.d"),
)
# No unit loads these: firewalld's own rules, and the list of peers that the master sent last.
_UNLOADED_PARTS = ("/firewalld-", "/peers-")


@dataclass(frozen=True, slots=True)
class _Handler:
    """
    What this host does about one kind of leftover.

    subjects
        Returns what is left over. Defaults to nothing: the master finds it among the unused files.
    mend
        Mends those among the given subjects that are still left over, and returns what was done;
        None if an operator has to decide, or with ``is_settled``.
    is_settled
        Whether ``unfinished.settle`` mends it, as every virt.init and virt.purge does first.
    """

    subjects: Callable[[Any, HostSettings], Iterable[object]] = lambda _conn, _settings: ()
    mend: Callable[[Any, HostSettings, set[str]], list[str]] | None = None
    is_settled: bool = False


def find_leftovers(conn: Any, settings: HostSettings) -> dict[str, list[str]]:
    """Return, by check, the leftovers that concern only this host."""
    subjects_by_check = {
        check: sorted(map(str, handler.subjects(conn, settings)))
        for check, handler in _HANDLERS.items()
    }
    return {check: subjects for check, subjects in subjects_by_check.items() if subjects}


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
        handler = _HANDLERS.get(check)
        if handler is None or not (handler.mend or handler.is_settled):
            raise BadArgument("wanted", f"{check!r} is not mended on its host")
    outcomes: list[str] = []
    if any(_HANDLERS[check].is_settled for check in subjects_by_check):
        outcomes += _settle(conn, settings, subjects_by_check)
    for check, handler in _HANDLERS.items():
        if check in subjects_by_check and handler.mend:
            outcomes += handler.mend(conn, settings, set(subjects_by_check[check]))
    return outcomes


def _settle(
    conn: Any, settings: HostSettings, subjects_by_check: Mapping[str, Iterable[str]]
) -> Iterator[str]:
    left_before = find_leftovers(conn, settings)
    unfinished.settle(conn, settings)
    left_after = find_leftovers(conn, settings)
    for check, subjects in subjects_by_check.items():
        if _HANDLERS[check].is_settled:
            gone_subjects = {*left_before.get(check, ())} - {*left_after.get(check, ())}
            for subject in sorted(gone_subjects.intersection(subjects)):
                yield f"{check} {subject}: settled"


def _find_unfinished(_conn: Any, settings: HostSettings) -> Iterator[str]:
    broken_records = reservations.find_unreadable(settings)
    names = reservations.find_unfinished(settings)
    yield from (name for name in names if name not in broken_records)


def _each(find: Callable[[Any], Iterable[Path]], folders: Iterable[Any]) -> Iterator[Path]:
    for folder in folders:
        yield from find(folder)


def _own_folders(conn: Any, settings: HostSettings) -> Iterator[Path]:
    """Yield the folders of VMs' files, without those where files may be another host's."""
    for folder in diskpaths.folders(conn, settings):
        if not sharing.is_shared(settings, folder):
            yield folder


def _find_marks(conn: Any, settings: HostSettings) -> Iterator[Path]:
    """Yield marks of builds and arrivals that have no record any more."""
    records_folder, jobs = reservations.folder(settings), ("build", "arrival", "diskmove")
    tokens = [record.token for job in jobs for record in records.read_records(records_folder, job)]
    if not any(records.find_unreadable(records_folder, job) for job in jobs):
        for folder in _own_folders(conn, settings):
            yield from claims.find_leftover_marks(folder, tokens)


def _remove_marks(conn: Any, settings: HostSettings, paths: set[str]) -> list[str]:
    outcomes = []
    with reservations.host_lock(settings):
        for path in _find_marks(conn, settings):
            if str(path) in paths:
                files.unlink(path)
                outcomes.append(f"mark {path}: removed")
    return outcomes


def _find_trash(conn: Any, settings: HostSettings) -> Iterator[Path]:
    """Yield entries of the trash without a readable record."""
    trash_records = records.read_records(reservations.folder(settings), trash.PURPOSE)
    recorded_names = {record.name for record in trash_records}
    for folder in _own_folders(conn, settings):
        for entry in (folder / trash.FOLDER).glob("*"):
            # A command that was killed before it moved anything leaves an empty entry.
            if entry.name not in recorded_names and not _is_empty(entry):
                yield entry


def _is_empty(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True  # removed meanwhile
    except NotADirectoryError:
        return False


def _end_pools(conn: Any, settings: HostSettings, pool_names: set[str]) -> list[str]:
    open_before = pool_names.intersection(peer.find_open_pools(conn, settings))
    # close_folders checks again under its own lock, and sees moves begun meanwhile.
    peer.close_folders(conn, settings, "")
    open_after = set(peer.find_open_pools(conn, settings))
    return [f"pool {pool}: ended" for pool in sorted(open_before - open_after)]


def _remove_network_files(_conn: Any, _settings: HostSettings, paths: set[str]) -> list[str]:
    outcomes = []
    for folder in sorted({str(Path(path).parent) for path in paths} & {*map(str, NETWORK_FOLDERS)}):
        removed_paths = [path for path in files.find_abandoned(folder) if str(path) in paths]
        files.sweep(folder)
        outcomes += [f"network-file {path}: removed" for path in removed_paths]
    return outcomes


def _find_firewalls(_conn: Any, _settings: HostSettings) -> Iterator[str]:
    """Yield rule files that no unit of ours loads, and units that load missing rule files."""
    if not salt.utils.systemd.booted():
        return
    rules_by_unit = _loaded_rules()
    loaded_rules = {word for words in rules_by_unit.values() for word in words}
    rule_files = {str(path) for path in _RULES.glob("[!.]*") if path.is_file()}
    for path in rule_files - loaded_rules:
        if not any(part in path for part in _UNLOADED_PARTS):
            yield path
    yield from (unit for unit, words in rules_by_unit.items() if words - rule_files)


def _loaded_rules() -> dict[str, set[str]]:
    """Return ``{unit: rule files}`` of our units."""
    return {
        str(path): {word for word in path.read_text().split() if word.startswith(f"{_RULES}/")}
        for path in _UNITS.glob("salt-virt-*.service")
    }


def _remove_tokens(_conn: Any, settings: HostSettings, paths: set[str]) -> list[str]:
    """Remove tokens that are older than any authorization lasts."""
    outcomes = []
    with reservations.host_lock(settings):
        for token in unusedfiles.tokens(settings):
            if token.path in paths and token.quiet_s >= TOKEN_S:
                submission.forget_token(settings, token.vm)
                outcomes.append(f"token of VM {token.vm}: removed")
    return outcomes


# By check, in the order of mending; the texts are in ../hostleftovers.py.
_HANDLERS: Mapping[str, _Handler] = {
    "unfinished": _Handler(_find_unfinished, is_settled=True),
    "lock": _Handler(
        lambda _conn, settings: _each(locks.find_dead, unfinished.lock_folders(settings)),
        is_settled=True,
    ),
    "download": _Handler(lambda _conn, settings: removal.find_abandoned(settings), is_settled=True),
    "token": _Handler(mend=_remove_tokens),
    "mark": _Handler(_find_marks, _remove_marks),
    "trash": _Handler(_find_trash),
    "pool": _Handler(peer.find_open_pools, _end_pools),
    "network-file": _Handler(
        lambda _conn, _settings: _each(files.find_abandoned, NETWORK_FOLDERS), _remove_network_files
    ),
    "firewall": _Handler(_find_firewalls),
}
