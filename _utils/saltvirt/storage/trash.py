"""
The trash: files of purged VMs, kept for some days on their own file systems.

A file is renamed into a folder beside it, after the entry has recorded its path: after a crash the
file is either in its old place or in the trash, and the entry names both. Seeds, which hold keys,
never go into the trash; volumes that are not files cannot.
"""

import errno
import logging
import os
import secrets
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core import wire, writelimit
from saltvirt.core.errors import BadArgument, StorageError, VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import PurgeFacts, TrashFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.storage import door, ownermark, seedfiles
from saltvirt.storage.verdict import Verdict

log = logging.getLogger(__name__)
PURPOSE = "trash"
_KEPT = "kept"
# The phase of an entry while virt.undo brings its VM back: no sweep removes it then.
_RETURNING = "returning"
# A folder beside the files, as libvirt's pools do not list the contents of folders.
FOLDER = ".salt-virt-trash"
_DAY_S = 24 * 3600
# With virt:trash_days at 0, how long files are kept that no user asked to remove for good.
LEAST_DAYS = 7


def settled_days(settings: HostSettings) -> int:
    """Return the days to keep files that no user purged: ``virt:trash_days``, or a week if 0."""
    return settings.trash_days or LEAST_DAYS


class TrashFiller:
    """Remove files singly: into an entry of the trash, or for good if the trash is off."""

    def __init__(
        self,
        settings: HostSettings,
        facts: TrashFacts,
        stack: ExitStack,
        entry: str | None = None,
        *,
        is_dry: bool = False,
    ) -> None:
        self._settings, self._facts, self._holding = settings, facts, stack
        # A dry run notes only here what would be in the entry.
        self._is_dry, self._has_dry_entry = is_dry, False
        self._held: records.LockedRecord | None = None
        # The trash by default must not have purges leave volumes that they removed before.
        self._removes_volumes = bool(facts.days) and not settings.is_trash_set
        # A VM's name may have the maximum length of a file name, and quoting makes it longer.
        self._id = entry or f"{facts.vm[:60]}-{secrets.token_hex(4)}"

    @property
    def entry(self) -> str:
        """The name of the entry."""
        return self._id

    @property
    def files(self) -> list[str]:
        """The former paths of the files that are in the entry."""
        return self._facts.files

    @property
    def until(self) -> float:
        """When the entry ends, in seconds since 1970; 0 without an entry."""
        if self._has_dry_entry:
            return time.time() + self._facts.days * _DAY_S
        record = self._held.record if self._held is not None else None
        return 0.0 if record is None else _end_time(record, self._facts)

    @property
    def can_undo(self) -> bool:
        """Whether virt.undo can bring back the VM of the entry."""
        has_entry = self._held is not None or self._has_dry_entry
        return has_entry and self._facts.autostart is not None and not self._facts.gone

    def begin(self) -> None:
        """Begin the entry of a VM that virt.undo can bring back, before any file is in it."""
        if self._facts.days and self._facts.autostart is not None:
            self._note(self._facts)

    def __call__(self, verdict: Verdict) -> None:
        """
        Remove a file, if it exists; raise OSError on failure.

        If doubts remain that something needs the file, it goes into the trash even if that is off.
        """
        path = verdict.path
        if not self._is_kept(path, verdict) or not (self._facts.days or verdict.doubts):
            if not self._is_dry:
                door.remove(verdict)
            return
        if not self._facts.days:
            self._facts = replace(self._facts, days=LEAST_DAYS)
        for _source, reason in verdict.doubts:
            log.warning("%s goes into the trash, as something may need it: %s", path, reason)
        if self._is_dry:
            self._note(replace(self._facts, files=[*self._facts.files, path]))
            return
        place = _place(self._id, path)
        # Make the folder first: a recorded file without its folder counts as out of reach.
        records.make_folder(place.parent)
        try:
            # Record the file before moving it, or a crash could leave an unknown file.
            self._note(replace(self._facts, files=[*self._facts.files, path]))
        except BaseException:
            with suppress(OSError):
                place.parent.rmdir()  # a folder with other files stays
            raise
        door.put_away(verdict, place)

    def stays(self, volumes: list[list[str]]) -> bool:
        """Return whether volumes that are not files stay, as with a trash; record their names."""
        if not (self._facts.days and volumes):
            return bool(self._facts.days)
        names = ["/".join(volume[:2]) for volume in volumes]
        if self._removes_volumes:
            # Record them before they are gone: without them the VM cannot be brought back.
            self._note(replace(self._facts, gone=names))
            return False
        self._note(replace(self._facts, volumes=names))
        log.warning("volumes %s stay: only files can go into the trash", ", ".join(names))
        return True

    def _is_kept(self, path: str, verdict: Verdict) -> bool:
        file_path = Path(path)
        is_file = file_path.is_file() and not file_path.is_symlink()
        if not is_file or seedfiles.is_seed(path):
            return False
        # Links and empty files have no content worth keeping; but with doubts even an empty disk
        # may be needed, and a VM that is brought back has all its disks.
        is_whole = self._facts.autostart is not None and bool(self._facts.days)
        return is_whole or bool(verdict.doubts) or _has_content(file_path)

    def _note(self, facts: TrashFacts) -> None:
        if self._is_dry:
            self._facts, self._has_dry_entry = facts, True
            return
        if self._held is None:
            records_folder = reservations.folder(self._settings)
            record_context = records.hold_record(records_folder, PURPOSE, self._id, wait=True)
            self._held = self._holding.enter_context(record_context)
        if self._held is not None and self._held.record is None:
            self._held.begin(secrets.token_hex(8), _KEPT, **wire.plain(facts))
        elif self._held is not None:
            self._held.enter(_KEPT, **wire.plain(facts))
        self._facts = facts


