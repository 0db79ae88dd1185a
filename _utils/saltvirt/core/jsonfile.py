"""
A file of versioned JSON that several processes read and change.

A change is made under a lock and replaces the file in one step. The content is a mapping; this
module adds and checks its ``version``. Each file has one owner, who knows its content.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from saltvirt.core import files, locks
from saltvirt.core.errors import StorageError, VirtError

log = logging.getLogger(__name__)

VERSION = 1
_T = TypeVar("_T")
# What a parser may raise for content of another form.
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFile(Generic[_T]):
    """
    One file and its form.

    path
        The file. Its lock is beside it, with the suffix ``.lock``.
    parse
        Returns the value of the content; raises ValueError, TypeError, KeyError or AttributeError
        for content of another form.
    plain
        Returns the content of a value, without the version.
    empty
        Returns the value of a missing file.
    remedy
        What an operator does about a damaged file. Without it the file is only a cache: a damaged
        one counts as missing, a failure to write is only logged.

    Error:
        The class of the error for a damaged file.
    indent
        As of ``json.dumps``.
    """

    path: Path
    parse: Callable[[Mapping[str, Any]], _T]
    plain: Callable[[_T], Mapping[str, Any]]
    empty: Callable[[], _T]
    remedy: str = ""
    error: type[VirtError] = StorageError
    indent: int | None = None

    def read(self) -> _T:
        """Return the value; raise ``error``, with the remedy, if the file is damaged."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["version"] != VERSION:
                raise ValueError(f"it is of version {content['version']!r}, not {VERSION}")
            return self.parse(content)
        except FileNotFoundError:
            return self.empty()
        except _DAMAGE as exc:
            if self.remedy:
                raise self.error(f"{self.path} cannot be read ({exc}); {self.remedy}") from exc
            log.warning("%s cannot be read (%s); it is written anew", self.path, exc)
        except OSError as exc:
            if self.remedy:
                raise
            log.warning("%s cannot be read: %s", self.path, exc)
        return self.empty()

    def change(self, change: Callable[[_T], _T]) -> _T:
        """
        Replace the value by the result of ``change``, and return the new value.

        ``change`` is called once more under the lock, as another process may have changed the file.
        Nothing is written while nothing changes.
        """
        value = self.read()
        changed_value = change(value)
        if changed_value == value:
            return value
        try:
            with locks.hold_lock(self.path.with_suffix(".lock")):
                files.sweep(self.path.parent)
                value = self.read()
                changed_value = change(value)
                if changed_value != value:
                    self.write(changed_value)
        except (OSError, StorageError) as exc:
            if self.remedy:
                raise
            log.warning("%s cannot be written: %s", self.path, exc)
        return changed_value

    def write(self, value: _T) -> None:
        """Replace the value without a look at the former one."""
        content = {"version": VERSION, **self.plain(value)}
        separators = (",", ":") if self.indent is None else None
        text = json.dumps(content, indent=self.indent, separators=separators)
        files.write(self.path, text.encode())
