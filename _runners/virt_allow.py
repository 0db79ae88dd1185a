"""
Define the hypervisors: only the master decides, not the minions.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments, hostwords
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.ca import store
    from saltvirt.certificates.master import allowing

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function
def allow(*hosts, host=None):
    """
    Allow minions to be hypervisors: they get certificates and orders, and may receive VMs.

    hosts, host
        Ids of minions with accepted keys, or globs, which stand for the minions that match now.
        Defaults to none: show the hypervisors, the disallowed hosts and the candidates.

    The ids are stored next to the CA, and add to those of ``virt:hypervisors``. A minion that is a
    VM on a hypervisor is refused.

    Returns ``{"allowed": [id]}``. If other hosts have older certificates with the name of one of
    these, those are revoked and renewed: then also ``{"revoked": {host: [serial]}, "told": {host:
    outcome}}``. Without hosts ``{"hypervisors": {id: {"by", "fingerprint"}}, "disallowed": [id]}``.
    If minions claim to be hypervisors, or have certificates, also ``candidates`` with the
    fingerprints of their keys, and ``allow_them``, the command that allows them. ``without_key``
    lists allowed ids without an accepted key, ``waiting`` the pending keys, ``others`` at most 50
    further accepted minions that are no known VMs, such as bare hosts; ``more_others`` counts the
    rest. ``salt-call --local key.finger`` on a host shows the same fingerprint. Undo:
    virt.disallow.

    CLI Example:

    .. code-block:: bash

        salt-run virt.allow
        salt-run virt.allow hyper3
    """
    allowed_hosts = hostwords.several(host, hosts)
    if not allowed_hosts:
        return allowing.show_members(__opts__)
    return allowing.allow(__opts__, allowed_hosts)


@runner_function
def disallow(*hosts, force=False, host=None):
    """
    Shut hosts out: they get no orders and no certificates, even if ``virt:hypervisors`` names them.

    hosts, host
        Ids, or globs.
    force
        Shut them out although they have VMs: a host that is dead or hostile. Defaults to False.

    Fails, and changes nothing, if a host has VMs, or had some when it last answered, because no
    command of this master reaches these any more: empty it first (virt.evacuate). Otherwise the
    hosts' certificates are revoked, and all other hosts get the new revocation list. The firewalls
    of the others shut them out at their next state run. Returns ``{"disallowed": [id], "revoked":
    [serial], "told": {host: outcome}}``, and with ``force`` ``last_seen`` (``{host: [VM]}``) if
    they had VMs. All steps run even if one fails; then the call fails and names the failed steps.
    It also fails if one of the others did not answer: run it again. Undo: virt.allow, then
    virt_pki.renew.

    CLI Example:

    .. code-block:: bash

        salt-run virt.disallow hyper3
        salt-run virt.allow hyper3
        salt-run virt_pki.renew hyper3
    """
    is_forced = arguments.boolean("force", force)
    shut_out = hostwords.several(host, hosts)
    return allowing.disallow(__opts__, shut_out, store.utc_now(), force=is_forced)
