"""
The state of a hypervisor's TLS keys.

.. versionadded:: 1.0.0
"""

import functools
from typing import Any

from saltvirt.certificates.host import enrolment
from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.options import optionguard
from saltvirt.core.salt import compat, statereturn
from saltvirt.entry.host import hostmodule

__virtualname__ = "virt"
__virtual__ = hostmodule.load_everywhere
__opts__: Any
__salt__: Any
__func_alias__ = {"keys_": "keys"}


def keys_(
    name: str,
    basepath: str = "/etc/pki",
    country: object = None,
    state: object = None,
    locality: object = None,
    organization: object = None,
    expiration_days: object = None,
    vnc: bool = False,
    renew: bool = False,
) -> dict[str, Any]:
    """
    Make, renew and replace this hypervisor's TLS keys and certificates.

    name
        Any name.
    basepath
        Absolute path of the folder for ``CA/``, ``libvirt/`` and ``qemu/``. Defaults to
        ``/etc/pki``.
    country, state, locality, organization, expiration_days
        Accepted for old formulas and ignored: the master decides these (``virt:pki``).
    vnc
        Also for VNC, in ``libvirt-vnc/``. Defaults to False.
    renew
        Renew everything, due or not. Defaults to False; ``virt_pki.renew`` sets it.

    A certificate is renewed when less than a third of its life is left, when the host's names or
    addresses change, when it was revoked or tampered with. ``changes`` is empty when nothing is
    due. libvirtd reads new files without a restart. Undo: remove the files; to distrust them,
    ``salt-run virt_pki.revoke HOST``.

    .. code-block:: yaml

        libvirt_keys:
          virt.keys
    """
    # Not ``state``, under which Salt passes the name of this state module.
    subject = (country, locality, organization, expiration_days)
    try:
        work = enrolment.Enrolment(
            basepath=arguments.folder("basepath", basepath),
            with_vnc=arguments.boolean("vnc", vnc),
            is_forced=arguments.boolean("renew", renew),
            minion_id=__opts__["id"],
            ask=functools.partial(compat.certificates_pillar, __opts__),
        )
        changes, comment = work.plan() if __opts__["test"] else work.run(__salt__)
    except (VirtError, OSError) as error:
        return statereturn.make_failure(name, error)
    if any(value is not None for value in subject):
        comment += "; subject and life are set on the master (virt:pki), not here"
    out = statereturn.make_return(name, statereturn.StateChange(changes, comment), globals())
    # For the master: a revocation list is in force only when the daemons have read it.
    return {**out, "unread": work.unread} if work.unread else out


optionguard.states(globals())
