"""Read the configured cells, and map VM names to cells by prefix; ask no cell."""

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from saltvirt.core import arguments, wire
from saltvirt.core.errors import BadArgument, BadConfig, VirtError
from saltvirt.core.options import optionsources
from saltvirt.core.options.config import MasterSettings

# The name of this master's own hypervisors as a cell.
LOCAL = "local"
OPTION, PREFIX_OPTION = "virt:cells", "virt:cell_prefix"
# By default, Salt 3008's rest_cherrypy waits longer than this for a runner.
_ANSWER_S = 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class CellFailed(VirtError):
    """A cell cannot be asked, or refuses; the message begins with the cell's name."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"cell {cell}: {reason}")
        self.cell, self.reason = cell, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """
    A master that this one can ask.

    url
        The https URL of its salt-api.
    credentials
        The file with this master's login there.
    ca
        The file of the CA that signed its salt-api's certificate. Defaults to the CAs that this
        machine trusts.
    prefix
        The prefix of its VMs' names; empty for any name.
    """

    name: str
    url: str
    credentials: str
    ca: str | None = None
    prefix: str = ""
    timeout_s: int = _ANSWER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """
    An unusable entry of ``virt:cells``: only calls that need this cell are refused.

    name
        The cell's name; quoted if it is invalid.
    reason
        The reason in one line, which names the entry.
    prefix
        The prefix of its VMs' names, if the entry has a valid one.
    """

    name: str
    reason: str
    prefix: str = ""


Entry = Cell | Unusable


def is_configured(opts: Mapping[str, Any]) -> bool:
    """Return whether a master's configuration has options of cells."""
    return bool(
        optionsources.option([opts], "cells") or optionsources.option([opts], "cell_prefix")
    )


def from_settings(settings: MasterSettings) -> dict[str, Entry]:
    """Return the entries of ``virt:cells`` by name, usable or not."""
    try:
        values_by_name = settings.cells
    except BadConfig as exc:
        return {OPTION: Unusable(name=OPTION, reason=str(exc))}
    entries = [_entry(str(name), value) for name, value in values_by_name.items()]
    clashes = _clashes(entries, search_prefix(settings))
    return {
        entry.name: Unusable(name=entry.name, reason=clashes[entry.name], prefix=entry.prefix)
        if isinstance(entry, Cell) and entry.name in clashes
        else entry
        for entry in entries
    }


def find_errors(settings: MasterSettings) -> list[str]:
    """Return why entries of ``virt:cells``, and this master's own prefix, cannot be used."""
    out = [
        entry.reason for entry in from_settings(settings).values() if isinstance(entry, Unusable)
    ]
    try:
        own_prefix(settings)
    except BadConfig as exc:
        out.append(str(exc))
    return out


def own_prefix(settings: MasterSettings) -> str:
    """Return the prefix of this master's new VMs; raise BadConfig if it is invalid."""
    return _prefix(PREFIX_OPTION, settings.cell_prefix) if settings.cell_prefix else ""


def search_prefix(settings: MasterSettings) -> str:
    """Return this master's prefix for searches: empty, for any name, if the option is invalid."""
    try:
        return own_prefix(settings)
    except BadConfig:
        return ""  # the command that makes a VM reports it


def require_usable(entry: Entry) -> Cell:
    """Return a cell that can be asked; raise CellFailed if its entry cannot be used."""
    if isinstance(entry, Unusable):
        raise CellFailed(entry.name, entry.reason)
    return entry


def _clashes(entries: list[Entry], local_prefix: str) -> dict[str, str]:
    """Return the cells with names that could be another cell's, each with the reason."""
    labelled_prefixes = [
        (f"{OPTION}:{entry.name}:prefix", entry.prefix, entry.name) for entry in entries
    ]
    if local_prefix:
        labelled_prefixes.append((PREFIX_OPTION, local_prefix, LOCAL))
    pairs = [
        (short_row, long_row)
        for short_row in labelled_prefixes
        for long_row in labelled_prefixes
        if short_row != long_row and short_row[1] and long_row[1].startswith(short_row[1])
    ]
    out: dict[str, str] = {}
    for (short_option, prefix, short_name), (long_option, long_prefix, long_name) in pairs:
        # Names with the longer prefix fit both: refuse its cell, unless that is this master.
        out[short_name if long_name == LOCAL else long_name] = (
            f"option {long_option}: {long_prefix!r} begins like {short_option} ({prefix!r}), so a "
            "name could belong to both; give each a prefix of its own"
        )
    return out


