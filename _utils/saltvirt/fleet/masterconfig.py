"""
Whether this master has all of its configuration: Salt skips an included file that it cannot parse.

Without ``virt:hypervisors`` hosts and their VMs vanish from every answer, and VMs could get their
names. So nothing is changed then.
"""

import logging
from collections.abc import Mapping
from typing import Any

from saltvirt import arguments, saltfiles
from saltvirt.errors import MasterError

log = logging.getLogger(__name__)

# Functions of the runner that change nothing.
READ_ONLY = frozenset(
    (
        *("virt.audit", "virt.cell_job", "virt.console_log", "virt.find", "virt.host_info"),
        *("virt.images", "virt.list", "virt.next_host", "virt.query", "virt.setup_check"),
        *("virt.trash", "virt.vm_info", "virt_pki.list", "virt_pki.export"),
    )
)
# Those that only take rights away.
NARROWS = frozenset(("virt.disallow", "virt.unauthorize", "virt_pki.revoke"))


def explain_missing(opts: Mapping[str, Any]) -> str | None:
    """Return why options below ``virt:`` may be missing in a master's configuration, or None."""
    reason = saltfiles.unreadable_config(opts)
    if reason is None:
        return None
    # A daemon that has more than the other files say read that file before it was broken.
    was_read = saltfiles.names_below_virt(opts) - saltfiles.named_options(opts)
    return None if was_read else reason


def refuse_missing(opts: Mapping[str, Any], *, is_change: bool = True) -> None:
    """Raise MasterError for a change if options below ``virt:`` may be missing."""
    reason = explain_missing(opts) if is_change else None
    if reason:
        raise MasterError(f"nothing is changed by this master: {reason}")


def refuse_changes(
    opts: Mapping[str, Any], function: str, call_arguments: Mapping[str, Any]
) -> None:
    """
    Raise MasterError if options may be missing, and a runner function would change something.

    function
        As users call it, such as ``virt.init``.
    given
        Its arguments by their names.
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
        return not call_arguments.get("hosts")
    if function == "virt.doctor":
        return not arguments.boolean("fix", call_arguments.get("fix", False))
    return function in READ_ONLY or arguments.boolean(
        "dry_run", call_arguments.get("dry_run", False)
    )
