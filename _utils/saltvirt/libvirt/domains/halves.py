"""Tell a migrating domain's half on the source from its half on the target."""

from typing import Any

from saltvirt.core.errors import NoSuchVm
from saltvirt.libvirt.connect import domain, libvirt
from saltvirt.libvirt.errorcodes import DOMAIN_GONE, value_or


# Functions, not constants: a minion without libvirt preloads this module, too (preload.py).
def _states(kind: str, *reasons: str) -> set[tuple[int, int]]:
    """Return the states of a kind, with those of the reasons that this libvirt has."""
    state, prefix = getattr(libvirt, f"VIR_DOMAIN_{kind}"), f"VIR_DOMAIN_{kind}_"
    return {
        (state, getattr(libvirt, prefix + reason))
        for reason in reasons
        if hasattr(libvirt, prefix + reason)
    }


def _failed_postcopy_states() -> set[tuple[int, int]]:
    """Return the states of both halves of a domain after a failed post-copy."""
    # Before libvirt 8.5 the target was paused, too.
    return _states("PAUSED", "POSTCOPY_FAILED") | _states("RUNNING", "POSTCOPY_FAILED")


def _running_postcopy_states() -> set[tuple[int, int]]:
    """Return the states of a guest that runs while its source still has some of its memory."""
    return _states("RUNNING", "POSTCOPY", "POSTCOPY_FAILED")


def _migration_states() -> set[tuple[int, int]]:
    """Return the states of either half; they do not tell source from target."""
    return (
        _states("PAUSED", "MIGRATION", "STARTING_UP", "POSTCOPY")
        | _failed_postcopy_states()
        | _running_postcopy_states()
    )


def is_arriving(conn: Any, name: str) -> bool:
    """Return whether a domain is the target's half of an unfinished migration."""
    try:
        dom = domain(conn, name)
    except NoSuchVm:
        return False
    return bool(value_or(False, lambda: _is_target_half(dom), *DOMAIN_GONE))


def _is_target_half(dom: Any) -> bool:
    state = tuple(dom.state())
    if state in _running_postcopy_states():
        return True
    return state in _migration_states() and not dom.isPersistent() and not _is_leaving(dom)


def _is_leaving(dom: Any) -> bool:
    """Return whether a domain is the source's half of a migration, such as a paused one."""
    # libvirt has no job statistics on the target. (Its test driver never has any.)
    job = value_or({}, dom.jobStats, "OPERATION_UNSUPPORTED", "NO_SUPPORT")
    return bool(job.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)


def runs_alone(conn: Any, name: str) -> bool:
    """Return whether a domain runs here, and is not part of a migration."""
    dom = domain(conn, name)
    if not dom.isActive():
        return False
    is_half = tuple(dom.state()) in _migration_states()
    # Skip jobStats for a half: on the target it raises.
    return not is_half and dom.jobStats().get("type", 0) == libvirt.VIR_DOMAIN_JOB_NONE


def has_failed_postcopy(conn: Any, name: str) -> bool:
    """Return whether a domain's post-copy failed, on either host."""
    return tuple(domain(conn, name).state()) in _failed_postcopy_states()
