"""What ``virt.doctor`` judges of this host: facts, read only."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import salt.utils.systemd

from saltvirt import content, files, locks, records
from saltvirt.config import HostSettings
from saltvirt.image import removal
from saltvirt.ops import ownfiles, reservations, storage, trash, unfinished
from saltvirt.ops.doctor import loose
from saltvirt.ops.migration import reach
from saltvirt.placement.doctor import DoctorFacts, MoveLeft
from saltvirt.storage import sharing, trashbacking

_UNITS, _RULES = Path("/etc/systemd/system"), Path("/etc/salt-virt")
# Where files of bridges and firewalls are replaced, in one step each.
NETWORK_FOLDERS = (
    *(_RULES, _UNITS, Path("/etc/netplan"), Path("/etc/systemd/network")),
    *(Path("/etc/NetworkManager/system-connections"), Path("/etc/network")),
    Path("/etc/network/interfaces.d"),
)
# What firewalld loads itself, and whom the master has told last: no unit loads these.
_UNLOADED = ("/firewalld-", "/peers-")


def of_host(conn: Any, opts: Mapping[str, Any], settings: HostSettings) -> DoctorFacts:
    """Return what this host has, and what of it nothing here uses."""
    of_trash, of_vms = trashbacking.unreadable(settings), loose.unreadable(conn, settings)
    unreadable = {**of_trash, **of_vms}
    # Before the domains: what is on record no more is defined by then, or gone.
    moves = list(_moves(settings))
    busy = sorted({*_busy(settings), *of_vms, *(one.name for one in moves)})
    known = loose.vms(conn)
    # Whoever cannot read a record does not know which files are named in it.
    found = [] if unreadable else list(loose.files(conn, settings))
    is_used = loose.shared(settings, loose.used(conn, settings))
    return DoctorFacts(
        code=content.of_code(),
        copies=copies(opts),
        vms=known,
        made_for=loose.made_for(known),
        shared=is_used,
        files=found,
        busy=busy,
        left=left(conn, settings),
        unreadable=unreadable,
        unreadable_trash=sorted(of_trash.keys() - of_vms.keys()),
        moves=moves,
        trash_days=settings.trash_days,
    )


def copies(opts: Mapping[str, Any]) -> list[str]:
    """Return where this process may find the library: synced, and installed."""
    synced = Path(opts["extension_modules"]) / "utils"
    places = [synced, *map(Path, sys.path)]
    found = {str((one / "saltvirt").resolve()) for one in places if _has_library(one)}
    return sorted(found)


def _has_library(folder: Path) -> bool:
    return (folder / "saltvirt/__init__.py").is_file()


def _busy(settings: HostSettings) -> Iterator[str]:
    yield from reservations.coming(settings)
    yield from reservations.unfinished(settings)
    for purpose in ("build", "purge"):
        yield from (one.name for one in records.every(reservations.folder(settings), purpose))


def _moves(settings: HostSettings) -> Iterator[MoveLeft]:
    place = reservations.folder(settings)
    for purpose in ("departure", "arrival"):
        for record in records.every(place, purpose):
            is_live = records.is_live(place, purpose, record.name)
            yield MoveLeft(name=record.name, purpose=purpose, phase=record.phase, is_live=is_live)


def left(conn: Any, settings: HostSettings) -> dict[str, list[str]]:
    """Return what is left that is this host's affair alone, by check."""
    there = storage.folders(conn, settings)
    return {name: subjects for name, subjects in _left(conn, settings, there) if subjects}


def _left(conn: Any, settings: HostSettings, there: list[Path]) -> Iterator[tuple[str, list[str]]]:
    broken = reservations.unreadable(settings)
    yield "unfinished", [one for one in reservations.unfinished(settings) if one not in broken]
    dead = (path for folder in unfinished.lock_folders(settings) for path in locks.dead(folder))
    yield "lock", [str(path) for path in dead]
    yield "download", [str(path) for path in removal.abandoned(settings)]
    yield "mark", [str(path) for path in left_marks(settings, there)]
    yield "trash", [str(path) for path in _unknown_trash(settings, there)]
    yield "pool", reach.left_open(conn, settings)
    parts = (path for folder in NETWORK_FOLDERS for path in files.abandoned(folder))
    yield "network-file", [str(path) for path in parts]
    yield "firewall", sorted(_firewall())


def left_marks(settings: HostSettings, there: list[Path]) -> Iterator[Path]:
    """Yield the marks that builds have left; in a folder that hosts share they may be another's."""
    tokens = [one.token for one in records.every(reservations.folder(settings), "build")]
    if records.unreadable(reservations.folder(settings), "build"):
        return
    for folder in there:
        if not sharing.is_shared(settings, folder):
            yield from ownfiles.left_marks(folder, tokens)


def _unknown_trash(settings: HostSettings, there: list[Path]) -> Iterator[Path]:
    """Yield what is in the trash by no record that can be read, but for another host's."""
    place = reservations.folder(settings)
    known = {one.name for one in records.every(place, trash.PURPOSE)}
    for folder in there:
        if not sharing.is_shared(settings, folder):
            found = sorted((folder / trash.FOLDER).glob("*"))
            # An empty one is of somebody who died before anything was in it.
            yield from (one for one in found if one.name not in known and not _is_empty(one))


def _is_empty(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True  # it is gone since
    except NotADirectoryError:
        return False


def _firewall() -> Iterator[str]:
    """Yield files of rules that no unit of ours loads, and units whose rules are not there."""
    loaded = _loaded_rules() if salt.utils.systemd.booted() else {}
    known = {word for words in loaded.values() for word in words}
    rules = {str(path) for path in _RULES.glob("[!.]*") if path.is_file()}
    if salt.utils.systemd.booted():
        yield from (path for path in rules - known if not any(one in path for one in _UNLOADED))
    yield from (unit for unit, words in loaded.items() if words - rules)


def _loaded_rules() -> dict[str, set[str]]:
    """Return ``{unit: files of rules}`` of our units."""
    texts = {str(path): path.read_text().split() for path in _UNITS.glob("salt-virt-*.service")}
    begin = f"{_RULES}/"
    return {unit: {one for one in words if one.startswith(begin)} for unit, words in texts.items()}
