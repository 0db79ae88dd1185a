"""What disks in the trash are based on: it stays as it is, or they are worth nothing when back."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.ops import storage, trash

REMEDY = "bring that disk back, or remove it for good (virt.trash_empty)"


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
    for entry, why in trash.unknown(settings).items():
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
