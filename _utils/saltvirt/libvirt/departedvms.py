"""Notes on VMs that left this host: their targets, and definitions of VMs moved by hand."""

import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.errors import NameTaken, StorageError, VirtError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.xml.edit import readdomain

# The number of notes kept of a kind: a limit by age would depend on the clock.
_MOST = 1000


def keep_definition(settings: HostSettings, name: str, xml: str) -> Path:
    """Write a VM's definition and sync it; remove the oldest beyond the limit."""
    return _write(_path(settings, name, "xml"), xml.encode())


def note_target(settings: HostSettings, name: str, host: str) -> None:
    """Record a VM's target before its definition is removed; remove the oldest beyond the limit."""
    note = {"host": host, "date": time.strftime("%Y-%m-%d")}
    _write(_path(settings, name, "json"), json.dumps(note).encode())


def forget_target(settings: HostSettings, name: str) -> None:
    """Remove the note of a VM's target, once this host has a VM of that name again."""
    _path(settings, name, "json").unlink(missing_ok=True)


def refuse_moved(settings: HostSettings, name: str) -> None:
    """Raise NameTaken if a VM has moved from here: a Salt state would make a second VM."""
    try:
        note = json.loads(_path(settings, name, "json").read_text())
    except (FileNotFoundError, ValueError):
        return
    raise NameTaken(
        f"VM {name!r} moved from here to {note['host']} ({note['date']}), and a second one of its "
        f"name is not made: apply this state there; if no host has it any more, make it once by "
        f"virt.init, here or with host= on the master"
    )


def definitions(settings: HostSettings) -> Iterator[tuple[str, Path, ET.Element]]:
    """Yield ``(VM, file, domain)`` of the kept definitions that can be read."""
    for path in sorted((Path(settings.state_dir) / "moved").glob("*.xml")):
        with suppress(OSError, ValueError, VirtError):
            root = readdomain.domain(path.read_text())
            yield readdomain.name(root), path, root


def _path(settings: HostSettings, name: str, kind: str) -> Path:
    return Path(settings.state_dir) / "moved" / f"{files.to_file_name(name)}.{kind}"


def _written_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0  # another job has just removed it


def _write(path: Path, data: bytes) -> Path:
    records.make_folder(path.parent)
    known_paths = sorted(path.parent.glob(f"*{path.suffix}"), key=_written_time)
    for old_path in known_paths[: -_MOST + 1]:
        old_path.unlink(missing_ok=True)
    try:
        files.write(path, data)
    except OSError as exc:
        raise StorageError(f"cannot write {path}: {exc.strerror}; nothing is removed") from exc
    return path
