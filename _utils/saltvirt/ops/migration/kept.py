"""Definitions of VMs that were moved by hand, kept where they were."""

import time
from pathlib import Path
from urllib.parse import quote

from saltvirt import files, records
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError

_LIFE_S = 30 * 24 * 3600


def keep(settings: HostSettings, name: str, xml: str) -> Path:
    """Write a definition down, on the disk when this returns; forget what is a month old."""
    path = Path(settings.state_dir) / "moved" / f"{quote(name, safe='')}.xml"
    records.make_folder(path.parent)
    for old in path.parent.glob("*.xml"):
        if time.time() - old.stat().st_mtime > _LIFE_S:
            old.unlink(missing_ok=True)
    try:
        files.write(path, xml.encode())
    except OSError as exc:
        raise StorageError(f"cannot write {path}: {exc.strerror}; nothing is removed") from exc
    return path
