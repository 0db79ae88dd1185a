"""What lies below a qcow2 file by its name, as QEMU reads it: a path, ``file:PATH``, ``json:``."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FILE, _JSON = "file:", "json:"
# Drivers that open a file of the host and say nothing of what is in it.
_OF_FILES = ("file", "host_device", "host_cdrom")
_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingFile:
    """
    A file below another.

    path
        Relative to the folder of the one above, if it is.
    is_raw
        Whether it is said that nothing in it is to be believed.
    """

    path: str
    is_raw: bool


def files_from_name(name: str, fmt: str | None) -> list[BackingFile]:
    """
    Return the files that a name in a header leads to.

    One of a network, such as ``nbd://host/x``, is a path here that nothing lies at. What no path
    can be is none.

    fmt
        The format that the header says of it.
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
    """Return whether the system takes a text as a path: a guest may have made it up."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _files_from_json(
    description: Mapping[str, Any], is_raw: bool, depth: int
) -> Iterator[BackingFile]:
    """Yield the files of a description, whose keys may be nested or joined with dots."""
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
    """Return ``{"file": {"filename": path}}`` of ``{"file.filename": path}``."""
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
