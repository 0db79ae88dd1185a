"""A domain that libvirt moves is on two hosts by halves: which of them is here."""

from typing import Any

from saltvirt.errors import NoSuchVm
from saltvirt.kvm.connect import domain, is_gone, libvirt

_RUNNING, _PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED
_CUT_HERE = (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)
# Since libvirt 8.5; before that the target was paused too.
_CUT_THERE = (_RUNNING, getattr(libvirt, "VIR_DOMAIN_RUNNING_POSTCOPY_FAILED", None))
# A guest runs on the target while its source still has some of its memory.
_COMING = ((_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY), _CUT_THERE)
# On either side: whether it is coming or leaving is told by something else.
_WAITING = (
    (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
    (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP),
)
_HALVES = (*_WAITING, (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY), _CUT_HERE, *_COMING)


def is_arriving(conn: Any, name: str) -> bool:
    """Return whether the domain is only the far end of a migration that is not over."""
    try:
        dom = domain(conn, name)
        now = tuple(dom.state())
        if now in _COMING:
            return True
        return now in _HALVES and not dom.isPersistent() and not _is_leaving(dom)
    except NoSuchVm:
        return False
    except libvirt.libvirtError as exc:
        if is_gone(exc):
            return False
        raise


def _is_leaving(dom: Any) -> bool:
    """Return whether the domain is the near end of a migration: one that is paused for it, say."""
    try:
        job = dom.jobStats()
    except libvirt.libvirtError as exc:
        # At the far end libvirt has no figures. (Its test driver has none at all.)
        nothing = (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, libvirt.VIR_ERR_NO_SUPPORT)
        if exc.get_error_code() in nothing:
            return False
        raise
    return bool(job.get("operation") == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)


def runs_alone(conn: Any, name: str) -> bool:
    """Return whether a domain runs here, and is not part of a migration."""
    dom = domain(conn, name)
    if not dom.isActive():
        return False
    is_half = tuple(dom.state()) in _HALVES
    # At the far end libvirt has no figures of a job, and says so by an error.
    return not is_half and dom.jobStats().get("type", 0) == libvirt.VIR_DOMAIN_JOB_NONE


def is_cut(conn: Any, name: str) -> bool:
    """Return whether post-copy of a domain has failed, of which either half is here."""
    return tuple(domain(conn, name).state()) in (_CUT_HERE, _CUT_THERE)
