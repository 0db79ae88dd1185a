"""Read this host's facts for ``virt.doctor``; change nothing."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import salt.utils.systemd

from saltvirt.checks.doctor.doctoranswer import DoctorFacts, MoveLeft
from saltvirt.checks.doctor.host import unusedfiles
from saltvirt.core import filecontent, files, locks
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.migration.host import peer
from saltvirt.storage import claims, diskpaths, sharing, trash, trashbacking
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


def read_host_facts(conn: Any, opts: Mapping[str, Any], settings: HostSettings) -> DoctorFacts:
    """Return the facts of this host, with the files of VMs that nothing here uses."""
    trash_reasons, vm_reasons = (
        trashbacking.find_unreadable_entries(settings),
        unusedfiles.unreadable(conn, settings),
    )
    unreadable_reasons = {**trash_reasons, **vm_reasons}
    # Records before domains: a VM that loses its record meanwhile is defined by then, or gone.
    moves = list(_moves(settings))
    busy_vms = sorted({*_find_busy_vms(settings), *vm_reasons, *(move.name for move in moves)})
    vms = unusedfiles.vms(conn)
    # An unreadable record may name any file.
    loose_files = [] if unreadable_reasons else list(unusedfiles.files(conn, settings))
    shared_files = unusedfiles.find_shared_files(
        settings, unusedfiles.find_used_files(conn, settings)
    )
    return DoctorFacts(
        code=filecontent.of_code(),
        copies=copies(opts),
        vms=vms,
        made_for=unusedfiles.find_owner_names(vms),
        shared=shared_files,
        files=loose_files,
        busy=busy_vms,
        left=find_leftovers(conn, settings),
        unreadable=unreadable_reasons,
        unreadable_trash=sorted(trash_reasons.keys() - vm_reasons.keys()),
        moves=moves,
        trash_days=settings.trash_days,
    )


def copies(opts: Mapping[str, Any]) -> list[str]:
    """Return the folders where this process finds the library: synced, and installed."""
    synced_folder = Path(opts["extension_modules"]) / "utils"
    places = [synced_folder, *map(Path, sys.path)]
    library_folders = {
        str((folder / "saltvirt").resolve()) for folder in places if _has_library(folder)
    }
    return sorted(library_folders)


def _has_library(folder: Path) -> bool:
    return (folder / "saltvirt/__init__.py").is_file()


def _find_busy_vms(settings: HostSettings) -> Iterator[str]:
    yield from reservations.read_coming_vms(settings)
    yield from reservations.find_unfinished(settings)
    for purpose in ("build", "purge"):
        yield from (
            record.name for record in records.read_records(reservations.folder(settings), purpose)
        )


def _moves(settings: HostSettings) -> Iterator[MoveLeft]:
    records_folder = reservations.folder(settings)
    for purpose in ("departure", "arrival"):
        for record in records.read_records(records_folder, purpose):
            is_live = records.is_live(records_folder, purpose, record.name)
            yield MoveLeft(name=record.name, purpose=purpose, phase=record.phase, is_live=is_live)


def find_leftovers(conn: Any, settings: HostSettings) -> dict[str, list[str]]:
    """Return, by check, the leftovers that concern only this host."""
    folders = diskpaths.folders(conn, settings)
    return {
        name: subjects for name, subjects in _find_leftovers(conn, settings, folders) if subjects
    }


def _find_leftovers(
    conn: Any, settings: HostSettings, folders: list[Path]
) -> Iterator[tuple[str, list[str]]]:
    broken_records = reservations.find_unreadable(settings)
    yield (
        "unfinished",
        [name for name in reservations.find_unfinished(settings) if name not in broken_records],
    )
    dead_locks = (
        path for folder in unfinished.lock_folders(settings) for path in locks.find_dead(folder)
    )
    yield "lock", [str(path) for path in dead_locks]
    yield "download", [str(path) for path in removal.find_abandoned(settings)]
    yield "mark", [str(path) for path in find_left_marks(settings, folders)]
    yield "trash", [str(path) for path in _unknown_trash(settings, folders)]
    yield "pool", peer.find_open_pools(conn, settings)
    parts = (path for folder in NETWORK_FOLDERS for path in files.find_abandoned(folder))
    yield "network-file", [str(path) for path in parts]
    yield "firewall", sorted(_firewall())


def find_left_marks(settings: HostSettings, folders: list[Path]) -> Iterator[Path]:
    """Yield marks that builds left, outside shared folders, where they may be another host's."""
    tokens = [
        record.token for record in records.read_records(reservations.folder(settings), "build")
    ]
    if records.find_unreadable(reservations.folder(settings), "build"):
        return
    for folder in folders:
        if not sharing.is_shared(settings, folder):
            yield from claims.find_leftover_marks(folder, tokens)


def _unknown_trash(settings: HostSettings, folders: list[Path]) -> Iterator[Path]:
    """Yield entries of the trash without a readable record, outside shared folders."""
    records_folder = reservations.folder(settings)
    recorded_names = {record.name for record in records.read_records(records_folder, trash.PURPOSE)}
    for folder in folders:
        if not sharing.is_shared(settings, folder):
            entries = sorted((folder / trash.FOLDER).glob("*"))
            # A command that was killed before it moved anything leaves an empty entry.
            yield from (
                entry
                for entry in entries
                if entry.name not in recorded_names and not _is_empty(entry)
            )


def _is_empty(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True  # removed meanwhile
    except NotADirectoryError:
        return False


def _firewall() -> Iterator[str]:
    """Yield rule files that no unit of ours loads, and units that load missing rule files."""
    rules_by_unit = _loaded_rules() if salt.utils.systemd.booted() else {}
    loaded_rules = {word for words in rules_by_unit.values() for word in words}
    rule_files = {str(path) for path in _RULES.glob("[!.]*") if path.is_file()}
    if salt.utils.systemd.booted():
        yield from (
            path
            for path in rule_files - loaded_rules
            if not any(part in path for part in _UNLOADED_PARTS)
        )
    yield from (unit for unit, words in rules_by_unit.items() if words - rule_files)


def _loaded_rules() -> dict[str, set[str]]:
    """Return ``{unit: rule files}`` of our units."""
    words_by_unit = {
        str(path): path.read_text().split() for path in _UNITS.glob("salt-virt-*.service")
    }
    rules_prefix = f"{_RULES}/"
    return {
        unit: {word for word in words if word.startswith(rules_prefix)}
        for unit, words in words_by_unit.items()
    }
