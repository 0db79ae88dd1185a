"""
Give a disk image, or a folder with a guest's root, a minion's identity.

.. versionadded:: 1.0.0

A disk is opened in libguestfs' appliance, never mounted by the host, unless the operator set
``virt:seed:allow_host_mount``. Replaces Salt's module of the same name.
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.seeding import existing

__virtual__ = hostmodule.load_everywhere
_module = hostmodule.HostModule(globals())

__func_alias__ = {"apply_": "apply"}


def apply_(
    path,
    id_=None,
    config=None,
    approve_key=True,
    install=True,
    prep_install=False,
    pub_key=None,
    priv_key=None,
    mount_point=None,
):
    """
    Write a minion's identity into a disk image or device, or below a folder.

    path
        An unused disk image or block device, or a folder with a guest's root.
    id_
        The minion's id. Defaults to the ``id`` of ``config``.
    config
        More options for its configuration. Defaults to none.
    approve_key
        Have the master accept the key, if ``salt-run virt.authorize`` granted it. Defaults to True.
    install
        Install a minion if there is none (from ``virt:seed:install_from``, else the packages of
        ``salt-run virt_image.minion_packages``, else from the network with
        ``virt:seed:install_network: True``). Defaults to True.
    prep_install
        Have the guest install it when it boots instead. Defaults to False.
    pub_key, priv_key
        The minion's key pair: PEM text or absolute paths. Default to none: the guest makes its own.
    mount_point
        Accepted for old calls and ignored.

    Returns True. Fails with one line if the disk has no system, if it has no minion and none may be
    installed, or if the disk is in use. There is no undo: keep a copy of the disk.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.init web9 1 96 salt://images/tiny.qcow2 seed=False start=False
        salt hyper1 seed.apply /srv/salt-images/web9_system.qcow2 id_=web9 prep_install=True
        salt hyper1 virt.purge web9
    """
    context = _module.context(asks_master=True)
    existing.apply(
        context,
        arguments.text("path", path),
        id_,
        config,
        (pub_key, priv_key),
        approve_key=approve_key,
        install=install,
        prep_install=prep_install,
    )
    return True


def mkconfig(config=None, tmp=None, id_=None, approve_key=True, pub_key=None, priv_key=None):
    """
    Write a minion's configuration and key pair into a private folder.

    config
        More options. Defaults to none.
    tmp
        Absolute path of the folder; refused if another user could replace its files. Defaults to a
        new folder below ``/tmp``.
    id_
        The minion's id. Defaults to the ``id`` of ``config``, else to the guest's host name; then
        the key is not submitted.
    approve_key
        Have the master accept the key, if ``salt-run virt.authorize`` granted it. Defaults to True.
    pub_key, priv_key
        The key pair; made if it is not given.

    Returns ``{"config", "pubkey", "privkey"}``: paths. Undo: remove the folder.

    CLI Example:

    .. code-block:: bash

        salt hyper1 seed.mkconfig tmp=/srv/seed-web9 id_=web9
        salt hyper1 file.remove /srv/seed-web9
    """
    context = _module.context(asks_master=True)
    keys = (pub_key, priv_key)
    return existing.mkconfig(context, config, tmp, id_, keys, approve_key=approve_key)


def prep_bootstrap(mpt):
    """
    Copy the bootstrap script below a guest's ``/tmp``.

    mpt
        A folder with a guest's root.

    Copies ``virt:seed:bootstrap``, else Salt's own script. Returns the script's path on the host
    and the folder's path in the guest. Undo: remove that folder.

    CLI Example:

    .. code-block:: bash

        salt hyper1 file.mkdir /srv/web9-root
        salt hyper1 seed.prep_bootstrap /srv/web9-root
        salt hyper1 file.remove /srv/web9-root
    """
    context = _module.context(asks_master=True)
    return list(existing.prep_bootstrap(context, arguments.text("mpt", mpt)))


optionguard.modules(globals())
