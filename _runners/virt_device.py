"""
Add, grow, change, move and remove single disks, drives and NICs of a VM, wherever it is.

.. versionadded:: 1.1.0

Each function has its host's function of the same name do the work, and returns ``{host: {name:
answer}}``. The answer has ``outcome`` (one line, which a terminal shows), ``device`` and
``restart``; in a dry run of all but move_disk ``diff``, too.
"""

from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.command.master import vmcommand

__virtualname__ = "virt"
__virtual__ = load_always


def _run(command, name, *args, **given):
    return vmcommand.run(__opts__, __jid_event__, command, name, *args, **given)


@runner_function(outputter="virt_vms")
def disk_add(name, disk, size=None, *, dry_run=False, **options):
    """
    Give a VM one disk or drive more.

    name
        The VM's name.
    disk
        The disk's name, such as ``data``.
    size
        Its size in MiB, or with a unit: ``10G``. Not needed with an image or an existing file.
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        The other arguments of the module's ``virt.disk_add``: ``image``, ``pool``, ``format``,
        ``model``, ``source_file``, ``device``, ``live``, …

    Returns ``{host: {name: {outcome, device, restart, file, made}}}``. Fails where the host's own
    ``virt.disk_add`` does. Undo: virt.disk_remove.

    CLI Example:

    .. code-block:: bash

        salt-run virt.disk_add centos1 data 64M dry_run=True
    """
    return _run("disk_add", name, disk, size, kwarg=options, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def disk_grow(name, disk, size, *, dry_run=False):
    """
    Grow a disk of a VM, while it runs or not.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    size
        The new size in MiB, or with a unit (``20G``); or what is added, with a plus: ``+10G``.
    dry_run
        Change nothing, and return what would be done. Defaults to False.

    The guest must then grow its partition and its file system. Returns ``{host: {name: {outcome,
    device, restart, file, bytes_before, bytes}}}``. Fails where the host's own ``virt.disk_grow``
    does, such as for a smaller size. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt-run virt.disk_grow centos1 vda +8M dry_run=True
    """
    return _run("disk_grow", name, disk, size, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def disk_remove(name, disk, file=False, *, force=False, dry_run=False, **options):
    """
    Detach a disk or a drive of a VM; its file or volume stays.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    file
        Move the disk's file into the trash, unless a VM of any host needs it. Defaults to False.
    force
        With ``file``, do it although a host is unresponsive. Defaults to False.
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        ``live=False`` leaves the running VM as it is.

    Returns ``{host: {name: {outcome, device, restart, file, trash, remove}}}``. Fails where the
    host's own ``virt.disk_remove`` does; with ``file`` also if another host needs the file, or is
    unresponsive. Undo: virt.trash_restore, then virt.disk_add.

    CLI Example:

    .. code-block:: bash

        salt-run virt.disk_remove centos1 vda dry_run=True
    """
    flags = {"force": force, "dry_run": dry_run}
    return _run("disk_remove", name, disk, file, kwarg=options, **flags)


@runner_function(outputter="virt_vms")
def move_disk(name, disk, pool, *, force=False, dry_run=False):
    """
    Move a disk of a VM into another pool of its host, while the VM runs or not.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    pool
        The pool that the disk goes to, a pool of files of the VM's host; or a folder.
    force
        Do it although a host is unresponsive that may need the disk's file. Defaults to False.
    dry_run
        Change nothing, and return what would be moved. Defaults to False.

    Of an overlay only its own file moves: the image below it stays. The old file goes into the
    trash once the VM, and its definition, have the new one. Returns ``{host: {name: {outcome,
    device, restart, file, old, live, bytes, trash}}}``. Fails where the host's own
    ``virt.move_disk`` does; also if another host needs the file, or is unresponsive. Run it again
    if it was interrupted. Undo: the same call with the former pool.

    CLI Example:

    .. code-block:: bash

        salt-run virt.move_disk centos1 vda pool=/srv dry_run=True
    """
    return _run("move_disk", name, disk, pool, force=force, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def nic_add(name, nic=None, *, dry_run=False, **options):
    """
    Give a VM one NIC more.

    name
        The VM's name.
    nic
        The NIC's name, of which its MAC is made. Defaults to the first free one: ``eth0``,
        ``eth1``, …
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        The other arguments of the module's ``virt.nic_add``: ``bridge``, ``network``, ``mac``,
        ``model``, ``vlan``, ``live``, …

    Returns ``{host: {name: {outcome, device, restart}}}``. Fails where the host's own
    ``virt.nic_add`` does. Undo: virt.nic_remove.

    CLI Example:

    .. code-block:: bash

        salt-run virt.nic_add centos1 bridge=br0 dry_run=True
    """
    return _run("nic_add", name, nic, kwarg=options, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def nic_remove(name, nic, *, dry_run=False, **options):
    """
    Remove a NIC of a VM.

    name
        The VM's name.
    nic
        Its MAC; or its name, if its MAC was made of that.
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        ``live=False`` leaves the running VM as it is.

    Returns ``{host: {name: {outcome, device, restart}}}``. Fails if the guest does not release the
    NIC. Undo: virt.nic_add with the same values.

    CLI Example:

    .. code-block:: bash

        salt-run virt.nic_remove centos1 eth0 dry_run=True
    """
    return _run("nic_remove", name, nic, kwarg=options, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def eject(name, drive=None, *, dry_run=False, **options):
    """
    Take the medium out of a VM's drive; the drive stays.

    name
        The VM's name.
    drive
        The drive's target, or its medium. Defaults to the only drive, or the only one with a
        medium.
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        ``live=False`` leaves the running VM as it is.

    Returns ``{host: {name: {outcome, device, restart, file}}}``. Fails where the host's own
    ``virt.eject`` does. Undo: virt.insert.

    CLI Example:

    .. code-block:: bash

        salt-run virt.eject centos1 dry_run=True
    """
    return _run("eject", name, drive, kwarg=options, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def insert(name, medium, drive=None, *, dry_run=False, **options):
    """
    Put a medium into a VM's drive, in the place of the present one.

    name
        The VM's name.
    medium
        Absolute path of a file on the VM's host, or a URL.
    drive
        The drive's target, or its medium. Defaults to the only drive, or the only empty one.
    dry_run
        Change nothing, and return what would be done. Defaults to False.
    options
        ``live=False`` leaves the running VM as it is.

    Returns ``{host: {name: {outcome, device, restart, file}}}``. Fails where the host's own
    ``virt.insert`` does. Undo: virt.eject.

    CLI Example:

    .. code-block:: bash

        salt-run virt.insert centos1 /srv/debian.iso dry_run=True
    """
    return _run("insert", name, medium, drive, kwarg=options, dry_run=dry_run)
