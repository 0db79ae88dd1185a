"""Findings of the audit, the setup check and the doctor: problem, place and remedy."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MASTER = "master"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One problem that a check found.

    check
        The check's name in docs/security.md or docs/setup-check.md.
    where
        ``master``, or the id of a minion.
    fix
        A command, or the change to make.
    """

    check: str
    where: str
    what: str
    fix: str


def apply_command(host: str, sls: str) -> str:
    """Return the command that applies a part of the formula to a host."""
    return f"salt {shlex.quote(host)} state.apply {sls}"


def sync_command(host: str) -> str:
    """Return the commands that sync the project's modules to the master, then to a host."""
    return f"salt-run saltutil.sync_all; salt {shlex.quote(host)} saltutil.sync_all"


def table(findings: Sequence[Finding], checked_hosts: Iterable[str]) -> dict[str, Any]:
    """Return ``{"findings": [], "checked": [host]}``, shown alone or beside an error."""
    return {"findings": [asdict(finding) for finding in findings], "checked": sorted(checked_hosts)}
