"""Find faults of this master's cells: in their entries, files, certificates and answers."""

import functools
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.cells import answers, cellclient, registry
from saltvirt.cells.answers import NameReport
from saltvirt.cells.cellclient import CredentialsExposed, owner
from saltvirt.cells.merging import hosts_pattern
from saltvirt.cells.registry import Cell, Unusable
from saltvirt.cells.routes import Call
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import MASTER
from saltvirt.core.options.config import MasterSettings

# Kinds of faults: in the option, the credentials file, the CA file, the certificate that the cell
# shows, its answer.
ENTRY, CREDENTIALS, AUTHORITY, CERTIFICATE, ANSWER = (
    *("entry", "credentials", "authority", "certificate", "answer"),
)
# The check looks for a VM of this name, the cheapest call to a cell.
_UNUSED_NAME = "salt-virt-check"
_PAGE = "docs/cells.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    A fault of a cell.

    kind
        One of the five above.
    where
        ``master``, or the cell's hosts, such as ``west/*``.
    concerns_all
        Whether the fault blocks new VMs of any name.
    """

    kind: str
    where: str
    problem: str
    fix: str
    concerns_all: bool


def faults(opts: Mapping[str, Any], settings: MasterSettings) -> list[Fault]:
    """Return the faults of all cells; ask each usable cell once, all in parallel."""
    entries = registry.from_settings(settings)
    cells = {name: entry for name, entry in entries.items() if isinstance(entry, Cell)}
    answers_by_cell, errors_by_cell = cellclient.run_for_cells(
        {name: functools.partial(_ask_unused_name, cell, opts) for name, cell in cells.items()}
    )
    out = list(_find_option_faults(settings, entries))
    for name, cell in cells.items():
        out += _find_authority_faults(cell, opts)
        if name not in answers_by_cell:
            out.append(_fault_from_error(cell, errors_by_cell[name]))
    return out


def _ask_unused_name(cell: Cell, opts: Mapping[str, Any]) -> Any:
    answer = cellclient.ask(cell, opts, Call(fun="virt.find", arguments={"name": _UNUSED_NAME}))
    return answers.read(cell.name, dict[str, NameReport], answer)


def _find_option_faults(
    settings: MasterSettings, entries: Mapping[str, registry.Entry]
) -> Iterator[Fault]:
    prefixed_reasons = {
        entry.reason for entry in entries.values() if isinstance(entry, Unusable) and entry.prefix
    }
    for reason in registry.find_errors(settings):
        yield Fault(
            kind=ENTRY,
            where=MASTER,
            problem=f"{reason}; calls that need it are refused",
            fix=f"mend it in the master's configuration ({_PAGE})",
            concerns_all=reason not in prefixed_reasons,
        )


def _find_authority_faults(cell: Cell, opts: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault if other users can write the cell's CA file."""
    if cell.ca is None:
        return
    user = owner(opts)
    try:
        status = os.stat(cell.ca)
    except OSError:
        return  # the failed call to the cell reports that
    reason = _explain_writable(status, user)
    if reason:
        path = shlex.quote(cell.ca)
        yield Fault(
            kind=AUTHORITY,
            where=MASTER,
            problem=f"virt:cells:{cell.name}:ca: {cell.ca} {reason}, and can so "
            "pose as that cell",
            fix=f"chown root: {path} && chmod 644 {path}",
            concerns_all=not cell.prefix,
        )


def _explain_writable(status: os.stat_result, user: pwd.struct_passwd) -> str | None:
    """Return how users other than root and the master's can write a file, None if they cannot."""
    if status.st_uid not in (0, user.pw_uid):
        return "belongs to another user than root"
    is_group_writable = status.st_gid not in (0, user.pw_gid) and status.st_mode & stat.S_IWGRP
    if is_group_writable or status.st_mode & stat.S_IWOTH:
        return f"is writable for other users ({stat.S_IMODE(status.st_mode):04o})"
    return None


def _fault_from_error(cell: Cell, error: VirtError) -> Fault:
    kind, where = ANSWER, hosts_pattern(cell.name)
    problem, fix = (
        str(error),
        f"mend what it says ({_PAGE}), then: salt-run virt.list cell={cell.name}",
    )
    if isinstance(error, CredentialsExposed):
        kind, where, problem, fix = CREDENTIALS, MASTER, error.problem, error.fix
    elif isinstance(error, cellclient.CellUnproved):
        kind = CERTIFICATE
        fix = (
            f"have virt:cells:{cell.name}:ca be the authority that signed it, or ssl_crt there be "
            f"a certificate of that authority for the host in {cell.url}"
        )
    return Fault(kind=kind, where=where, problem=problem, fix=fix, concerns_all=not cell.prefix)