@contextmanager
def fill_trash(
    settings: HostSettings,
    vm: str,
    *,
    reason: str,
    uuid: str | None = None,
    purged: PurgeFacts | None = None,
    days: int | None = None,
    is_dry: bool = False,
) -> Iterator[TrashFiller]:
    """
    Yield a filler that removes files of a VM, into the trash if they are to be kept.

    purged
        The purge that removes the VM with these files. Defaults to none.
    days
        The days to keep the files, 0 to remove them for good. Defaults to ``virt:trash_days``.
    is_dry
        Change nothing; the filler has what would be in the entry. Defaults to False.
    """
    days = settings.trash_days if days is None else days
    facts = TrashFacts(vm=vm, uuid=uuid, files=[], days=days, why=reason)
    if purged is not None:
        facts = replace(
            facts,
            uuid=purged.uuid,
            definition=purged.definition,
            autostart=purged.autostart,
            lost=purged.lost,
            tpm_state=purged.tpm_state,
        )
    with ExitStack() as stack:
        filler = TrashFiller(settings, facts, stack, _find_begun(settings, facts), is_dry=is_dry)
        filler.begin()
        yield filler


def _find_begun(settings: HostSettings, facts: TrashFacts) -> str | None:
    """Return the entry that an interrupted purge of a VM has begun, and put nothing in."""
    if facts.autostart is None or not facts.days:
        return None
    names = [
        record.name
        for record in read_entries(settings)
        if _is_of_vm(record, facts.vm, facts.uuid) and not files_of(record)
    ]
    return names[0] if names else None


def _has_content(path: Path) -> bool:
    """Return whether a file has content; True if the file system cannot tell."""
    with path.open("rb") as handle:
        try:
            os.lseek(handle.fileno(), 0, os.SEEK_DATA)
        except OSError as exc:
            # ENXIO: the file is empty, or a single hole.
            return exc.errno != errno.ENXIO
    return True


def _place(entry: str, path: str) -> Path:
    return Path(path).parent / FOLDER / entry / Path(path).name


