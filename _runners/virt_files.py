"""
Remove or overwrite files that other hosts may need, after asking all hosts.

.. versionadded:: 1.0.0

On shared storage the module's functions refuse, and name these runner functions. ``force=True``
proceeds although a host is unresponsive.
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.cluster.inventory import inventory
    from saltvirt.storage.master import fileusers
    from saltvirt.vm.command.master import vmcommand

__virtualname__ = "virt"
__virtual__ = load_always


def _order(host, fun, args, force, *, dry_run=False, **kwarg):
    is_dry = arguments.boolean("dry_run", dry_run)
    if is_dry:
        # Hosts of older releases refuse it, and change nothing then.
        kwarg["test"] = True
    cloud = Cloud.of(__opts__, __jid_event__, host, is_reading=is_dry)
    target = inventory.require_host(cloud, host)
    return {target: fileusers.order(cloud, target, fun, args, kwarg, force=force)}


def _on_vm(command, name, *args, **given):
    answer = vmcommand.run(__opts__, __jid_event__, command, name, *args, **given)
    # As the module's function, without the VM's name.
    return {host: outcome for host, rows in answer.items() for outcome in rows.values()}


@runner_function
def volume_delete(host, pool, volume, force=False, dry_run=False):
    """
    Delete a volume with its content, unless a VM of any host needs it.

    host
        The hypervisor.
    pool
        The pool's name.
    volume
        The volume's name.
    force
        Delete it although a host is unresponsive. Defaults to False.
    dry_run
        Change nothing; return ``{host: "would be deleted"}``, or fail as without it. Defaults to
        False.

    Returns ``{host: True}``; fails where the host's own ``virt.volume_delete`` does, and if another
    host needs the volume, or is unresponsive. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt-run virt.volume_delete hyper1 default data.qcow2 dry_run=True
        salt-run virt.volume_delete hyper1 default data.qcow2
    """
    return _order(host, "virt.volume_delete", [pool, volume], force, dry_run=dry_run)


@runner_function
def volume_wipe(host, pool, volume, algorithm="zero", force=False, dry_run=False):
    """
    Overwrite the content of a volume, unless a VM of any host needs it.

    host
        The hypervisor.
    pool
        The pool's name.
    volume
        The volume's name.
    algorithm
        As in the module's ``virt.volume_wipe``. Defaults to ``zero``.
    force
        Wipe it although a host is unresponsive. Defaults to False.
    dry_run
        Change nothing; return ``{host: "would be wiped"}``, or fail as without it. Defaults to
        False.

    Returns ``{host: True}``; fails where the host's own ``virt.volume_wipe`` does, and if another
    host needs the volume, or is unresponsive. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt-run virt.volume_wipe hyper1 default data.qcow2
        salt hyper1 virt.volume_delete default data.qcow2
    """
    return _order(host, "virt.volume_wipe", [pool, volume, algorithm], force, dry_run=dry_run)


@runner_function
def volume_resize(host, pool, volume, size, shrink=False, force=False):
    """
    Change the capacity of a volume, unless a VM of any host needs the lost part.

    host
        The hypervisor.
    pool
        The pool's name.
    volume
        The volume's name.
    size
        The new capacity in MiB, or with a unit: ``8192``, ``8g``.
    shrink
        Allow a smaller size; data beyond it is lost. Defaults to False.
    force
        Do it although a host is unresponsive. Defaults to False.

    Returns ``{host: True}``; fails where the host's own ``virt.volume_resize`` does, and if another
    host needs the volume, or is unresponsive. Undo: the old size with ``shrink=True``; lost data
    does not come back.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt-run virt.volume_resize hyper1 default data.qcow2 128
        salt hyper1 virt.volume_delete default data.qcow2
    """
    return _order(host, "virt.volume_resize", [pool, volume, size], force, shrink=shrink)


@runner_function
def volume_upload(host, pool, volume, file, force=False, offset=0, length=0, sparse=False):
    """
    Write the content of a host's file into a volume, unless a VM of any host needs the volume.

    host
        The hypervisor.
    pool
        The pool's name.
    volume
        The volume's name.
    file
        Absolute path of a file or a block device of that host.
    force
        Do it although a host is unresponsive. Defaults to False.
    offset
        The start in the volume, in bytes. Defaults to 0.
    length
        The number of bytes to write. Defaults to 0: the whole file.
    sparse
        Skip holes of the file, as the module's ``virt.volume_upload``. Defaults to False.

    Returns ``{host: True}``; fails where the host's own ``virt.volume_upload`` does, and if another
    host needs the volume, or is unresponsive. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.img 1 format=raw
        salt-run virt.volume_upload hyper1 default data.img /srv/debian.qcow2 length=1048576
        salt hyper1 virt.volume_delete default data.img
    """
    part = {"offset": offset, "length": length, "sparse": sparse}
    return _order(host, "virt.volume_upload", [pool, volume, file], force, **part)


@runner_function
def trash_put(host, path, force=False):
    """
    Move a file that no VM has into a host's trash, unless a VM of any host needs it.

    host
        The hypervisor.
    path
        Absolute path of the file on that host.
    force
        Do it although a host is unresponsive. Defaults to False.

    Returns ``{host: {"entry": name, "undo": command}}``, as the host's own ``virt.trash_put``;
    fails where that does, and if another host needs the file, or is unresponsive. Undo:
    virt.trash_restore.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash_put hyper1 /srv/salt-images/left1_system.qcow2
    """
    return _order(host, "virt.trash_put", [path], force)


@runner_function(outputter="virt_vms")
def delete_snapshots(name, *names, force=False, dry_run=False, **kwargs):
    """
    Delete snapshots of a VM, unless a VM of any host needs a file that would change.

    name
        The VM's name.
    names
        The snapshots' names; all must exist.
    all
        Delete all snapshots. Defaults to False; ``names`` or ``all=True`` is needed.
    force
        Do it although a host is unresponsive. Defaults to False.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.

    Returns ``{host: {...}}``, as the host's own ``virt.delete_snapshots``; fails where that does,
    and if another host needs a file that would change, or is unresponsive. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot centos1 before-update
        salt-run virt.delete_snapshots centos1 before-update
    """
    flags = {"force": force, "dry_run": dry_run}
    return _on_vm("delete_snapshots", name, *names, kwarg=kwargs, **flags)


@runner_function(outputter="virt_vms")
def revert_snapshot(name, vm_snapshot=None, cleanup=False, force=False, *, dry_run=False):
    """
    Revert a VM to a snapshot, unless a VM of any host needs its disks' present content.

    name
        The VM's name.
    vm_snapshot
        The snapshot's name. Defaults to the one before the current one.
    cleanup
        Then delete all snapshots that are newer. Defaults to False.
    force
        Do it although a host is unresponsive. Defaults to False.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.

    Returns ``{host: {...}}``, as the host's own ``virt.revert_snapshot``; fails where that does,
    and if another host needs a file that would change, or is unresponsive. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot centos1 before-update
        salt-run virt.revert_snapshot centos1 before-update
        salt-run virt.delete_snapshots centos1 before-update
    """
    flags = {"force": force, "dry_run": dry_run}
    return _on_vm("revert_snapshot", name, vm_snapshot, kwarg={"cleanup": cleanup}, **flags)


revert = revert_snapshot
