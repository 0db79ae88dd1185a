"""Which cells a master has been told of, and whose a VM's name is; nothing is asked here."""

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from saltvirt import arguments, optionsources, wire
from saltvirt.config import MasterSettings
from saltvirt.errors import BadArgument, BadConfig, VirtError

# What this master's own hypervisors are called, where others are called by their cell.
LOCAL = "local"
OPTION, PREFIX_OPTION = "virt:cells", "virt:cell_prefix"
# Salt's own default of rest_cherrypy for how long it waits for a runner (3008) is longer.
_ANSWER_S = 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class CellFailed(VirtError):
    """A cell cannot be asked, or says no; the message begins with its name."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"cell {cell}: {reason}")
        self.cell, self.why = cell, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """
    A master that this one can ask.

    url
        Of its salt-api; https.
    credentials
        The file that says who this master is there.
    ca
        A file with the authority that has signed the certificate of its salt-api. Defaults to those
        that this machine trusts.
    prefix
        What the names of its VMs begin with; empty if they may be any.
    timeout_s
        How long it has for an answer.
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
    An entry of ``virt:cells`` that cannot be used: what needs that cell is refused, nothing else.

    name
        The cell's; quoted, if no cell can have it.
    why
        One line that names the entry.
    prefix
        What the names of its VMs begin with, as far as the entry says so.
    """

    name: str
    why: str
    prefix: str = ""


Entry = Cell | Unusable


def is_configured(opts: Mapping[str, Any]) -> bool:
    """Return whether a master's configuration says anything of cells."""
    return bool(
        optionsources.option([opts], "cells") or optionsources.option([opts], "cell_prefix")
    )


def from_settings(settings: MasterSettings) -> dict[str, Entry]:
    """Return the cells of ``virt:cells`` by their names, and the entries that cannot be used."""
    try:
        values_by_name = settings.cells
    except BadConfig as exc:
        return {OPTION: Unusable(name=OPTION, why=str(exc))}
    entries = [_entry(str(name), value) for name, value in values_by_name.items()]
    clashes = _clashes(entries, search_prefix(settings))
    return {
        entry.name: Unusable(name=entry.name, why=clashes[entry.name], prefix=entry.prefix)
        if isinstance(entry, Cell) and entry.name in clashes
        else entry
        for entry in entries
    }


def find_errors(settings: MasterSettings) -> list[str]:
    """Return why entries of ``virt:cells``, and what begins names here, cannot be used."""
    out = [entry.why for entry in from_settings(settings).values() if isinstance(entry, Unusable)]
    try:
        own_prefix(settings)
    except BadConfig as exc:
        out.append(str(exc))
    return out


def own_prefix(settings: MasterSettings) -> str:
    """Return what the names of new VMs of this master begin with; raise BadConfig."""
    return _prefix(PREFIX_OPTION, settings.cell_prefix) if settings.cell_prefix else ""


def search_prefix(settings: MasterSettings) -> str:
    """Return the same where VMs are only looked for: any name, if the option cannot be used."""
    try:
        return own_prefix(settings)
    except BadConfig:
        return ""  # whoever makes a VM is told


def require_usable(entry: Entry) -> Cell:
    """Return a cell that can be asked; raise CellFailed if its entry cannot be used."""
    if isinstance(entry, Unusable):
        raise CellFailed(entry.name, entry.why)
    return entry


def _clashes(entries: list[Entry], local_prefix: str) -> dict[str, str]:
    """Return the cells some of whose names could be of another as well, and why."""
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
        # Names of the longer one are of both; the others of the shorter one are its own alone.
        out[short_name if long_name == LOCAL else long_name] = (
            f"option {long_option}: {long_prefix!r} begins like {short_option} ({prefix!r}), so a "
            "name could be of "
            "both; give each its own beginning"
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
        return Unusable(name=name if is_name else repr(name), why=str(exc), prefix=prefix)


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
    # A password in it would be in each message that says where something was asked.
    return is_https and not ("@" in url.netloc or url.query or url.fragment)


def _prefix(option: str, text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise BadConfig(
            f"option {option}: {text!r} cannot begin a VM's name: use letters, digits, '.', '_' "
            "and '-', beginning with a letter or digit"
        )
    return text


def find_cell(name: str, cells: Mapping[str, Entry], local_prefix: str) -> str | None:
    """Return the cell, or ``local``, that a name belongs to by how it begins; None if by none."""
    if local_prefix and name.startswith(local_prefix):
        return LOCAL
    matching_entries = [
        entry for entry in cells.values() if entry.prefix and name.startswith(entry.prefix)
    ]
    # Of two that begin alike the longer one is refused: not even the other may take its names.
    return (
        max(matching_entries, key=lambda entry: len(entry.prefix)).name
        if matching_entries
        else None
    )


def may_have(prefix: str, name: str) -> bool:
    """Return whether a cell, or this master, may have a VM of a name, by how its names begin."""
    return not prefix or name.startswith(prefix)


def refuse_foreign(name: str, prefix: str, where: str) -> None:
    """Raise BadArgument if a new VM's name does not begin as the names of its cell do."""
    if not may_have(prefix, name):
        raise BadArgument(
            "name",
            f"{name!r}: the names of VMs {where} begin with {prefix!r}, so that each is once",
        )


def parse_cell(text: Any, cells: Mapping[str, Entry]) -> str:
    """Return the cell that ``cell=`` names; raise BadArgument if there is none."""
    if isinstance(text, str) and (text == LOCAL or text in cells):
        return text
    option_entry = cells.get(OPTION)
    if isinstance(option_entry, Unusable):
        raise BadConfig(option_entry.why)
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
