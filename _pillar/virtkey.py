"""
On-demand external pillar ``virtkey``: a hypervisor submits the public key of a new VM.

The name is in Salt's default ``on_demand_ext_pillar``. A key is accepted only from the host that
``salt-run virt.authorize`` named, with its token, once and in time; see
:mod:`saltvirt.seeding.master.authorization`.
"""

import logging
import time
from typing import Any

from saltvirt.cluster import masterconfig, membership, minionkeys
from saltvirt.cluster.refusallog import Refusals
from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.salt import compat, masteruser
from saltvirt.seeding.master import authorization

log = logging.getLogger(__name__)
_refusals = Refusals(log, "virtkey: refused")
_TOO_MUCH = "the request has more arguments than a hypervisor sends"
__opts__: Any


def __virtual__() -> bool:
    """Load on every master."""
    return True


def ext_pillar(
    minion_id: str,
    pillar: Any,
    name: str | None = None,
    key: object = None,
    token: object = None,
    *more: object,
    **unknown: object,
) -> dict[str, Any]:
    """
    Answer a hypervisor that submits a VM's key.

    name
        The VM's minion id.
    key
        Its public key, PEM. Defaults to none: only check whether a VM may have that name.
    token
        The hypervisor's token. Defaults to none: a key without one is refused.
    more, unknown
        Hypervisors send none; refused here, because Salt would log the values.

    Returns ``{"virtkey": {name: True}}``, or ``{"virtkey": {"error": one line}}`` if the master
    refuses, which is logged. Without a key ``{"virtkey": {"reserved": None}}``, or the reason why a
    VM may not have that name; only hypervisors get the reason.
    """
    if more or unknown:
        return {"virtkey": {"error": _note_refusal(minion_id, _TOO_MUCH)}}
    if name is None:
        return {}
    is_question = key is None and token is None
    try:
        with masteruser.as_master_user(__opts__):
            compat.refuse_old_master()
            # These errors name hypervisors, globs and files of the master: not for guests.
            is_host = membership.read_members(__opts__).has(minion_id)
            if is_host:
                masterconfig.refuse_missing(__opts__)
            if is_question:
                arguments.vm_name(name)
                if is_host:
                    minionkeys.refuse_reserved(__opts__, name)
                return {"virtkey": {"reserved": None}}
            authorization.accept_key(__opts__, minion_id, name, key, token, now=time.time())
        return {"virtkey": {name: True}}
    except VirtError as exc:
        error = str(exc)
    except OSError as exc:
        error = masteruser.explain_error(exc, __opts__)
    return {"virtkey": {"reserved" if is_question else "error": _note_refusal(minion_id, error)}}


def _note_refusal(minion_id: str, reason: str) -> str:
    _refusals.note(minion_id, reason)
    return reason
