"""
What moves of versions before the records have left on a host, taken over as records.

Then nobody had a token, and a claim did not say which host sends its VM: both are found by asking
all hosts (``salt-run virt.settle``).
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saltvirt import files, locks, protocol, records
from saltvirt.config import HostSettings
from saltvirt.ops import legacy, reservations
from saltvirt.protocol import legacy_token


def adopt(settings: HostSettings) -> None:
    """Take over what nobody is at any more; what an old job still holds is left to it."""
    place = Path(settings.state_dir)
    for path in sorted((place / "departures").glob("*.json")):
        left = _read(path)
        if left is not None and not _is_held(path):
            _adopt_departure(settings, path, left)
    for path in sorted((place / "claims").glob("*.json")):
        left = _read(path)
        # An old source may be sending until this time; it knows of no cancelling.
        if left is not None and 0 < left.get("until", 0) < time.time() and not _is_held(path):
            _adopt_arrival(settings, path, left)


def _is_held(path: Path) -> bool:
    return locks.is_held(path) or legacy.is_flocked(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        left = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return left if isinstance(left, dict) and left.get("name") else None


def _is_new(held: records.Held, path: Path) -> bool:
    """Return whether a file is to be taken over; one that was, before a crash, is removed."""
    if held.record is not None and held.record.token == legacy_token(held.name):
        files.unlink(path)
    return held.record is None


def _adopt_departure(settings: HostSettings, path: Path, left: Mapping[str, Any]) -> None:
    with records.held(reservations.folder(settings), "departure", left["name"]) as held:
        if held is None or not _is_new(held, path):
            return
        held.begin(
            legacy_token(held.name),
            protocol.HANDING,
            uuid=left["uuid"],
            target=urlsplit(left["uri"]).hostname,
            was_running=True,
            autostart=False,
            leaves=True,
            paths=left["paths"],
        )
        files.unlink(path)


def _adopt_arrival(settings: HostSettings, path: Path, left: Mapping[str, Any]) -> None:
    with records.held(reservations.folder(settings), "arrival", left["name"]) as held:
        if held is None or not _is_new(held, path):
            return
        room = ("vcpus", "memory_mib", "disk_mib", "affinity", "anti_affinity")
        held.begin(
            legacy_token(held.name),
            protocol.READY,
            uuid=None,
            source=None,
            was_running=True,
            sizes={},
            paths=left["paths"],
            images={},
            folders=[],
            **{key: left[key] for key in room},
        )
        files.unlink(path)
