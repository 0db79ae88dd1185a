"""
Clone VMs.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.vm.clone.host import cloning

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


@_module.reports_errors
def clone(source, name, dry_run=False, **kwargs):
    """
    Make a VM that is a full copy of a stopped one, with a minion's identity of its own.

    source
        The VM to copy; it is not changed.
    name
        The clone's name, its minion id and its host name.
    dry_run
        Change nothing and return the plan, as ``virt.init`` does, with ``source`` and
        ``warnings``. The content of the disk is not examined. Defaults to False.
    start, autostart
        Start the clone; start it whenever the host boots. Default to True and False, independent
        of the source.
    seed
        Give the guest a minion's identity. Defaults to True; with False it has its source's
        identity, and a warning names this.
    install, config, pub_key, priv_key, saltenv
        As in ``virt.init``: install a minion if there is none; more options for its configuration;
        its key pair; file server environment of the minion. Default to True, none, none, ``base``.
    seed_method, install_from, user_data, ssh_authorized_keys
        As in ``virt.init``, except that ``credentials`` is refused: this method would leave the
        source's identity in the disk. Default to ``virt:seed``.
    report
        For the runner, as in ``virt.init``.

    Disks are copied whole, next to those of the source, with their backing chains but without
    snapshots. The clone has its own UUID, MAC addresses, firmware variables, ports and sockets. It
    shares media and ``shareable`` disks with the source: a warning names them.

    Returns True, or ``{"warnings": [line]}``, or the plan of a dry run. Fails with one line and
    leaves nothing behind: the source runs, or is used while it is copied; it has a saved state, a
    TPM, a device of the host, or a disk that is neither a file nor in a pool; a name that is taken;
    no room. Undo: virt.purge.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.stop centos1
        salt hyper1 virt.clone centos1 centos2 seed_method=nocloud dry_run=True
        salt hyper1 virt.clone centos1 centos2 seed_method=nocloud
        salt hyper1 virt.purge centos2
    """
    report = kwargs.pop("report", False)
    override = {key: kwargs.pop(key) for key in config.CONNECTION if key in kwargs}
    work = cloning.show if arguments.boolean("dry_run", dry_run) else cloning.create
    context = _module.context(override, asks_master=True)
    return work(context.reporting(name, "salt/virt/init", report), source, name, kwargs)


optionguard.modules(globals())