def files_of(record: records.Record) -> dict[str, Path]:
    """Return ``{original path: path in the trash}`` of an entry's existing files."""
    places = {path: _place(record.name, path) for path in record.read(TrashFacts).files}
    # On a failing file system os.path.exists returns False, but Path.exists raises.
    return {path: place for path, place in places.items() if os.path.exists(place)}


def _refuse_out_of_reach(record: records.Record) -> None:
    """Raise StorageError if a file of an entry is out of reach, so that the entry must stay."""
    for reason in find_out_of_reach(record):
        raise StorageError(reason)


def find_out_of_reach(record: records.Record) -> Iterator[str]:
    """Yield a message with a remedy for each file of an entry that is out of reach."""
    facts = record.read(TrashFacts)
    for path in () if facts.is_over else facts.files:
        entry_folder = _place(record.name, path).parent
        if not os.path.exists(entry_folder) and not os.path.lexists(path):
            yield (
                f"{path} of entry {record.name!r} is not there: mount its file system; or if it is "
                f"gone for good, give it up: mkdir -p {shlex.quote(str(entry_folder))}"
            )


def read_entries(settings: HostSettings) -> list[records.Record]:
    """Return the readable records of all entries."""
    return records.read_records(reservations.folder(settings), PURPOSE)


def unreadable(settings: HostSettings) -> dict[str, str]:
    """Return ``{entry: reason}`` of the entries with an unreadable record."""
    return records.find_unreadable(reservations.folder(settings), PURPOSE)


