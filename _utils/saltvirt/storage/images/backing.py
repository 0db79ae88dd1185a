"""Parse the name of a backing file as QEMU does: a path, ``file:PATH`` or ``json:``."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FILE, _JSON = "file:", "json:"
# Drivers that open a file of the host without giving its format.
_OF_FILES = ("file", "host_device", "host_cdrom")
_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingFile:
    """
    A backing file.

    path
        Absolute, or relative to the folder of its overlay.
    is_raw
        Whether its format is given as raw, so that its content is never interpreted.
    """

    path: str
    is_raw: bool


def files_from_name(name: str, fmt: str | None) -> list[BackingFile]:
    """
    Return the files that a name in a header refers to.

    A network source, such as ``nbd://host/x``, yields a path without a file. A name that cannot be
    a path yields nothing.

    fmt
        The format that the header gives.
    """
    if name.startswith(_JSON):
        try:
            description = json.loads(name.removeprefix(_JSON))
        except (ValueError, RecursionError):
            return []
        return (
            [*_files_from_json(description, fmt == "raw", _DEPTH)]
            if isinstance(description, dict)
            else []
        )
    path = name.removeprefix(_FILE)
    return [BackingFile(path=path, is_raw=fmt == "raw")] if _is_path(path) else []


def _is_path(text: str) -> bool:
    """Return whether the system accepts a text, which a guest may have forged, as a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _files_from_json(
    description: Mapping[str, Any], is_raw: bool, depth: int
) -> Iterator[BackingFile]:
    """Yield the files of a description; its keys may be nested or joined with dots."""
    if not depth:
        return
    description = _nest_keys(description)
    driver = description.get("driver")
    if isinstance(driver, str) and driver not in _OF_FILES:
        is_raw = driver == "raw"
    path = description.get("filename")
    if isinstance(path, str):
        yield from files_from_name(path, "raw" if is_raw else None)
    for value in description.values():
        if isinstance(value, dict):
            yield from _files_from_json(value, is_raw, depth - 1)


def _nest_keys(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"file": {"filename": path}}`` for ``{"file.filename": path}``."""
    out: dict[str, Any] = {}
    for key, value in description.items():
        first, dot, subkey = str(key).partition(".")
        if not dot:
            out[first] = {**_mapping(out.get(first)), **value} if isinstance(value, dict) else value
        else:
            out[first] = {**_mapping(out.get(first)), subkey: value}
    return out


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
