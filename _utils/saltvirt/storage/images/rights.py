"""Permissions of files in the image cache."""

import json
import stat
from contextlib import suppress
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.arguments import hide_credentials
from saltvirt.storage.images import source

_NOTES = ("*.json", "*.flat", "*.look")


def let_qemu_read(path: str | Path) -> None:
    """Let QEMU read a file of the cache that is not a disk, such as a kernel."""
    Path(path).chmod(0o644)


def tighten(base: Path) -> None:
    """Make notes of earlier releases private, and remove secrets of URLs from them."""
    index = base / "index.json"
    if _is_open(index):
        source.Index(index).rewrite()
    for pattern in _NOTES:
        for path in base.glob(pattern):
            if path != index and _is_open(path):
                with suppress(FileNotFoundError):
                    files.write(path, _without_secrets(path))


def _is_open(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    return False


def _without_secrets(path: Path) -> bytes:
    text = path.read_text()
    with suppress(ValueError):
        note = json.loads(text)
        if isinstance(note, dict) and "source" in note:
            return json.dumps({**note, "source": hide_credentials(note["source"])}).encode()
    return text.encode()
