"""
Add, grow, change, move and remove single disks, drives and NICs of a VM; all its others stay.

.. versionadded:: 1.1.0

Each function but move_disk does what virt.update would do with the list of all devices. A disk is
named by its target (``vdb``), its file, or its name in virt.update (``data``). A NIC is named by
its MAC, or by the name from which virt.nic_add made the MAC. All return a mapping with ``outcome``
(one line for people), ``device`` (the target or the MAC) and ``restart`` (whether the change waits
for the VM's next start). With ``test=True`` all but move_disk return ``diff``, too: the changed
lines of the definition without passwords. ``dry_run=True`` is another name of ``test=True``.
"""

from saltvirt.core import arguments
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.storage import sharing
    from saltvirt.vm.diskmove.host import moving
    from saltvirt.vm.update.host import single

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _call(name, live, test, dry_run):
    is_test = arguments.boolean("test", test) | arguments.boolean("dry_run", dry_run)
    vm = arguments.text("name", name)
    return single.Call(vm=vm, live=arguments.boolean("live", live), test=is_test)


def _context(function, keywords):
    return _module.context(config.connection(function, keywords))


def _split(keywords):
    """Return the connection's keywords, and those of the device."""
    override = {key: keywords[key] for key in config.CONNECTION if key in keywords}
    options = {
        key: value
        for key, value in keywords.items()
        if key not in override and not key.startswith("__")
    }
    return override, options


def _optional(argument, value):
    return None if value is None else arguments.text(argument, value)


def disk_add(name, disk, size=None, live=True, test=False, dry_run=False, **kwargs):
    """
    Give a VM one disk or drive more.

    name
        The VM's name.
    disk
        The disk's name, such as ``data``.
    size
        Its size in MiB, or with a unit: ``10G``. Not needed with an image or an existing file.
    live
        Also give it to the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.
    kwargs
        The other keys of a disk in virt.update: ``image``, ``pool``, ``format``, ``model``,
        ``source_file``, ``device``, …

    Returns ``{outcome, device, restart, file, made}``: ``file`` is a path or ``POOL/VOLUME``,
    ``made`` whether it is new. Fails, and changes nothing, if the VM has that disk, and where
    virt.update does. Undo: virt.disk_remove.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.disk_add centos1 data 64M test=True
    """
    override, options = _split(kwargs)
    call = _call(name, live, test, dry_run)
    options = options if size is None else {**options, "size": size}
    return single.disk_add(_module.context(override), call, arguments.text("disk", disk), options)


def disk_grow(name, disk, size, test=False, dry_run=False, **kwargs):
    """
    Grow a disk of a VM, while it runs or not.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    size
        The new size in MiB, or with a unit (``20G``); or what is added, with a plus: ``+10G``.
    test, dry_run
        Change nothing, and return what would be done. Default to False.

    The guest must then grow its partition and its file system. Returns ``{outcome, device, restart,
    file, bytes_before, bytes}``. Fails if the disk would be smaller, and for a volume that is no
    file: the error names the command for that. There is no undo.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.disk_grow centos1 vda +1G test=True
    """
    call = _call(name, True, test, dry_run)
    disk_name = arguments.text("disk", disk)
    return single.disk_grow(_context("virt.disk_grow", kwargs), call, disk_name, size)


def disk_remove(name, disk, file=False, live=True, test=False, dry_run=False, **kwargs):
    """
    Detach a disk or a drive of a VM; its file or volume stays.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    file
        Move the disk's file into the trash. Defaults to False.
    live
        Also take it from the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.

    Returns ``{outcome, device, restart, file, trash, remove}``: ``trash`` is the entry of the
    trash, None if the file stays, or was empty; ``remove`` the command that removes what stays, if
    there is one. The trash keeps the file for ``virt:trash_days``, for a week at least. Fails if
    the guest does not release the disk. With ``file`` it fails before any change if something else
    needs the file, if the VM has snapshots or a saved state, and if it keeps the disk until it
    stops. Undo: virt.trash_restore, then virt.disk_add.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.disk_remove centos1 vda test=True
    """
    replies = kwargs.pop("replies", None)
    call, context = _call(name, live, test, dry_run), _context("virt.disk_remove", kwargs)
    disk_name, is_file_going = arguments.text("disk", disk), arguments.boolean("file", file)

    def remove(elsewhere):
        return single.disk_remove(
            context, call, disk_name, file=is_file_going, other_hosts=elsewhere
        )

    return sharing.run_or_ask(replies, remove)


