"""
Records of work on a VM that has begun and is not over, written before each step.

There is one record per VM and purpose: on a host a build, a purge, an arrival, a departure or a
move that was cancelled before the host had it on record, on the master an order. Each entry of a
host's trash has one, too, by its own name. A record has its owner's token and a phase. A phase is
on the disk, file and folder, before the effect that it announces, and so is the end of a record.
The process that works on a record holds its lock: when the process dies the lock is free, and the
record says what to settle.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from saltvirt.core import arguments, files, locks, wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import recordfacts

VERSION = 1
# The folder of all records of a host, below its state_dir.
FOLDER = "records"
# The variable with the path of a file that names where to stop: "departure.handing kill". Tests set
# it.
FAULTS = "SALTVIRT_FAULTS"

_Facts = TypeVar("_Facts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """
    One record.

    token
        Its owner's: no other owner ends this work.
    phase
        How far the work has got; :mod:`saltvirt.core.protocol.moveprotocol` has the phases of
        builds and moves, :mod:`saltvirt.cluster.orders` those of orders.
    since
        When the work began, in seconds since 1970, for display alone.
    facts
        The data of its purpose, plain.
    """

    purpose: str
    name: str
    token: str
    phase: str
    since: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    def read(self, shape: type[_Facts]) -> _Facts:
        """Return the facts as the type of their purpose."""
        facts: _Facts = wire.read_recorded(shape, self.facts)
        return facts

    @property
    def since_text(self) -> str:
        """When the work began, as users read it."""
        return time_text(self.since)


def time_text(since: float) -> str:
    """Return a time, in seconds since 1970, as users read it; empty if it is unknown."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since)) if since else ""
    except (OverflowError, ValueError, OSError):
        return "an impossible time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """
    A record of a move as a host shows it; unknown values are None.

    ``error`` is the reason why the record cannot be read; its purpose is then "unreadable", and the
    rest is without meaning.
    """

    purpose: str
    token: str
    phase: str
    since: float
    uuid: str | None
    source: str | None
    target: str | None
    error: str | None = field(default=None, metadata={"default_with": "error"})


class LockedRecord:
    """A record under the lock of this process, or the place of a new one."""

    def __init__(self, folder: Path, purpose: str, name: str) -> None:
        self._folder, self._purpose, self.name = folder, purpose, name
        self.record = read_record(folder, purpose, name)

    @property
    def path(self) -> Path:
        """The path of the record."""
        return _path(self._folder, self._purpose, self.name)

    @property
    def now(self) -> Record:
        """The record; raises StorageError if there is none."""
        if self.record is None:
            raise StorageError(f"the {self._purpose} of VM {self.name!r} is not on record any more")
        return self.record

    def begin(self, token: str, phase: str, **facts: object) -> None:
        """Write a new record in place of any former one."""
        self._write(
            Record(
                purpose=self._purpose,
                name=self.name,
                token=token,
                phase=phase,
                since=time.time(),
                facts=facts,
            )
        )

    def enter(self, phase: str, **facts: object) -> None:
        """Enter a phase, with additional facts."""
        self._write(replace(self.now, phase=phase, facts={**self.now.facts, **facts}))

    def note(self, **facts: object) -> None:
        """Add facts within a phase."""
        self.enter(self.now.phase, **facts)

    def end(self) -> None:
        """Remove the record, durably."""
        files.unlink(self.path)
        self.record = None
        _stop_here(f"{self._purpose}.end")

    def _write(self, record: Record) -> None:
        try:
            # Do not begin or continue work with a record that cannot be read afterwards.
            _check_record(record, record.purpose)
        except ValueError as exc:
            raise StorageError(f"cannot write the record {self.path}: {exc}") from exc
        is_new = self.record is None or self.record.phase != record.phase
        if is_new:
            _stop_here(f"{record.purpose}.before-{record.phase}")
        content = {"version": VERSION, **asdict(record)}
        try:
            files.write(self.path, json.dumps(content).encode())
        except OSError as exc:
            raise files.write_error(f"cannot write the record {self.path}", exc) from exc
        self.record = record
        if is_new:
            _stop_here(f"{record.purpose}.{record.phase}")


@contextmanager
def hold_record(
    folder: Path, purpose: str, name: str, *, wait: bool = False
) -> Iterator[LockedRecord | None]:
    """
    Yield the record of a VM and purpose under its lock, None if another process holds the lock.

    folder
        The host's, or the master's, folder of all records.
    wait
        Wait for the lock instead.
    """
    lock = _path(folder, purpose, name).with_suffix(".lock")
    make_folder(lock.parent)
    with locks.hold_lock(lock, wait=wait) as handle:
        yield None if handle is None else LockedRecord(folder, purpose, name)


def read_record(folder: Path, purpose: str, name: str) -> Record | None:
    """Return the current record, None if there is none."""
    return _read(_path(folder, purpose, name))


def read_records(folder: Path, purpose: str) -> list[Record]:
    """Return all readable records of a purpose; for the others see :func:`find_unreadable`."""
    content = (content for _name, content in _read_each(folder, purpose))
    return [record for record in content if isinstance(record, Record)]


def find_unreadable(folder: Path, purpose: str) -> dict[str, str]:
    """Return ``{name: reason and remedy}`` of the unreadable records of a purpose."""
    return {name: reason for name, reason in _read_each(folder, purpose) if isinstance(reason, str)}


def _read_each(folder: Path, purpose: str) -> Iterator[tuple[str, Record | str | None]]:
    """Yield the name of each record of a purpose, with the record, or why it is unreadable."""
    for path in sorted((folder / purpose).glob("*.json")):
        try:
            yield unquote(path.stem), _read(path)
        except StorageError as exc:
            yield unquote(path.stem), str(exc)


def is_live(folder: Path, purpose: str, name: str) -> bool:
    """Return whether a process is at work on a record."""
    return locks.is_held(_path(folder, purpose, name).with_suffix(".lock"))


def _path(folder: Path, purpose: str, name: str) -> Path:
    # Names come from other machines, too: they must not lead out of the folder.
    return folder / purpose / f"{files.to_file_name(arguments.text('name', name))}.json"


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably."""
    missing_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing_folders):
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise files.write_error(f"cannot make the folder {path}", exc) from exc
        files.sync_folder(path.parent)


