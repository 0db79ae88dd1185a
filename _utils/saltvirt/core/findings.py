"""Findings of the audit, the setup check and the doctor: problem, place and remedy."""

import shlex
from dataclasses import dataclass
from typing import Any

MASTER = "master"
# Why an unresponsive host has no usable answer, in all messages and findings; outputters have a
# copy in _output/virt_text.py.
NO_ANSWER = "does not answer"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One problem that a check found.

    fix
        A command, or the change to make.
    check
        The check's name in docs/security.md, docs/setup-check.md or docs/doctor.md.
    where
        ``master``, or the id of a minion.
    level
        What is missing without the fix; None if the command has no levels.
    subject
        The VM, path or pool that is left over; None if the command names none.
    mend
        What ``virt.doctor fix=True`` does; empty if the operator has to act.
    """

    what: str
    fix: str
    check: str = ""
    where: str = ""
    level: str | None = None
    subject: str | None = None
    mend: str = ""

    def row(self) -> dict[str, Any]:
        """Return ``{check, where, what, fix}``, with ``level`` or ``subject`` if there is one."""
        names = ("check", "where", "what", "fix", "level", "subject")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def apply_command(host: str, sls: str) -> str:
    """Return the command that applies a part of the formula to a host."""
    return f"salt {shlex.quote(host)} state.apply {sls}"


def sync_command(host: str) -> str:
    """Return the commands that sync the project's modules to the master, then to a host."""
    return f"salt-run saltutil.sync_all; salt {shlex.quote(host)} saltutil.sync_all"
