"""Definitions of VMs that were moved by hand, kept where they were."""

from pathlib import Path
from urllib.parse import quote

from saltvirt import files, records
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError

# So many of the last are there: their number is no matter of the clock.
_MOST = 1000


def keep(settings: HostSettings, name: str, xml: str) -> Path:
    """Write a definition down, on the disk when this returns; forget the oldest of many."""
    path = Path(settings.state_dir) / "moved" / f"{quote(name, safe='')}.xml"
    records.make_folder(path.parent)
    known = sorted(path.parent.glob("*.xml"), key=lambda one: one.stat().st_mtime)
    for old in known[: -_MOST + 1]:
        old.unlink(missing_ok=True)
    try:
        files.write(path, xml.encode())
    except OSError as exc:
        raise StorageError(f"cannot write {path}: {exc.strerror}; nothing is removed") from exc
    return path
