"""
Whether this master loaded all of its configuration: Salt skips included files it cannot parse.

Without ``virt:hypervisors`` hosts and their VMs vanish from every answer, and new VMs could get
their names. Commands change nothing then.
"""

import logging
from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments, vmcommands
from saltvirt.core.errors import MasterError
from saltvirt.core.options import saltfiles

log = logging.getLogger(__name__)

# Functions of the runner that change nothing.
READ_ONLY = vmcommands.looking() | frozenset(
    (
        *("virt.audit", "virt.cell_job", "virt.find", "virt.help", "virt.host_info"),
        *("virt.host_lost", "virt.images", "virt.status"),
        *("virt.list", "virt.next_host", "virt.query", "virt.setup_check", "virt.trash"),
        *("virt_pki.list", "virt_pki.export"),
    )
)
# Functions that only withdraw rights.
NARROWS = frozenset(("virt.disallow", "virt.unauthorize", "virt_pki.revoke"))


def explain_missing(opts: Mapping[str, Any]) -> str | None:
    """Return why options below ``virt:`` may be missing from the configuration, or None."""
    reason = saltfiles.unreadable_config(opts)
    if reason is None:
        return None
    # A daemon with options that no readable file names loaded the broken file while it was intact.
    was_read = saltfiles.names_below_virt(opts) - saltfiles.named_options(opts)
    return None if was_read else reason


def refuse_missing(opts: Mapping[str, Any], *, is_change: bool = True) -> None:
    """Raise MasterError if the call is a change and options below ``virt:`` may be missing."""
    reason = explain_missing(opts) if is_change else None
    if reason:
        raise MasterError(f"nothing is changed by this master: {reason}")


def refuse_changes(
    opts: Mapping[str, Any], function: str, call_arguments: Mapping[str, Any]
) -> None:
    """
    Raise MasterError if options may be missing and the runner function would change something.

    function
        As users call it, such as ``virt.init``.
    call_arguments
        Its arguments by name.
    """
    if function in NARROWS:
        return
    if not is_read_only(function, call_arguments):
        refuse_missing(opts)
    elif reason := explain_missing(opts):
        log.warning("%s", reason)


def is_read_only(function: str, call_arguments: Mapping[str, Any]) -> bool:
    """Return whether a call of a runner function changes nothing."""
    if function == "virt.allow":
        return not (call_arguments.get("hosts") or call_arguments.get("host"))
    if function == "virt.doctor":
        return not arguments.boolean("fix", call_arguments.get("fix", False))
    flags = ["dry_run"]
    command = vmcommands.COMMANDS.get(function.removeprefix("virt."))
    if command is not None and command.dry_argument:
        flags.append(command.dry_argument)
    return function in READ_ONLY or any(
        arguments.boolean(flag, call_arguments.get(flag, False)) for flag in flags
    )
