"""What is found wrong, with where it is and what mends it: by an audit, by a check of the setup."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MASTER = "master"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    One thing that is not as it should be.

    check
        Which of the checks it is, as docs/security.md or docs/setup-check.md names them.
    where
        ``master``, or the id of a minion.
    fix
        A command, or what is to be changed where.
    """

    check: str
    where: str
    what: str
    fix: str


def apply_command(host: str, sls: str) -> str:
    """Return the command that applies a part of the formula to a host."""
    return f"salt {shlex.quote(host)} state.apply {sls}"


def sync_command(host: str) -> str:
    """Return the commands that bring the project's modules to the master, and then to a host."""
    return f"salt-run saltutil.sync_all; salt {shlex.quote(host)} saltutil.sync_all"


def table(findings: Sequence[Finding], checked_hosts: Iterable[str]) -> dict[str, Any]:
    """Return ``{"findings": [], "checked": [host]}``, which is shown, alone or beside an error."""
    return {"findings": [asdict(finding) for finding in findings], "checked": sorted(checked_hosts)}
