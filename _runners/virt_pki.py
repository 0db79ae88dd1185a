"""
Manage the cloud's certificate authorities: list, renew, revoke, rotate, back up.

.. versionadded:: 1.0.0

Hosts request their certificates with the state ``virt.keys``; their private keys never leave them.
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments, hostwords
from saltvirt.core.options import config
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.ca import store
    from saltvirt.certificates.master import allowing, certificates
    from saltvirt.cluster.inventory import inventory

__virtualname__ = "virt_pki"
__virtual__ = load_always
__func_alias__ = {"list_": "list", "import_": "import"}


@runner_function
def list_(host=None):
    """
    List the certificates that the CA has issued.

    host
        Only those of this hypervisor.

    Returns a list of ``{host, purpose, serial, not_after, signer, days_left, state}``; ``state`` is
    good, replaced (by a newer one), revoked or expired, ``signer`` the CA that signed it: libvirt,
    qemu or vnc. Certificates are forgotten a day after their end.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.list
    """
    rows = certificates.list_certificates(certificates.open_authorities(__opts__), store.utc_now())
    return [row for row in rows if host in (None, row["host"])]


@runner_function
def renew(host=None):
    """
    Renew the certificates of a hypervisor now, due or not; a sound private key stays.

    host
        Only this hypervisor. Defaults to all.

    Returns ``{host: outcome}``; running VMs and open connections stay.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.renew hyper1
    """
    cloud = Cloud.of(__opts__)
    config.pki_options(cloud.settings)  # fail once, before the CA refuses each host
    return certificates.apply_keys(cloud, inventory.hosts(cloud, host=host), renew=True)


@runner_function
def revoke(target=None, force=False, host=None):
    """
    Revoke a host's certificates and shut it out, or revoke one certificate.

    target, host
        A hypervisor's id, or as ``target`` a serial of ``virt_pki.list``.
    force
        Shut a host out although it has VMs: a host that is dead or hostile. Defaults to False.

    A host is shut out as by virt.disallow, because it could request new certificates otherwise;
    undo: virt.allow, then virt_pki.renew. As there, the call fails and changes nothing if the host
    has VMs, or had some when it last answered: empty it first (virt.evacuate). A serial has no
    undo; its host gets a new certificate when it applies ``virt.keys`` again. All other hosts get
    the new revocation list. Returns ``{"revoked": [serial], "told": {host: outcome}}``, for a host
    with ``"disallowed": [id]`` too, and with ``force`` ``last_seen`` (``{host: [VM]}``) if it had
    VMs.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.revoke hyper3
        salt-run virt.allow hyper3
        salt-run virt_pki.renew hyper3
    """
    is_forced = arguments.boolean("force", force)
    revoked = arguments.text("target", hostwords.either(host, "target", target))
    return allowing.revoke(__opts__, revoked, store.utc_now(), force=is_forced)


@runner_function
def rotate_ca(quiet=False):
    """
    Replace the certificate authority without interrupting connections between hosts.

    quiet
        Show no progress. Defaults to False.

    First all hosts trust both CAs, then all get new certificates, then the old CA is removed. If a
    host does not answer, the rotation stops before the next step; run it again to continue. Returns
    ``{"rotated": [host]}``. Undo: rotate again, or virt_pki.import of a backup.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.rotate_ca
    """
    cloud = Cloud.of(__opts__, __jid_event__, "CA", quiet)
    return certificates.rotate(cloud, store.utc_now())


@runner_function
def export(path, passphrase_file):
    """
    Write an encrypted backup of the CA.

    path
        The backup file; only the master's user can read it, and must be able to write there.
    passphrase_file
        File with the passphrase, 12 characters or more, that the master's user can read; an
        argument would be logged.

    Returns the path. Undo: remove the file.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.export /srv/backup/ca.backup /srv/backup/passphrase
    """
    return certificates.export(__opts__, path, passphrase_file)


@runner_function
def import_(path, passphrase_file):
    """
    Restore a CA from its backup, on a master that has none.

    path
        A file that ``virt_pki.export`` wrote and the master's user can read.
    passphrase_file
        File with its passphrase, likewise.

    Returns the CA's folder; fails if there is a CA. Undo: move that folder away.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.import /srv/backup/ca.backup /srv/backup/passphrase
    """
    return certificates.restore(__opts__, path, passphrase_file)
