"""Second names of a VM's own files: a file gets its new name before it loses the old one."""

import logging
import os
import posixpath
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.errors import StorageError

log = logging.getLogger(__name__)
_LOGS = 10


def is_same(path: str | None, other_path: str | None) -> bool:
    """Return whether two names are those of one file."""
    try:
        return bool(path and other_path) and Path(str(path)).samefile(str(other_path))
    except OSError:
        return False


def add(path: str | None, new_path: str | None) -> None:
    """Give a file a second name beside the first, if it exists."""
    if not path or not new_path or path == new_path or is_same(path, new_path):
        return
    try:
        os.link(path, new_path, follow_symlinks=False)
        files.sync_folder(posixpath.dirname(new_path))
    except FileNotFoundError:
        return  # libvirt makes it at the first start
    except OSError as exc:
        raise StorageError(
            f"the firmware's variables {path} cannot be called {new_path}: {exc.strerror}"
        ) from exc


def drop(path: str | None, kept_path: str | None) -> None:
    """Remove the second name of a file that keeps its other one."""
    if path != kept_path and is_same(path, kept_path):
        files.unlink(str(path))


def move_logs(old_log: Path, new_log: Path) -> None:
    """Let the console logs have the VM's new name; the guest's next start writes a new one else."""
    for end in ("", *(f".{number}" for number in range(_LOGS))):
        old_path, new_path = Path(f"{old_log}{end}"), Path(f"{new_log}{end}")
        try:
            old_path.rename(new_path)
        except FileNotFoundError:
            continue
        except OSError as exc:
            log.warning("%s keeps its name: %s", old_path, exc.strerror)