def _read(path: Path) -> Record | None:
    try:
        content = json.loads(path.read_text())
        version = content.pop("version")
        if version == VERSION:
            return _check_record(Record(**content), path.parent.name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        raise StorageError(
            f"the record {path} cannot be read ({exc}); see what it was about, then move it away"
        ) from exc
    raise StorageError(
        f"the record {path} is of version {version}, and Salt Virt here knows version {VERSION}; "
        "update it here: saltutil.sync_all"
    )


def _check_record(record: Record, purpose: str) -> Record:
    texts = (record.purpose, record.name, record.token, record.phase)
    has_texts = all(isinstance(text, str) for text in texts)
    # The time is shown: one that is not a number would break the list of all moves of a host.
    is_timed = isinstance(record.since, int | float)
    if not (has_texts and is_timed and isinstance(record.facts, dict)):
        raise ValueError("it does not say what a record says")
    shape = recordfacts.shape(purpose, record.phase)
    if shape is not None:
        record.read(shape)
    return record


def _stop_here(point: str) -> None:
    """Stop at this point if a test's file names it: die, or wait until the test goes on."""
    name = os.environ.get(FAULTS)
    if not name:
        return
    try:
        fault_point, action = Path(name).read_text().split()
    except (OSError, ValueError):
        return
    if fault_point != point:
        return
    Path(name).rename(f"{name}.reached")
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while Path(f"{name}.reached").exists():
        time.sleep(0.05)
