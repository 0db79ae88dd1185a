"""
Adopt leftovers of moves that versions before the records began on this host.

Old moves had no token, and a claim did not name the host that sends its VM: ``salt-run
virt.settle`` finds both by asking all hosts.

Old versions wrote departures without fsync: an empty or truncated file may be all that a crash left
of a move. Such a file is reported and never removed.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt.core import arguments, files, locks, wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.moveprotocol import legacy_token
from saltvirt.libvirt import legacy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Departure:
    """An old departure: its VM, its target, and the files to remove when it is over."""

    name: str
    uuid: str
    uri: str
    paths: list[str]

    @property
    def target(self) -> str:
        """The host that takes the VM, empty if the URI names none."""
        return urlsplit(self.uri).hostname or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """An old claim: its VM, the files made for it, and the room reserved."""

    name: str
    paths: list[str]
    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]


def adopt(settings: HostSettings) -> None:
    """Turn leftovers that no job works on into records; files that an old job holds stay."""
    for path, leftover in (*_read_departures(settings), *_read_claims(settings)):
        # A leftover that cannot be adopted is reported with its own VM and blocks no other VM.
        with suppress(StorageError):
            if isinstance(leftover, _Departure):
                _adopt_departure(settings, path, leftover)
            elif isinstance(leftover, _Claim):
                _adopt_arrival(settings, path, leftover)


def unreadable(settings: HostSettings) -> dict[str, str]:
    """Return ``{name: reason and remedy}`` of the VMs with a move that cannot be read."""
    leftovers = (*_read_claims(settings), *_read_departures(settings))
    return {path.stem: leftover for path, leftover in leftovers if isinstance(leftover, str)}


def refuse_unreadable(settings: HostSettings, name: str) -> None:
    """Raise StorageError if a VM's move cannot be read: another host may have the VM by now."""
    reason = unreadable(settings).get(arguments.text("name", name))
    if reason is not None:
        raise StorageError(reason)


def _read_departures(settings: HostSettings) -> Iterator[tuple[Path, _Departure | str]]:
    """Yield the departures that no job works on, each as read or as the reason it cannot be."""
    for path in _find_files(settings, "departures"):
        # Check the lock before reading: a job that ends in between leaves no half-written file.
        if _is_held(path):
            continue
        try:
            yield path, _read_departure(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as exc:
            yield path, _describe_unreadable(path, exc)


def _read_claims(settings: HostSettings) -> Iterator[tuple[Path, _Claim | str]]:
    """Yield the claims of VMs that are not awaited any more, or why a claim cannot be read."""
    for path in _find_files(settings, "claims"):
        claim = _read_claim(path)
        until = claim.get("until", 0) if claim else 0
        # An old source may send until this time; it cannot be cancelled.
        if claim is None or not 0 < until < time.time() or _is_held(path):
            continue
        try:
            yield path, wire.read_recorded(_Claim, legacy.with_room(claim))
        except ValueError as exc:
            yield path, _describe_unreadable(path, exc)


def _find_files(settings: HostSettings, name: str) -> list[Path]:
    """Return the files in a folder of the state folder; raise StorageError if it is unreadable."""
    folder = Path(settings.state_dir) / name
    try:
        return sorted(folder.glob("*.json"))
    except OSError as exc:
        raise StorageError(
            f"{folder} cannot be read: {exc.strerror}; it is root's, and so has the minion to be"
        ) from exc


def _describe_unreadable(path: Path, error: Exception) -> str:
    return (
        f"the record {path} cannot be read ({error}), and a move of VM {path.stem!r} may not "
        "be over; see which host has the VM, then move that file away"
    )


def _read_departure(path: Path) -> _Departure:
    """Return a departure; raise ValueError if the file is empty or incomplete."""
    text = path.read_text()
    if not text.strip("\0 \n"):
        raise ValueError("it is empty")
    departure: _Departure = wire.read_recorded(_Departure, json.loads(text))
    if not departure.target:
        raise ValueError("its uri does not name a host")
    return departure


def _records_folder(settings: HostSettings) -> Path:
    # The same as reservations.folder(); reservations imports this module.
    return Path(settings.state_dir) / records.FOLDER


def _is_held(path: Path) -> bool:
    return locks.is_held(path) or legacy.is_flocked(path)


def _read_claim(path: Path) -> dict[str, Any] | None:
    try:
        claim = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return claim if isinstance(claim, dict) and claim.get("name") else None


def _is_new(locked_record: records.LockedRecord, path: Path) -> bool:
    """Return whether a file is to be adopted; remove a file that was adopted before a crash."""
    if locked_record.record is not None and locked_record.record.token == legacy_token(
        locked_record.name
    ):
        files.unlink(path)
    return locked_record.record is None


def _adopt_departure(settings: HostSettings, path: Path, departure: _Departure) -> None:
    with records.hold_record(
        _records_folder(settings), "departure", departure.name
    ) as locked_record:
        if locked_record is None or not _is_new(locked_record, path):
            return
        facts = DepartureFacts(
            uuid=departure.uuid,
            target=departure.target,
            was_running=True,
            autostart=False,
            leaves=True,
            paths=departure.paths,
        )
        locked_record.begin(
            legacy_token(locked_record.name), moveprotocol.HANDING, **wire.plain(facts)
        )
        files.unlink(path)


def _adopt_arrival(settings: HostSettings, path: Path, claim: _Claim) -> None:
    with records.hold_record(_records_folder(settings), "arrival", claim.name) as locked_record:
        if locked_record is None or not _is_new(locked_record, path):
            return
        facts = ArrivalFacts(
            uuid=None,
            source=None,
            was_running=True,
            sizes={},
            paths=claim.paths,
            images={},
            folders=[],
            vcpus=claim.vcpus,
            memory_mib=claim.memory_mib,
            disk_mib=claim.disk_mib,
            affinity=claim.affinity,
            anti_affinity=claim.anti_affinity,
        )
        locked_record.begin(
            legacy_token(locked_record.name), moveprotocol.READY, **wire.plain(facts)
        )
        files.unlink(path)