def move_disk(name, disk, pool, test=False, dry_run=False, **kwargs):
    """
    Move a disk of a VM into another pool of its host, while the VM runs or not.

    name
        The VM's name.
    disk
        The disk's target, file or name.
    pool
        The pool that the disk goes to, a pool of files; or a folder.
    test, dry_run
        Change nothing, and return what would be moved. Default to False.

    The disk of a running VM is copied by QEMU, which then goes on in the copy; that of a stopped VM
    is copied and compared. Of an overlay only its own file moves: the image below it stays. The old
    file goes into the trash once the VM, and its definition, have the new one.

    Returns ``{outcome, device, restart, file, old, live, bytes, trash}``: ``bytes`` are what the
    disk's file took, ``trash`` is the entry of the old file, None if it stays, or was empty. Fails,
    and changes nothing: the VM has snapshots, checkpoints or a saved state, something else needs
    the file, or the pool has no room. Run it again if it was interrupted. Undo: the same call with
    the former pool.

    replies, report
        Passed by the runner: the replies of the other hosts about shared files; to report progress.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.move_disk centos1 vda pool=/srv dry_run=True
    """
    replies, report = kwargs.pop("replies", None), kwargs.pop("report", False)
    call, context = _call(name, True, test, dry_run), _context("virt.move_disk", kwargs)
    context = context.reporting(call.vm, "salt/virt/move_disk", report)
    disk_name, pool_name = arguments.text("disk", disk), arguments.text("pool", pool)

    def move(elsewhere):
        return moving.move_disk(context, call, disk_name, pool_name, other_hosts=elsewhere)

    return sharing.run_or_ask(replies, move)


def nic_add(name, nic=None, live=True, test=False, dry_run=False, **kwargs):
    """
    Give a VM one NIC more.

    name
        The VM's name.
    nic
        The NIC's name, of which its MAC is made. Defaults to the first free one: ``eth0``,
        ``eth1``, …
    live
        Also give it to the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.
    kwargs
        The other keys of a NIC in virt.update: ``bridge``, ``network``, ``mac``, ``model``,
        ``vlan``, … Without any, it is on the bridge ``br0``.

    Returns ``{outcome, device, restart}``. Fails, and changes nothing, if the VM has a NIC with
    that MAC, and where virt.update does. Undo: virt.nic_remove.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.nic_add centos1 bridge=br0 test=True
    """
    override, options = _split(kwargs)
    call, nic_name = _call(name, live, test, dry_run), _optional("nic", nic)
    return single.nic_add(_module.context(override), call, nic_name, options)


def nic_remove(name, nic, live=True, test=False, dry_run=False, **kwargs):
    """
    Remove a NIC of a VM.

    name
        The VM's name.
    nic
        Its MAC; or its name, if its MAC was made of that.
    live
        Also take it from the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.

    Returns ``{outcome, device, restart}``. Fails if the guest does not release the NIC. Undo:
    virt.nic_add with the same values.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.nic_remove centos1 eth0 test=True
    """
    call, nic_name = _call(name, live, test, dry_run), arguments.text("nic", nic)
    return single.nic_remove(_context("virt.nic_remove", kwargs), call, nic_name)


def eject(name, drive=None, live=True, test=False, dry_run=False, **kwargs):
    """
    Take the medium out of a VM's drive; the drive stays.

    name
        The VM's name.
    drive
        The drive's target, or its medium. Defaults to the only drive, or the only one with a
        medium.
    live
        Also take it from the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.

    Returns ``{outcome, device, restart, file}``: ``file`` is the medium that was in it, None for an
    empty drive, which is a success. Undo: virt.insert.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.eject centos1 test=True
    """
    call, drive_name = _call(name, live, test, dry_run), _optional("drive", drive)
    return single.eject(_context("virt.eject", kwargs), call, drive_name)


def insert(name, medium, drive=None, live=True, test=False, dry_run=False, **kwargs):
    """
    Put a medium into a VM's drive, in the place of the present one.

    name
        The VM's name.
    medium
        Absolute path of a file on this host, or a URL, as ``source_file`` of a drive in
        virt.update.
    drive
        The drive's target, or its medium. Defaults to the only drive, or the only empty one.
    live
        Also give it to the running VM. Defaults to True.
    test, dry_run
        Change nothing, and return what would be done. Default to False.

    Returns ``{outcome, device, restart, file}``: ``file`` is the medium. Fails if there is no such
    file, or if the VM has no drive. Undo: virt.eject.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.insert centos1 /srv/debian.iso test=True
    """
    call, drive_name = _call(name, live, test, dry_run), _optional("drive", drive)
    context = _context("virt.insert", kwargs)
    return single.insert(context, call, arguments.text("medium", medium), drive_name)


optionguard.modules(globals())