def _entry(name: str, raw_entry: Any) -> Entry:
    is_name = bool(_NAME.fullmatch(name)) and name != LOCAL
    try:
        return _cell(name, raw_entry)
    except BadConfig as exc:
        stated_prefix = raw_entry.get("prefix") if isinstance(raw_entry, Mapping) else None
        prefix = (
            stated_prefix
            if isinstance(stated_prefix, str) and _PREFIX.fullmatch(stated_prefix)
            else ""
        )
        return Unusable(name=name if is_name else repr(name), reason=str(exc), prefix=prefix)


def _cell(name: str, raw_entry: Any) -> Cell:
    option = f"{OPTION}:{name}"
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise BadConfig(
            f"option {OPTION}: {name!r} cannot name a cell: letters, digits, '_' and '-', "
            f"beginning with a letter or digit, and not {LOCAL!r}"
        )
    if not isinstance(raw_entry, Mapping):
        raise BadConfig(f"option {option}: expected a mapping with url and credentials")
    known_keys = sorted({cell_field.name for cell_field in fields(Cell)} - {"name"})
    unknown_keys = sorted({str(key) for key in raw_entry}.difference(known_keys))
    if unknown_keys:
        raise BadConfig(
            f"option {option}: unknown key {unknown_keys[0]!r}; known: {', '.join(known_keys)}"
        )
    present_values = {key: value for key, value in raw_entry.items() if value is not None}
    try:
        cell: Cell = wire.read_recorded(Cell, {**present_values, "name": name})
    except ValueError as exc:
        raise BadConfig(f"option {option}: {exc}") from None
    _check(option, cell)
    return cell


def _check(option: str, cell: Cell) -> None:
    if not _is_plain_https(cell.url):
        raise BadConfig(f"option {option}:url: expected https://HOST:PORT, without a user")
    for key, path in (("credentials", cell.credentials), ("ca", cell.ca or "/")):
        if not path.startswith("/"):
            raise BadConfig(f"option {option}:{key}: expected an absolute path, found {path!r}")
    if cell.prefix:
        _prefix(f"{option}:prefix", cell.prefix)
    if cell.timeout_s < 1:
        raise BadConfig(f"option {option}:timeout_s: expected at least 1, found {cell.timeout_s}")


def _is_plain_https(text: str) -> bool:
    try:
        url = urllib.parse.urlsplit(text)
        is_https = url.scheme == "https" and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        return False
    # A password in the URL would be shown in messages.
    return is_https and not ("@" in url.netloc or url.query or url.fragment)


def _prefix(option: str, text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise BadConfig(
            f"option {option}: {text!r} cannot begin a VM's name: use letters, digits, '.', '_' "
            "and '-', beginning with a letter or digit"
        )
    return text


def find_cell(name: str, cells: Mapping[str, Entry], local_prefix: str) -> str | None:
    """Return the cell, or ``local``, that a name belongs to by its prefix; None without one."""
    if local_prefix and name.startswith(local_prefix):
        return LOCAL
    matching_entries = [
        entry for entry in cells.values() if entry.prefix and name.startswith(entry.prefix)
    ]
    # The longest prefix counts even if its cell is refused: the other cell must not take its names.
    return (
        max(matching_entries, key=lambda entry: len(entry.prefix)).name
        if matching_entries
        else None
    )


def may_have(prefix: str, name: str) -> bool:
    """Return whether a cell with a prefix may have a VM of a name."""
    return not prefix or name.startswith(prefix)


def refuse_foreign(name: str, prefix: str, where: str) -> None:
    """Raise BadArgument if a new VM's name lacks its cell's prefix."""
    if not may_have(prefix, name):
        raise BadArgument(
            "name",
            f"{name!r}: the names of VMs {where} begin with {prefix!r}, so that each is unique",
        )


def parse_cell(text: Any, cells: Mapping[str, Entry]) -> str:
    """Return the cell that ``cell=`` names; raise BadArgument if there is none."""
    if isinstance(text, str) and (text == LOCAL or text in cells):
        return text
    option_entry = cells.get(OPTION)
    if isinstance(option_entry, Unusable):
        raise BadConfig(option_entry.reason)
    known_cells = ", ".join((*sorted(cells), LOCAL))
    hint = (
        f"there are: {known_cells}"
        if cells
        else f"{OPTION} of the master's configuration names them"
    )
    raise BadArgument("cell", f"{text!r} is no cell of this master; {hint}")


def parse_cells(value: Any, cells: Mapping[str, Entry]) -> list[str]:
    """Return the cells that ``cell=`` names, as a list or with commas."""
    return [parse_cell(name, cells) for name in arguments.names("cell", value)]
