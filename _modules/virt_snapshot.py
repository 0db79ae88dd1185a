"""
Take snapshots of VMs, list and delete them, and revert to them.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of every function override
``virt:connection:uri`` and ``virt:connection:auth``.
"""

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import snapshots
    from saltvirt.storage import chains, door, snapshotguard
    from saltvirt.vm.power.host import startlock

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def list_snapshots(domain=None, **kwargs):
    """
    Return the snapshots of one VM, or of all, the oldest first.

    domain
        The VM's name. Defaults to all.

    Returns ``{VM: [{name, created, running, current}]}``, or the text ``N/A`` instead of a list for
    a VM without any; ``created`` in the host's local time. External snapshots have ``external``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_snapshots centos1
    """
    with _module.opened("virt.list_snapshots", kwargs, readonly=True) as (conn, _settings):
        return snapshots.list_snapshots(conn, domain)


def snapshot(domain, name=None, suffix=None, external=False, quiesce=False, **kwargs):
    """
    Take a snapshot of a VM.

    domain
        The VM's name.
    name
        The snapshot's name. Defaults to the VM's name with date and time. A number is refused for
        an internal snapshot, because QEMU would take it for the id of another.
    suffix
        A suffix of the name, after a hyphen. Defaults to none.
    external
        Continue each disk in a new file next to it, and save no memory. By default the snapshot is
        internal: in the disks, which have to be qcow2, with the memory of a running VM, which is
        paused meanwhile.
    quiesce
        Freeze the guest's file systems meanwhile, by its agent; needs ``external``. Defaults to
        False.

    Returns ``{"name": ...}``. Fails if there is no such VM, if it is being moved to or from this
    host, if it has a snapshot of that name, for an external snapshot if it has a saved state or a
    disk with 20 backing files, for an internal snapshot if it runs and its UEFI variables are raw,
    or with libvirt's message. Undo: virt.delete_snapshots.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.snapshot centos1 before-update
        salt hyper1 virt.delete_snapshots centos1 before-update
    """
    new_name = snapshots.new_name(str(domain), name, suffix)
    is_external = arguments.boolean("external", external)
    is_quiesced = arguments.boolean("quiesce", quiesce)
    opened = _module.opened("virt.snapshot", kwargs)
    with opened as (conn, settings), startlock.allow_start(conn, settings, domain):
        chains.take(conn, domain, new_name, is_external=is_external, is_quiesced=is_quiesced)
    return {"name": new_name}


def delete_snapshots(name, *names, **kwargs):
    """
    Delete snapshots of a VM; its disks stay as they are now.

    name
        The VM's name.
    names
        The snapshots' names; all must exist.
    all
        Delete all snapshots. Defaults to False; ``names`` or ``all=True`` is needed.

    Returns ``{"available": {VM: [...] or "N/A"}, "deleted": {snapshot: {...}}}``, as
    virt.list_snapshots shows them. Fails for an external snapshot if something else needs a file
    that would change or go: another VM, another snapshot of this VM, a disk in the trash, a file
    without a VM; if the VM has a saved state; or if the file is on storage that other hosts see:
    ``salt-run virt.delete_snapshots`` asks these hosts. There is no undo.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.snapshot centos1 before-update
        salt hyper1 virt.delete_snapshots centos1 before-update
        salt hyper1 virt.delete_snapshots centos1 all=True
    """
    is_all = arguments.boolean("all", kwargs.pop("all", False))
    if is_all == bool(names):
        raise BadArgument("names", "give the names of snapshots, or all=True")

    def delete(conn, settings, elsewhere):
        with startlock.allow_start(conn, settings, name):
            return snapshotguard.delete(conn, settings, name, list(map(str, names)), elsewhere)

    return _module.run_or_ask("virt.delete_snapshots", kwargs, delete)


def revert_snapshot(name, vm_snapshot=None, cleanup=False, **kwargs):
    """
    Revert a VM to a snapshot; later changes to its disks are lost.

    name
        The VM's name.
    vm_snapshot
        The snapshot's name. Defaults to the one before the current one.
    cleanup
        Then delete all snapshots that are newer. Defaults to False.

    Returns ``{"reverted": snapshot, "deleted": [snapshot] or "N/A"}``. The VM runs afterwards if it
    ran when the snapshot was taken; ``warnings`` then notes that its minion may not answer for some
    minutes. Fails if there is no snapshot, if the VM is being moved to or from this host or has a
    saved state, if something else needs the present content of its disks (another VM, an external
    snapshot of this VM, a disk in the trash, a file without a VM), or, with libvirt before 9.9, if
    the snapshot is external. There is no undo.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.snapshot centos1 before-update
        salt hyper1 virt.revert_snapshot centos1 before-update
        salt hyper1 virt.delete_snapshots centos1 before-update
    """
    with_cleanup = arguments.boolean("cleanup", cleanup)

    def revert(conn, settings, elsewhere):
        options = {"with_cleanup": with_cleanup, "other_hosts": elsewhere}
        with startlock.allow_start(conn, settings, name):
            plan, verdicts = snapshotguard.plan_revert(conn, settings, name, vm_snapshot, **options)
            return door.revert(conn, name, plan, verdicts, with_cleanup=with_cleanup)

    return _module.run_or_ask("virt.revert_snapshot", kwargs, revert)


optionguard.modules(globals())
