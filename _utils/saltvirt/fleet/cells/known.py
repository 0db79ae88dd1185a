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

    def __init__(self, cell: str, why: str) -> None:
        super().__init__(f"cell {cell}: {why}")
        self.cell, self.why = cell, why


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


def of(settings: MasterSettings) -> dict[str, Entry]:
    """Return the cells of ``virt:cells`` by their names, and the entries that cannot be used."""
    try:
        given = settings.cells
    except BadConfig as exc:
        return {OPTION: Unusable(name=OPTION, why=str(exc))}
    entries = [_entry(str(name), one) for name, one in given.items()]
    clashes = _clashes(entries, looked_for(settings))
    return {
        one.name: Unusable(name=one.name, why=clashes[one.name], prefix=one.prefix)
        if isinstance(one, Cell) and one.name in clashes
        else one
        for one in entries
    }


def wrong(settings: MasterSettings) -> list[str]:
    """Return why entries of ``virt:cells``, and what begins names here, cannot be used."""
    out = [one.why for one in of(settings).values() if isinstance(one, Unusable)]
    try:
        own_prefix(settings)
    except BadConfig as exc:
        out.append(str(exc))
    return out


def own_prefix(settings: MasterSettings) -> str:
    """Return what the names of new VMs of this master begin with; raise BadConfig."""
    return _prefix(PREFIX_OPTION, settings.cell_prefix) if settings.cell_prefix else ""


def looked_for(settings: MasterSettings) -> str:
    """Return the same where VMs are only looked for: any name, if the option cannot be used."""
    try:
        return own_prefix(settings)
    except BadConfig:
        return ""  # whoever makes a VM is told


def usable(entry: Entry) -> Cell:
    """Return a cell that can be asked; raise CellFailed if its entry cannot be used."""
    if isinstance(entry, Unusable):
        raise CellFailed(entry.name, entry.why)
    return entry


def _clashes(entries: list[Entry], own: str) -> dict[str, str]:
    """Return the cells some of whose names could be of another as well, and why."""
    named = [(f"{OPTION}:{one.name}:prefix", one.prefix, one.name) for one in entries]
    if own:
        named.append((PREFIX_OPTION, own, LOCAL))
    pairs = [
        (short, long)
        for short in named
        for long in named
        if short != long and short[1] and long[1].startswith(short[1])
    ]
    out: dict[str, str] = {}
    for (shorter, prefix, short_name), (longer, text, long_name) in pairs:
        # Names of the longer one are of both; the others of the shorter one are its own alone.
        out[short_name if long_name == LOCAL else long_name] = (
            f"option {longer}: {text!r} begins like {shorter} ({prefix!r}), so a name could be of "
            "both; give each its own beginning"
        )
    return out


def _entry(name: str, given: Any) -> Entry:
    is_name = bool(_NAME.fullmatch(name)) and name != LOCAL
    try:
        return _cell(name, given)
    except BadConfig as exc:
        said = given.get("prefix") if isinstance(given, Mapping) else None
        prefix = said if isinstance(said, str) and _PREFIX.fullmatch(said) else ""
        return Unusable(name=name if is_name else repr(name), why=str(exc), prefix=prefix)


def _cell(name: str, given: Any) -> Cell:
    option = f"{OPTION}:{name}"
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise BadConfig(
            f"option {OPTION}: {name!r} cannot name a cell: letters, digits, '_' and '-', "
            f"beginning with a letter or digit, and not {LOCAL!r}"
        )
    if not isinstance(given, Mapping):
        raise BadConfig(f"option {option}: expected a mapping with url and credentials")
    known = sorted({one.name for one in fields(Cell)} - {"name"})
    unknown = sorted({str(key) for key in given}.difference(known))
    if unknown:
        raise BadConfig(f"option {option}: unknown key {unknown[0]!r}; known: {', '.join(known)}")
    plain = {key: value for key, value in given.items() if value is not None}
    try:
        cell: Cell = wire.recorded(Cell, {**plain, "name": name})
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


def whose(name: str, cells: Mapping[str, Entry], own_prefix: str) -> str | None:
    """Return the cell, or ``local``, that a name belongs to by how it begins; None if by none."""
    if own_prefix and name.startswith(own_prefix):
        return LOCAL
    found = [one for one in cells.values() if one.prefix and name.startswith(one.prefix)]
    # Of two that begin alike the longer one is refused: not even the other may take its names.
    return max(found, key=lambda one: len(one.prefix)).name if found else None


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


def asked_for(text: Any, cells: Mapping[str, Entry]) -> str:
    """Return the cell that ``cell=`` names; raise BadArgument if there is none."""
    if isinstance(text, str) and (text == LOCAL or text in cells):
        return text
    of_all = cells.get(OPTION)
    if isinstance(of_all, Unusable):
        raise BadConfig(of_all.why)
    known = ", ".join((*sorted(cells), LOCAL))
    told = f"there are: {known}" if cells else f"{OPTION} of the master's configuration names them"
    raise BadArgument("cell", f"{text!r} is no cell of this master; {told}")


def several(given: Any, cells: Mapping[str, Entry]) -> list[str]:
    """Return the cells that ``cell=`` names, as a list or with commas."""
    return [asked_for(one, cells) for one in arguments.names("cell", given)]
