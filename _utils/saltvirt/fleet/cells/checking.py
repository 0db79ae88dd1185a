"""What a check of this master sees of its cells: their entries, files, certificates, answers."""

import functools
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.config import MasterSettings
from saltvirt.errors import VirtError
from saltvirt.fleet.cells import answers, asking, known
from saltvirt.fleet.cells.answers import Found
from saltvirt.fleet.cells.credentials import OpenToOthers, owner
from saltvirt.fleet.cells.known import Cell, Unusable
from saltvirt.fleet.cells.merging import whole
from saltvirt.fleet.cells.routes import Call
from saltvirt.fleet.findings import MASTER

# What is found wrong: the option, the file that says who this master is, the one of the authority,
# the certificate that the cell shows, its answer.
ENTRY, CREDENTIALS, AUTHORITY, CERTIFICATE, ANSWER = (
    *("entry", "credentials", "authority", "certificate", "answer"),
)
# A VM of this name is asked for, as of all that a top may ask this takes the least.
_NOBODY = "salt-virt-check"
_PAGE = "docs/cells.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    One thing that is wrong with a cell.

    kind
        One of the five above.
    where
        ``master``, or the cell's hosts, as ``west/*``.
    concerns_all
        Whether new VMs of any name are refused while it is so.
    """

    kind: str
    where: str
    what: str
    fix: str
    concerns_all: bool


def faults(opts: Mapping[str, Any], settings: MasterSettings) -> list[Fault]:
    """Return what is wrong with the cells; each that can be asked is, once, all at once."""
    entries = known.of(settings)
    cells = {name: one for name, one in entries.items() if isinstance(one, Cell)}
    found, failed = asking.each(
        {name: functools.partial(_answer, cell, opts) for name, cell in cells.items()}
    )
    out = list(_of_options(settings, entries))
    for name, cell in cells.items():
        out += _of_authority(cell, opts)
        if name not in found:
            out.append(_of_failure(cell, failed[name]))
    return out


def _answer(cell: Cell, opts: Mapping[str, Any]) -> Any:
    said = asking.question(cell, opts, Call(fun="virt.find", arguments={"name": _NOBODY}))
    return answers.read(cell.name, dict[str, Found], said)


def _of_options(settings: MasterSettings, entries: Mapping[str, known.Entry]) -> Iterator[Fault]:
    of_some = {one.why for one in entries.values() if isinstance(one, Unusable) and one.prefix}
    for why in known.wrong(settings):
        yield Fault(
            kind=ENTRY,
            where=MASTER,
            what=f"{why}; what needs it is refused",
            fix=f"mend it in the master's configuration ({_PAGE})",
            concerns_all=why not in of_some,
        )


def _of_authority(cell: Cell, opts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield that others say who may be taken for the cell."""
    if cell.ca is None:
        return
    user = owner(opts)
    try:
        status = os.stat(cell.ca)
    except OSError:
        return  # the answer says so
    why = _changeable(status, user)
    if why:
        path = shlex.quote(cell.ca)
        yield Fault(
            kind=AUTHORITY,
            where=MASTER,
            what=f"virt:cells:{cell.name}:ca: {cell.ca} {why}: whoever does is taken for that cell",
            fix=f"chown root: {path} && chmod 644 {path}",
            concerns_all=not cell.prefix,
        )


def _changeable(status: os.stat_result, user: pwd.struct_passwd) -> str | None:
    """Return that others than root and the master's user can write a file, None if none can."""
    if status.st_uid not in (0, user.pw_uid):
        return "belongs to another user than root, who can write it"
    is_groups = status.st_gid not in (0, user.pw_gid) and status.st_mode & stat.S_IWGRP
    if is_groups or status.st_mode & stat.S_IWOTH:
        return f"can be written by others ({stat.S_IMODE(status.st_mode):04o})"
    return None


def _of_failure(cell: Cell, error: VirtError) -> Fault:
    kind, where = ANSWER, whole(cell.name)
    what, fix = (
        str(error),
        f"mend what it says ({_PAGE}), then: salt-run virt.list cell={cell.name}",
    )
    if isinstance(error, OpenToOthers):
        kind, where, what, fix = CREDENTIALS, MASTER, error.what, error.fix
    elif isinstance(error, asking.Unproved):
        kind = CERTIFICATE
        fix = (
            f"have virt:cells:{cell.name}:ca be the authority that signed it, or ssl_crt there be "
            f"a certificate of that authority for the host in {cell.url}"
        )
    return Fault(kind=kind, where=where, what=what, fix=fix, concerns_all=not cell.prefix)
