"""Find the backing files of disks in the trash: a restored disk needs them."""

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from saltvirt.core.errors import VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import TrashFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.storage import diskpaths, trash, unreadablechains
from saltvirt.xml.edit import readdomain

REMEDY = "bring that disk back, or remove it for good (virt.trash_empty)"


def find_unreadable_entries(settings: HostSettings) -> dict[str, str]:
    """Return ``{entry: reason and remedy}`` of the entries with unknown backing files."""
    entries = trash.read_entries(settings)
    missing_files = {
        record.name: reason for record in entries for reason in trash.find_out_of_reach(record)
    }
    return {
        **dict(_find_unreadable_files(settings, entries)),
        **missing_files,
        **trash.unreadable(settings),
    }


def _find_unreadable_files(
    settings: HostSettings, entries: Iterable[records.Record]
) -> Iterator[tuple[str, str]]:
    """Yield ``(entry, reason and remedy)`` per unreadable file in a disk's backing chain."""
    places = {record.name: trash.files_of(record) for record in entries}
    # A disk's backing file may be in the trash too.
    trashed_paths = {path for paths_of_entry in places.values() for path in paths_of_entry}
    for record in entries:
        raw = _find_raw_disks(record)
        for path, place in places[record.name].items():
            # A guest can write an overlay's header into a raw disk.
            home = Path(path).parent
            is_raw = path.endswith(".raw") or not raw.isdisjoint((path, Path(path).name))
            chain = (
                ()
                if is_raw
                else unreadablechains.find_unreachable_files(settings, str(place), home)
            )
            for file, reason in chain:
                if diskpaths.find_known_path(file, trashed_paths) is None:
                    entry = shlex.quote(record.name)
                    yield (
                        record.name,
                        f"{file} {reason}; or if it is gone for good: virt.trash_empty {entry}",
                    )


def _find_raw_disks(record: records.Record) -> set[str]:
    """Return an entry's raw disks by its VM's definition: paths, and names of volumes."""
    text = record.read(TrashFacts).definition
    disks = []
    # An unreadable definition marks no disk as raw.
    with suppress(VirtError):
        disks = [] if text is None else readdomain.disk_sources(readdomain.domain(text))
    paths = [disk["path"] for disk in disks if disk["path"] and disk["format"] == "raw"]
    # A volume's file has the volume's name.
    return {path if path.startswith("/") else path.partition("/")[2] for path in paths}


def backing_files(settings: HostSettings) -> dict[str, str]:
    """Return ``{path: entry}`` of the backing files of disks in this host's trash."""
    out: dict[str, str] = {}
    for record in trash.read_entries(settings):
        for path, place in trash.files_of(record).items():
            # Relative names in a header start at the disk's former folder.
            for file in diskpaths.chain_below(str(place), home=Path(path).parent):
                out |= {file: record.name, os.path.realpath(file): record.name}
    return out


def backing_files_beside(settings: HostSettings, folders: Iterable[Path]) -> set[str]:
    """Return the backing files of disks in other hosts' trash in some folders."""
    own_entries = {record.name for record in trash.read_entries(settings)}
    return {
        name
        for folder in folders
        for place in (folder / trash.FOLDER).glob("*/*")
        if place.parent.name not in own_entries
        for file in diskpaths.chain_below(str(place), home=folder)
        for name in (file, os.path.realpath(file))
    }
