"""What disks in the trash are based on: it stays as it is, or they are worth nothing when back."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from saltvirt import records
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError, VirtError
from saltvirt.ops import outofreach, storage, trash
from saltvirt.recordfacts import TrashFacts
from saltvirt.xml import read

REMEDY = "bring that disk back, or remove it for good (virt.trash_empty)"


def unknown(settings: HostSettings) -> dict[str, str]:
    """Return ``{entry: why}`` of what nobody can tell what it is based on."""
    found = trash.recorded(settings)
    away = {one.name: why for one in found for why in trash.out_of_reach(one)}
    return {**dict(_unseen(settings, found)), **away, **trash.unreadable(settings)}


def _unseen(settings: HostSettings, found: Iterable[records.Record]) -> Iterator[tuple[str, str]]:
    """Yield entries, each with a disk that may be based on what nobody can see, and why."""
    places = {record.name: trash.files_of(record) for record in found}
    # What a disk is based on may be in the trash too.
    known = {path for of_entry in places.values() for path in of_entry}
    for record in found:
        raw = _raw(record)
        for path, place in places[record.name].items():
            # Into a raw disk its guest may have written what looks like the header of an overlay.
            home = Path(path).parent
            is_raw = path.endswith(".raw") or not raw.isdisjoint((path, Path(path).name))
            for one, why in () if is_raw else outofreach.of_disk(settings, str(place), home):
                if storage.known_as(one, known) is None:
                    typed = shlex.quote(record.name)
                    yield (
                        record.name,
                        f"{one} {why}; or if it is gone for good: virt.trash_empty {typed}",
                    )


def _raw(record: records.Record) -> set[str]:
    """Return the raw disks that an entry's VM had by its definition: paths, and volumes' names."""
    text = record.read(TrashFacts).definition
    says = []
    # One that cannot be read says of no disk that it is raw.
    with suppress(VirtError):
        says = [] if text is None else read.disk_sources(read.domain(text))
    paths = [one["path"] for one in says if one["path"] and one["format"] == "raw"]
    # A volume that is a file has the name of that.
    return {one if one.startswith("/") else one.partition("/")[2] for one in paths}


def below(settings: HostSettings) -> dict[str, str]:
    """Return ``{path: entry}`` of what disks in the trash are based on: they need it when back."""
    out: dict[str, str] = {}
    for record in trash.recorded(settings):
        for path, place in trash.files_of(record).items():
            # A name in its header is seen from where it was.
            for one in list(storage.chain(str(place), home=Path(path).parent))[1:]:
                out |= {one: record.name, os.path.realpath(one): record.name}
    return out


def beside(folders: Iterable[Path]) -> set[str]:
    """Return what disks in the trash of folders are based on, by whichever host they are there."""
    return {
        name
        for folder in folders
        for place in (folder / trash.FOLDER).glob("*/*")
        for one in list(storage.chain(str(place), home=folder))[1:]
        for name in (one, os.path.realpath(one))
    }


def refuse_unknown(settings: HostSettings, where: str) -> None:
    """Raise StorageError if nobody can tell what a disk in the trash is based on."""
    for entry, why in unknown(settings).items():
        raise StorageError(f"entry {entry!r} of the trash may be based on {where}: {why}")


def refuse_needed(settings: HostSettings, paths: Sequence[str]) -> None:
    """Raise StorageError if a disk in the trash is based on one of some files."""
    refuse_unknown(settings, paths[0])
    # Headers are read for this: once, however many files there are.
    known = dict.fromkeys(beside({Path(path).parent for path in paths}), "of another host")
    known |= below(settings)
    for path, name in ((one, storage.known_as(one, known)) for one in paths):
        if name is not None:
            raise StorageError(
                f"a disk in the trash (entry {known[name]}) is based on {path}, so that stays as "
                f"it is; {REMEDY}"
            )
