"""
The record of the files that a build makes, which only one of the hosts of a folder can make.

Each new file briefly has a mark (:mod:`saltvirt.storage.claims`), which tells after a crash which
build made the file. Removal uses the mark too: the name must leave the record before other hosts
can use it.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from saltvirt.core import files, wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import BuildFacts
from saltvirt.storage import claims


def announce(
    locked_record: records.LockedRecord,
    paths: list[str],
    secrets: list[str],
    existing_paths: list[str] | None = None,
    volumes: list[list[str]] | None = None,
) -> None:
    """
    Record the files that a build is about to make, and which of them hold secrets.

    existing_paths
        Existing disks, and all volumes: other jobs do not take or remove them meanwhile.
    volumes
        ``[pool, volume]`` of each volume that the build is about to make.
    """
    facts = replace(_facts(locked_record.now), paths=paths, secrets=secrets, begun=[])
    _note(locked_record, replace(facts, taken=existing_paths or None, volumes=volumes or None))


def note_volume(
    locked_record: records.LockedRecord, pool: str, name: str, number: str | None
) -> None:
    """Record that a volume is made; ``number`` identifies the volume later, if it has any."""
    facts = _facts(locked_record.now)
    other_volumes = [volume for volume in facts.volumes or [] if volume[:2] != [pool, name]]
    _note(locked_record, replace(facts, volumes=[*other_volumes, [pool, name, number or ""]]))


def forget_volume(locked_record: records.LockedRecord, pool: str, name: str) -> None:
    """Take a removed volume off the record."""
    facts = _facts(locked_record.now)
    _note(
        locked_record,
        replace(
            facts, volumes=[volume for volume in facts.volumes or [] if volume[:2] != [pool, name]]
        ),
    )


def _facts(record: records.Record) -> BuildFacts:
    return record.read(BuildFacts)


def _note(locked_record: records.LockedRecord, facts: BuildFacts) -> None:
    locked_record.note(**wire.plain(facts))


def make(locked_record: records.LockedRecord, paths: list[str]) -> None:
    """
    Make empty files and record them; raise StorageError if a file exists already.

    After an error :func:`filter_made` tells which were made, until :func:`forget` is called.
    """
    token = locked_record.now.token
    marks = {path: claims.mark(path, token) for path in paths}
    unmarked_paths: list[str] = []
    try:
        for path, mark in marks.items():
            _make(path, mark, unmarked_paths)
        # Sync before recording: a recorded file lost in a crash might be another host's later.
        _sync({mark.parent for mark in marks.values()})
        facts = _facts(locked_record.now)
        _note(locked_record, replace(facts, begun=[*(facts.begun or []), *paths]))
    except BaseException:
        for path in unmarked_paths:
            with contextlib.suppress(OSError):
                Path(path).unlink()
        raise
    for path in paths:
        claims.complete(path, token)


def _sync(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            files.sync_folder(folder)
        except OSError as exc:
            raise StorageError(f"cannot make files in {folder}: {exc.strerror}") from exc


def _make(path: str, mark: Path, unmarked_paths: list[str]) -> None:
    """Make a file and its mark; add it to ``unmarked_paths`` if hard links are unsupported."""
    try:
        os.close(files.private(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        if not claims.link_mark(mark, path):
            unmarked_paths.append(path)
    except FileExistsError as exc:
        raise StorageError(f"a file {path} is there already") from exc
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc


def filter_made(record: records.Record, paths: Iterable[str]) -> list[str]:
    """Return the paths that a build has made; other files there belong to another host by now."""
    begun_paths = _facts(record).begun or []
    return [path for path in paths if path in begun_paths or claims.is_marked(path, record.token)]


def take_off_record(locked_record: records.LockedRecord, paths: Iterable[str]) -> None:
    """Take files off the record before they are removed; their marks identify them meanwhile."""
    for path in paths:
        facts = _facts(locked_record.now)
        begun_paths = facts.begun or []
        if path not in begun_paths:
            continue
        if not claims.retake(path, locked_record.now.token):
            continue  # the file stays on record until the whole record ends
        _note(
            locked_record,
            replace(facts, begun=[begun_path for begun_path in begun_paths if begun_path != path]),
        )


def forget(record: records.Record, paths: Iterable[str]) -> None:
    """Remove the marks of some files."""
    for path in paths:
        claims.complete(path, record.token)
