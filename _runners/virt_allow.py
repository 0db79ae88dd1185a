"""
Say who is a hypervisor: the master's word alone, and no minion's.

.. versionadded:: 1.0.0
"""

from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

allowing = Later("saltvirt.fleet.allowing")
store = Later("saltvirt.pki.store")

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


@runner_function
def allow(*hosts):
    """
    Allow minions to be hypervisors: they get certificates and orders, and may be sent VMs.

    hosts
        Ids of minions whose keys are accepted, or globs, which stand for the minions that match
        now. Defaults to none: show who is a hypervisor, who is shut out, and who could be one.

    The ids are kept beside the CA, and count together with those of ``virt:hypervisors``. A minion
    that is a VM on a hypervisor is refused.

    Returns ``{"allowed": [id]}``. Where other hosts have certificates with the name of one of
    these, from before it was known, those are revoked and made anew: then there are also
    ``{"revoked": {host: [serial]}, "told": {host: what was done}}``. Without hosts
    ``{"hypervisors": {id: {"by", "fingerprint"}}, "disallowed": [id]}``. If minions say that they
    are hypervisors, or have certificates, there are also ``candidates`` with their keys'
    fingerprints, and ``allow_them``, the command that allows them. ``without_key`` lists ids that
    are allowed and have no accepted key, ``waiting`` the keys that wait to be accepted, ``others``
    further accepted minions that are no known VMs, as bare hosts are; 50 at most, ``more_others``
    is how many more there are. Fingerprints are as ``salt-call --local key.finger`` shows them on
    the host. Undo: virt.disallow.

    CLI Example:

    .. code-block:: bash

        salt-run virt.allow
        salt-run virt.allow hyper3
    """
    return allowing.allow(__opts__, hosts) if hosts else allowing.show_members(__opts__)


@runner_function
def disallow(*hosts):
    """
    Shut hosts out: they get no orders and no certificates, even if ``virt:hypervisors`` names them.

    hosts
        Ids, or globs.

    Their certificates are revoked, and all other hosts get the new revocation list. The others'
    firewalls shut them out at their next state run. Their VMs stay as they are, and no command of
    this master reaches them any more, so empty a host first (virt.evacuate). Returns
    ``{"disallowed": [id], "revoked": [serial], "told": {host: what was done}}``, and ``last_seen``
    (``{host: [VM]}``) if they had VMs when they were last asked. Each of these steps is done
    whether or not another one fails; then the call fails and says which. It fails also if a host
    did not answer: run it again. Undo: virt.allow, then virt_pki.renew.

    CLI Example:

    .. code-block:: bash

        salt-run virt.disallow hyper3
        salt-run virt.allow hyper3
        salt-run virt_pki.renew hyper3
    """
    return allowing.disallow(__opts__, hosts, store.utc_now())
