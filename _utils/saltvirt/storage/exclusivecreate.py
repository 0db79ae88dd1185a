"""
Files made by a build: of all hosts that share a folder, only one can make a given file.

Hosts do not see each other's records. So each new file briefly has a second name, its mark, which
contains the build's token. Only one host can link its mark to the file's own name, and after a
crash the mark tells which build made the file. Removal uses the mark too: the name must leave the
record before other hosts can use it.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from saltvirt.core import files, wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import BuildFacts

# The names that :func:`_mark` returns.
_MARK_PATTERN = re.compile(r"\.salt-virt-([0-9a-f]{12})-[0-9a-f]{12}")


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
    marks = {path: _mark(locked_record.now, path) for path in paths}
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
    for mark in marks.values():
        _unmark(mark)


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
        if not link_mark(mark, path):
            unmarked_paths.append(path)
    except FileExistsError as exc:
        raise StorageError(f"a file {path} is there already") from exc
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc


def link_mark(mark: Path, path: str) -> bool:
    """Hard-link a mark to a path; without support for links make a file and return False."""
    try:
        os.link(mark, path)
    except OSError as exc:
        if exc.errno not in files.NO_LINKS:
            raise
        # A job killed before it records this file leaves an empty file behind.
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return False
    return True


def filter_made(record: records.Record, paths: Iterable[str]) -> list[str]:
    """Return the paths that a build has made; other files there belong to another host by now."""
    begun_paths = _facts(record).begun or []
    return [path for path in paths if path in begun_paths or _is_same(_mark(record, path), path)]


def take_off_record(locked_record: records.LockedRecord, paths: Iterable[str]) -> None:
    """Take files off the record before they are removed; their marks identify them meanwhile."""
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
                continue  # the file stays on record until the whole record ends
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
    """Return the marks without a recorded build in a folder that only this host uses."""
    known_prefixes = {token[:12] for token in tokens}
    matches = (
        (path, _MARK_PATTERN.fullmatch(path.name)) for path in sorted(folder.glob(".salt-virt-*"))
    )
    return [
        path for path, mark in matches if mark and mark[1] not in known_prefixes and path.is_file()
    ]


def _unmark(mark: Path) -> None:
    try:
        # On a read-only file system unlink fails even for a missing file.
        if os.path.lexists(mark):
            mark.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot remove {mark}: {exc.strerror}") from exc


def _mark(record: records.Record, path: str) -> Path:
    # Use a digest: the file's own name may have the maximum length already.
    digest = hashlib.sha256(Path(path).name.encode()).hexdigest()[:12]
    return Path(path).with_name(f".salt-virt-{record.token[:12]}-{digest}")


def _is_same(mark: Path, path: str) -> bool:
    try:
        return mark.samefile(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise StorageError(f"cannot look at {path}: {exc.strerror}") from exc
