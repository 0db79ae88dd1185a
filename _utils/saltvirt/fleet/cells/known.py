"""Which cells a master has been told of, and whose a VM's name is; nothing is asked here."""

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from saltvirt import arguments, config, wire
from saltvirt.config import MasterSettings
from saltvirt.errors import BadArgument, BadConfig, VirtError

# What this master's own hypervisors are called, where others are called by their cell.
LOCAL = "local"
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


def is_configured(opts: Mapping[str, Any]) -> bool:
    """Return whether a master's configuration says anything of cells."""
    return bool(config.option([opts], "cells") or config.option([opts], "cell_prefix"))


def of(settings: MasterSettings) -> dict[str, Cell]:
    """Return the cells of ``virt:cells`` by their names; raise BadConfig."""
    out = {str(name): _cell(str(name), given) for name, given in settings.cells.items()}
    named = {f"virt:cells:{cell.name}:prefix": cell.prefix for cell in out.values() if cell.prefix}
    if settings.cell_prefix:
        named["virt:cell_prefix"] = _prefix("virt:cell_prefix", settings.cell_prefix)
    for one, prefix in named.items():
        for other, longer in named.items():
            if one != other and longer.startswith(prefix):
                raise BadConfig(
                    f"option {other}: {longer!r} begins like {one} ({prefix!r}), so a name could "
                    "be of both; give each its own beginning"
                )
    return out


def _cell(name: str, given: Any) -> Cell:
    option = f"virt:cells:{name}"
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise BadConfig(
            f"option virt:cells: {name!r} cannot name a cell: letters, digits, '_' and '-', "
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


def whose(name: str, cells: Mapping[str, Cell], own_prefix: str) -> str | None:
    """Return the cell, or ``local``, that a name belongs to by how it begins; None if by none."""
    if own_prefix and name.startswith(own_prefix):
        return LOCAL
    return next((c.name for c in cells.values() if c.prefix and name.startswith(c.prefix)), None)


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


def asked_for(text: Any, cells: Mapping[str, Cell]) -> str:
    """Return the cell that ``cell=`` names; raise BadArgument if there is none."""
    if text == LOCAL or text in cells:
        return str(text)
    known = ", ".join((*sorted(cells), LOCAL))
    told = f"there are: {known}" if cells else "virt:cells of the master's configuration names them"
    raise BadArgument("cell", f"{text!r} is no cell of this master; {told}")


def several(given: Any, cells: Mapping[str, Cell]) -> list[str]:
    """Return the cells that ``cell=`` names, as a list or with commas."""
    return [asked_for(one, cells) for one in arguments.names("cell", given)]
