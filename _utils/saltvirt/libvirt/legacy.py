"""
Claims of versions before the records: files that their builders lock.

Old builders lock their claims by flock, which our own locks do not see. A claim with ``until``
belongs to a VM that another host was to send.
"""

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saltvirt.core import locks
from saltvirt.core.options.config import HostSettings

_ROOM = {"vcpus": 0, "memory_mib": 0, "disk_mib": 0, "affinity": [], "anti_affinity": []}
_ROOM["stocks"] = {}


def read_live_claims(settings: HostSettings) -> dict[str, dict[str, Any]]:
    """Return ``{name: claim}`` of the VMs that are being built, or awaited, at this moment."""
    return {
        path.stem: with_room(claim)
        for path, claim in _read_claims(settings)
        if is_live(path, claim)
    }


def with_room(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with zero for all room that it does not name."""
    return {**_ROOM, **claim}


def read_stale_claims(settings: HostSettings) -> dict[str, dict[str, Any]]:
    """Return ``{name: claim}`` of VMs that lost their builder or did not arrive in time."""
    return {path.stem: claim for path, claim in _read_claims(settings) if not is_live(path, claim)}


def is_live(path: Path, claim: dict[str, Any]) -> bool:
    """Return whether a claim is still in use."""
    return claim.get("until", 0) > time.time() or locks.is_held(path) or is_flocked(path)


def is_flocked(path: Path) -> bool:
    """Return whether an old builder holds a claim's lock."""
    try:
        with open(path, encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def claim_path(settings: HostSettings, name: str) -> Path:
    """Return the path of a VM's claim."""
    return Path(settings.state_dir) / "claims" / f"{name}.json"


def _read_claims(settings: HostSettings) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((Path(settings.state_dir) / "claims").glob("*.json")):
        try:
            claim = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except ValueError:
            # The builder is, or died, in the middle of a write: no files are known.
            claim = {"paths": [], "defines": True, "is_broken": True}
        yield path, claim
