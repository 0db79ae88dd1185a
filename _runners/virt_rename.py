"""
Rename VMs.

.. versionadded:: 1.2.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.rename.master import renaming

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function
def rename(name, new_name, seed=None, dry_run=False, quiet=False):
    """
    Rename a stopped VM: the VM, the minion in its guest, and the minion's key.

    name
        The VM's name.
    new_name
        The name that it gets, once in the whole cloud: its minion id and host name, too.
    seed
        Rename the minion in the guest's disk, and its key. Defaults to True if the master has
        accepted a key of the VM's name. With False the guest stays as it is, its key stays under
        the old name, and the answer says what to do in the guest.
    dry_run
        Change nothing, and fail as the call would. The content of the disk is not examined.
        Defaults to False.
    quiet
        Show no progress. Defaults to False.

    Returns ``{host: {name: outcome}}``. Files of disks keep their names. Fails with one line and
    nothing changed if the VM runs, has snapshots, or is being moved or built; if the new name is a
    VM's, a minion's or a hypervisor's; if a host that last had a VM of one of the names does not
    answer; and if the guest has no minion of the old name with that key.

    If it is interrupted, the same command completes it, and the command with the names exchanged
    undoes it. Until then both names are taken, and the key is accepted under both.

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop centos1
        salt-run virt.rename centos1 centos3 dry_run=True
        salt-run virt.rename centos1 centos3
        salt-run virt.rename centos3 centos1
        salt-run virt.start centos1
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    request = renaming.parse(name, new_name, seed)
    cloud = Cloud.of(__opts__, __jid_event__, str(new_name), quiet, is_reading=is_dry)
    return (renaming.dry_run if is_dry else renaming.rename)(cloud, request)
