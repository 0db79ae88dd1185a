"""
The certificate authorities of the cloud: what they issued, renew, revoke, back up.

.. versionadded:: 1.0.0

Hosts ask for their certificates themselves, with the state ``virt.keys``; their private keys never
come here.
"""

from saltvirt import config
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

allowing = Later("saltvirt.fleet.allowing")
certificates = Later("saltvirt.fleet.certificates")
inventory = Later("saltvirt.fleet.inventory")
store = Later("saltvirt.pki.store")

__virtualname__ = "virt_pki"
__func_alias__ = {"list_": "list", "import_": "import"}


def __virtual__():
    """Load on every master."""
    return __virtualname__


@runner_function
def list_(host=None):
    """
    List the certificates that the CA has issued.

    host
        Only those of this hypervisor.

    Returns a list of ``{host, purpose, serial, not_after, signer, days_left, state}``; ``state`` is
    good, replaced (by a newer one), revoked or expired, ``signer`` the use whose CA signed it:
    libvirt, qemu or vnc. Those that are over for a day are forgotten.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.list
    """
    rows = certificates.list_certificates(certificates.open_authorities(__opts__), store.utc_now())
    return [row for row in rows if host in (None, row["host"])]


@runner_function
def renew(host=None):
    """
    Renew the certificates of a hypervisor now, due or not; a private key that is sound stays.

    host
        Only this hypervisor. Defaults to all.

    Returns ``{host: what was done}``; running VMs and open connections stay.

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.renew hyper1
    """
    cloud = Cloud.of(__opts__)
    config.pki_options(cloud.settings)  # what the CA would refuse each host for, told at once
    return certificates.renew(cloud, inventory.hosts(cloud, host=host), store.utc_now())


@runner_function
def revoke(target):
    """
    Revoke a host's certificates and shut it out, or revoke one certificate.

    target
        A hypervisor's id, or a serial of ``virt_pki.list``.

    A host is shut out as by virt.disallow, as it could ask for new certificates otherwise; undo:
    virt.allow, then virt_pki.renew. Of a serial there is no undo; that host gets a new one when it
    applies ``virt.keys`` again. Every other host is told. Returns ``{"revoked": [serial], "told":
    {host: what was done}}``, of a host with ``"disallowed": [id]`` too, and with ``last_seen``
    (``{host: [VM]}``) if it had VMs when it was last asked: no command of this master reaches these
    any more, so empty the host first (virt.evacuate).

    CLI Example:

    .. code-block:: bash

        salt-run virt_pki.revoke hyper1
        salt-run virt.allow hyper1
        salt-run virt_pki.renew hyper1
    """
    return allowing.revoke(__opts__, target, store.utc_now())


@runner_function
def rotate_ca(quiet=False):
    """
    Replace the certificate authority while every host goes on talking to every other.

    quiet
        Show no progress. Defaults to False.

    First all hosts trust both, then all get new certificates, then the old one is forgotten. A host
    that does not answer stops it before the next step; run it again, and it goes on from there.
    Returns ``{"rotated": [host]}``. Undo: rotate again, or virt_pki.import of a backup.

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
        Where; the file is readable by the master's user alone, who must be able to write there.
    passphrase_file
        File with the passphrase, 12 characters or more, which the master's user can read: an
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
