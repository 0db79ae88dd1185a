"""
Which files a build has made: of all hosts that share a folder, one makes a file of a name.

Hosts do not see each other's records. So a file has a second name for a moment, its mark, with the
token of the build in it: only one host can link a mark to the file's own name, and whoever finds
both names of one file after a crash knows whose it is. It is the same when a file is removed: its
name must be off the record before it is free for others.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from saltvirt import files, records, wire
from saltvirt.errors import StorageError
from saltvirt.recordfacts import BuildFacts

# What :func:`_mark` returns.
_MARK_PATTERN = re.compile(r"\.salt-virt-([0-9a-f]{12})-[0-9a-f]{12}")


def announce(
    locked_record: records.LockedRecord,
    paths: list[str],
    secrets: list[str],
    existing_paths: list[str] | None = None,
    volumes: list[list[str]] | None = None,
) -> None:
    """
    Have it on record which files a build is about to make, and which of them hold secrets.

    taken
        What is there already, and all volumes: nobody else takes or removes them meanwhile.
    volumes
        ``[pool, volume]`` of the volumes that it is about to make.
    """
    facts = replace(_facts(locked_record.now), paths=paths, secrets=secrets, begun=[])
    _note(locked_record, replace(facts, taken=existing_paths or None, volumes=volumes or None))


def note_volume(
    locked_record: records.LockedRecord, pool: str, name: str, number: str | None
) -> None:
    """Have it on record that a volume is made; ``number`` is what it is known again by, if any."""
    facts = _facts(locked_record.now)
    other_volumes = [volume for volume in facts.volumes or [] if volume[:2] != [pool, name]]
    _note(locked_record, replace(facts, volumes=[*other_volumes, [pool, name, number or ""]]))


def forget_volume(locked_record: records.LockedRecord, pool: str, name: str) -> None:
    """Take a volume off the record that is removed."""
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
    Make empty files, and have them on record at once; raise StorageError if one is there already.

    If it raises, :func:`made` tells which were made, until :func:`forget` is called.
    """
    marks = {path: _mark(locked_record.now, path) for path in paths}
    unmarked_paths: list[str] = []
    try:
        for path, mark in marks.items():
            _make(path, mark, unmarked_paths)
        # What is on record and does not survive a crash might be another host's by then.
        _sync({mark.parent for mark in marks.values()})
        facts = _facts(locked_record.now)
        _note(locked_record, replace(facts, begun=[*(facts.begun or []), *paths]))
    except BaseException:
        for path in unmarked_paths:
            with contextlib.suppress(OSError):
                Path(path).unlink()
        raise
    for mark in marks.values():
        _unmark(mark)


def _sync(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            files.sync_folder(folder)
        except OSError as exc:
            raise StorageError(f"cannot make files in {folder}: {exc.strerror}") from exc


def _make(path: str, mark: Path, unmarked_paths: list[str]) -> None:
    """Make one of the files, and its mark; ``bare`` gets it where a file cannot have two names."""
    try:
        os.close(files.private(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        if not link_mark(mark, path):
            unmarked_paths.append(path)
    except FileExistsError as exc:
        raise StorageError(f"a file {path} is there already") from exc
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc


def link_mark(mark: Path, path: str) -> bool:
    """Make a file of a mark; return whether it is, as a file system may know no such thing."""
    try:
        os.link(mark, path)
    except OSError as exc:
        if exc.errno not in files.NO_LINKS:
            raise
        # Whoever is killed before this is on record leaves a file without content.
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return False
    return True


def filter_made(record: records.Record, paths: Iterable[str]) -> list[str]:
    """Return those of some paths that a build has made; the rest is another's by now, if any."""
    begun_paths = _facts(record).begun
    if begun_paths is None:  # on record by an older version
        return list(paths)
    return [path for path in paths if path in begun_paths or _is_same(_mark(record, path), path)]


def take_off_record(locked_record: records.LockedRecord, paths: Iterable[str]) -> None:
    """Take files off the record that are removed next; until :func:`forget` their marks tell."""
    for path in paths:
        facts = _facts(locked_record.now)
        begun_paths = facts.begun or []
        if path not in begun_paths:
            continue
        mark = _mark(locked_record.now, path)
        try:
            if not _is_same(mark, path):
                os.link(path, mark)
                files.sync_folder(mark.parent)
        except FileNotFoundError:
            pass  # it is gone already
        except OSError as exc:
            if exc.errno in files.NO_LINKS:
                continue  # it stays on record until all of it is removed
            raise StorageError(f"cannot remove {path}: {exc.strerror}") from exc
        _note(
            locked_record,
            replace(facts, begun=[begun_path for begun_path in begun_paths if begun_path != path]),
        )


def forget(record: records.Record, paths: Iterable[str]) -> None:
    """Remove the marks of some files."""
    for path in paths:
        _unmark(_mark(record, path))


def find_leftover_marks(folder: Path, tokens: Iterable[str]) -> list[Path]:
    """Return the marks of a folder of this host alone that are of none of the builds on record."""
    known_prefixes = {token[:12] for token in tokens}
    matches = (
        (path, _MARK_PATTERN.fullmatch(path.name)) for path in sorted(folder.glob(".salt-virt-*"))
    )
    return [
        path for path, mark in matches if mark and mark[1] not in known_prefixes and path.is_file()
    ]


def _unmark(mark: Path) -> None:
    try:
        # A file system that may only be read refuses also what is not there.
        if os.path.lexists(mark):
            mark.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot remove {mark}: {exc.strerror}") from exc


def _mark(record: records.Record, path: str) -> Path:
    # A name of its own length: the file's may be as long as a name can be.
    digest = hashlib.sha256(Path(path).name.encode()).hexdigest()[:12]
    return Path(path).with_name(f".salt-virt-{record.token[:12]}-{digest}")


def _is_same(mark: Path, path: str) -> bool:
    try:
        return mark.samefile(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise StorageError(f"cannot look at {path}: {exc.strerror}") from exc