def list_entries(settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return ``{entry: {vm, uuid, since, until, why, bytes, files, volumes, definition, away, ...}}``.

    ``bytes`` is the disk space that the files take; ``files`` are their original paths; ``away``
    has messages about files out of reach, which are not counted. ``is_purged`` says whether the
    entry is of a VM that virt.undo can bring back.
    """
    out = {}
    for record in read_entries(settings):
        facts, places, away_reasons = (
            record.read(TrashFacts),
            files_of(record),
            [*find_out_of_reach(record)],
        )
        if not (places or facts.volumes or away_reasons or facts.autostart is not None):
            continue
        out[record.name] = {
            "vm": facts.vm,
            "uuid": facts.uuid,
            "since": record.since_text,
            "until": records.time_text(_end_time(record, facts)),
            "why": facts.why,
            "bytes": sum(map(writelimit.allocated_bytes, places.values())),
            "files": sorted(places),
            "volumes": facts.volumes or [],
            "definition": facts.definition,
            "away": away_reasons,
            "is_purged": facts.autostart is not None and not facts.gone,
        }
    return out


def _end_time(record: records.Record, facts: TrashFacts) -> float:
    return record.since + facts.days * _DAY_S


def taken_bytes(settings: HostSettings) -> int:
    """Return the disk space that trashed files from the image folder take."""
    below = Path(settings.images)
    return sum(
        writelimit.allocated_bytes(place)
        for record in read_entries(settings)
        for path, place in files_of(record).items()
        if Path(path).is_relative_to(below)
    )


def refuse_noted(settings: HostSettings, folder: Path) -> None:
    """Raise StorageError if entries name files of a folder from which the trash is to go."""
    for record in read_entries(settings):
        facts = record.read(TrashFacts)
        places = () if facts.is_over else facts.files
        # Without its own folder the entry's files would count as out of reach.
        if any(Path(path).parent.resolve() == folder.resolve() for path in places):
            raise StorageError(
                f"entry {record.name!r} of the trash is of {folder}: a purge is filling it, "
                f"or was killed over it; wait, or: virt.trash_empty {shlex.quote(record.name)}"
            )


def restore(settings: HostSettings, entry: str) -> dict[str, Any]:
    """
    Move the files of an entry back to their places; return ``{"files", "definition"}``.

    Raises StorageError, with nothing changed, if a place is taken, or a file is out of reach.
    """
    with reservations.host_lock(settings), _open_entry(settings, entry) as locked_record:
        _refuse_out_of_reach(locked_record.now)
        facts, places = locked_record.now.read(TrashFacts), files_of(locked_record.now)
        away_paths = [path for path, place in places.items() if not door.is_back(place, path)]
        reservations.refuse_taken(settings, "", away_paths)
        for path, place in places.items():
            # Remove the owner mark, or virt.doctor would report the restored file as a leftover.
            ownermark.unmark(place)
            door.bring_back(place, path)
        _forget(locked_record, facts.files)
    _tell_pools(settings, sorted(places))
    return {"files": sorted(places), "definition": facts.definition}


class TrashedVm:
    """A purged VM in the trash, whose entries this process holds; two after a crash."""

    def __init__(self, settings: HostSettings, entries: Sequence[records.LockedRecord]) -> None:
        self._settings, self._entries = settings, entries

    @classmethod
    @contextmanager
    def opened(
        cls, settings: HostSettings, name: str, uuid: str | None
    ) -> "Iterator[TrashedVm | None]":
        """Yield the last purged VM of a name; None if the trash has none that virt.undo takes."""
        found = sorted(
            (record for record in read_entries(settings) if _is_of_vm(record, name, uuid)),
            key=lambda record: record.since,
        )
        last_uuid = found[-1].read(TrashFacts).uuid if found else None
        with ExitStack() as stack:
            entries = [
                stack.enter_context(_open_entry(settings, record.name))
                for record in found
                if record.read(TrashFacts).uuid == last_uuid
            ]
            yield cls(settings, entries) if entries else None

    @property
    def entry(self) -> str:
        """The name of the last entry."""
        return self._entries[-1].name

    @property
    def facts(self) -> TrashFacts:
        """The facts of the last entry."""
        return self._entries[-1].now.read(TrashFacts)

    def find_places(self) -> dict[str, Path]:
        """
        Return ``{path: place in the trash}`` of the files that are not back yet.

        Raises StorageError if a file is gone or out of reach, or if its path is taken.
        """
        places: dict[str, Path] = {}
        for entry in self._entries:
            _refuse_out_of_reach(entry.now)
            places |= files_of(entry.now)
        for entry in self._entries:
            is_begun = entry.now.phase == _RETURNING
            for path in entry.now.read(TrashFacts).files:
                if path not in places and not (is_begun and os.path.lexists(path)):
                    raise StorageError(
                        f"{path} is not in the trash any more, so nothing is brought back"
                    )
        away_paths = [path for path, place in places.items() if not door.is_back(place, path)]
        reservations.refuse_taken(self._settings, "", away_paths)
        return places

    def begin(self) -> None:
        """Record that the VM is being brought back: no sweep removes its files then."""
        for entry in self._entries:
            entry.enter(_RETURNING)

    def bring_back(self, places: Mapping[str, Path]) -> None:
        """
        Move files back to their paths, and end the entries.

        The files keep their owner marks, which are valid again in their places.
        """
        for path, place in places.items():
            door.bring_back(place, path)
        for entry in self._entries:
            _forget(entry, entry.now.read(TrashFacts).files)
        _tell_pools(self._settings, sorted(places))


def _is_of_vm(record: records.Record, name: str, uuid: str | None) -> bool:
    """Return whether an entry is of a VM that virt.undo can bring back."""
    facts = record.read(TrashFacts)
    is_purged = facts.autostart is not None and facts.uuid is not None
    return is_purged and facts.vm == name and uuid in (None, facts.uuid)


def _tell_pools(settings: HostSettings, paths: Iterable[str]) -> None:
    """Refresh the pools of restored files; inactive pools are refreshed when they start."""
    try:
        with connect.open_connection(settings, readonly=False) as conn:
            diskvolumes.refresh_folders(conn, paths)
    except VirtError as error:
        log.warning("libvirt was not told of the files that are back: %s", error)


def empty(settings: HostSettings, entries: Collection[str] = ()) -> dict[str, int]:
    """
    Remove entries for good, by default all; return ``{entry: freed bytes}``.

    Raises StorageError if an entry cannot be removed, or has a file out of reach; the others are
    removed all the same.
    """
    entry_names = [record.name for record in read_entries(settings)]
    for entry in entries:
        if entry not in entry_names:
            raise _unknown_entry(entry)
    out: dict[str, int] = {}
    failures: list[str] = []
    for entry in entries or entry_names:
        try:
            with _open_entry(settings, entry) as locked_record:
                out[entry] = _empty_entry(locked_record)
        except BadArgument:
            continue  # another job has emptied it since
        except VirtError as error:
            failures.append(str(error))
    if failures:
        emptied_names = ", ".join(out) or "no other entry"
        raise StorageError(f"{'; '.join(failures)}; emptied: {emptied_names}")
    return out


def sweep(settings: HostSettings) -> None:
    """
    Remove entries for good once their days, and one more, are over.

    An entry that cannot be removed stays, with a line in the log; the next sweep tries again.
    """
    now = time.time()
    for record in read_entries(settings):
        facts = record.read(TrashFacts)
        # An entry without existing files stays too: it is being filled, or its disk is unmounted.
        if record.phase == _RETURNING or (_end_time(record, facts) > now and not facts.due):
            continue
        try:
            with records.hold_record(
                reservations.folder(settings), PURPOSE, record.name
            ) as locked_record:
                if (
                    locked_record is not None
                    and locked_record.record is not None
                    and _is_over(locked_record, now)
                ):
                    _empty_entry(locked_record)
        except (VirtError, OSError) as exc:
            # Builds and purges sweep too, and must not fail over a file system they do not use.
            log.error("entry %s of the trash stays: %s", record.name, exc)


def _is_over(locked_record: records.LockedRecord, now: float) -> bool:
    """
    Return whether an entry was found expired a day ago; record when that is first found.

    A clock that is wrong now, or was when the entry was made, must not empty the trash.
    """
    facts = locked_record.now.read(TrashFacts)
    is_old = _end_time(locked_record.now, facts) <= now
    due = (facts.due if 0 < facts.due <= now else now) if is_old else 0.0
    if due != facts.due:
        locked_record.note(**wire.plain(replace(facts, due=due)))
    return is_old and due + _DAY_S <= now


def _empty_entry(locked_record: records.LockedRecord) -> int:
    _refuse_out_of_reach(locked_record.now)
    facts, freed_bytes = locked_record.now.read(TrashFacts), 0
    for path in facts.files:
        place = _place(locked_record.name, path)
        freed_bytes += writelimit.allocated_bytes(place)
        door.remove_trashed(place)
    _forget(locked_record, facts.files)
    if facts.tpm_state:
        # libvirt removes these folders with a definition.
        _remove_empty_folders(Path(facts.tpm_state))
    return freed_bytes


def _remove_empty_folders(folder: Path) -> None:
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        with suppress(OSError):  # also of a file
            path.rmdir()


def _forget(locked_record: records.LockedRecord, paths: Collection[str]) -> None:
    """Remove an entry's empty folders and its record."""
    with suppress(StorageError):  # a full disk may be the reason for emptying the trash
        locked_record.note(is_over=True)
    for folder in {_place(locked_record.name, path).parent for path in paths}:
        for empty_folder in (folder, folder.parent):
            # A folder with files stays: another host that shares it may be filling it.
            with suppress(OSError):
                empty_folder.rmdir()
    locked_record.end()


@contextmanager
def _open_entry(settings: HostSettings, entry: str) -> Iterator[records.LockedRecord]:
    """Yield the record of an entry under its lock; raise BadArgument if there is none."""
    busy_message = f"entry {entry!r} of the trash is being filled or emptied by another job"
    with reservations.open_record(settings, PURPOSE, entry, busy_message) as locked_record:
        if locked_record.record is None:
            raise _unknown_entry(entry)
        yield locked_record


def _unknown_entry(entry: str) -> BadArgument:
    return BadArgument("entry", f"there is no {entry!r} in the trash of this host; see virt.trash")
