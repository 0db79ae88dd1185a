"""
Rename VMs of this hypervisor.

.. versionadded:: 1.2.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.vm.rename.host import renaming

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


@_module.reports_errors
def rename(name, new_name, uuid=None, seed=False, public_key=None, dry_run=False, **kwargs):
    """
    Rename a stopped VM: its domain, and what libvirt and this project name after it.

    ``salt-run virt.rename`` orders this, and moves the minion's key, too: use that. Called alone,
    it leaves the key where it is.

    name, new_name
        The VM's name, and the one that it gets.
    uuid
        The VM's UUID, by which an interrupted call goes on, whichever name the VM has. Defaults to
        that of the VM of this name.
    seed
        Give the minion in the guest's disk the new id, and the guest its host name. Machine id, SSH
        host keys and the minion's key stay. Needs libguestfs (python3-guestfs), or
        ``virt:seed:allow_host_mount``. Defaults to False.
    public_key
        The key that this minion must have. Defaults to any.
    dry_run
        Change nothing, and fail as the call would. Defaults to False.
    report
        For the runner.

    The files of disks keep their names. Returns ``{"seeded_by": tool or None}``. Fails, with
    nothing changed, if the VM runs, has snapshots, checkpoints or a saved state, or is moved, built
    or purged, and if the host has a VM of the new name. Undo: the same call with the names
    exchanged.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.stop centos1
        salt hyper1 virt.rename centos1 centos3 dry_run=True
        salt hyper1 virt.rename centos1 centos3
        salt hyper1 virt.rename centos3 centos1
    """
    with renaming.as_refusal():
        report = kwargs.pop("report", False)
        override = {key: kwargs.pop(key) for key in config.CONNECTION if key in kwargs}
        arguments.refuse_unknown(kwargs, [*config.CONNECTION], "virt.rename")
        request = renaming.parse(name, new_name, uuid, seed, public_key)
        is_dry = arguments.boolean("dry_run", dry_run)
        context = _module.context(override).reporting(new_name, "salt/virt/rename", report)
    return renaming.rename(context, request, is_dry=is_dry)


optionguard.modules(globals())
