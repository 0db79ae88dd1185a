"""Read files of this host one by one, and collect those that cannot be read."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_SETTING = r'^[ \t]*(\w+)[ \t]*=[ \t]*(\[[^\]]*\]|"[^"\n]*"|[^\s#]+)'
_TEXT = r'"([^"\n]*)"'

Value = str | list[str]
Conf = dict[str, Value]
_Found = TypeVar("_Found")


def parse_settings(text: str) -> Conf:
    """Return the settings of a libvirt configuration file: texts, and lists of texts."""
    # A line of comment within a list is no value.
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {key: _parse_value(raw) for key, raw in re.findall(_SETTING, "\n".join(lines), re.M)}


def _parse_value(raw_value: str) -> Value:
    texts = re.findall(_TEXT, raw_value)
    if raw_value.startswith("["):
        return texts
    return str(texts[0]) if texts else raw_value


class FileReader:
    """Reads files one by one; skips missing files, and collects unreadable ones."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def at(self, path: Path, read: Callable[[Path], _Found], default: _Found) -> _Found:
        try:
            return read(path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as exc:
            self.unreadable[str(path)] = getattr(exc, "strerror", None) or str(exc)
        return default


def read_settings(path: Path) -> Conf:
    """Return the settings of a libvirt configuration file."""
    return parse_settings(path.read_text(encoding="utf-8"))
