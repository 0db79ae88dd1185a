"""
Show, make, fill, copy and remove volumes in the storage pools of this hypervisor.

.. versionadded:: 1.0.0
"""

import functools

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt import reservations
    from saltvirt.libvirt.storage import transfer, volumes
    from saltvirt.storage import door, policies, vmvolumes, writeguard
    from saltvirt.xml.storage import storagevolume

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def volume_infos(pool=None, volume=None, **kwargs):
    """
    Return the volumes in running storage pools, with the VMs that use them.

    pool
        A pool's name. By default all.
    volume
        A volume's name. By default all.

    Returns ``{pool: {volume: {type, key, path, capacity, allocation, used_by, backing_store,
    format}}}``; sizes in bytes, ``used_by`` the names of the VMs that have it as a disk or in its
    backing chain, ``backing_store`` None or ``{path, format}``. Pools without a matching volume,
    and volumes with a missing or unreadable file, are left out.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_infos default
    """
    with _module.opened("virt.volume_infos", kwargs, readonly=True) as (conn, settings):
        return volumes.infos(conn, pool, volume)


def volume_define(
    pool,
    name,
    size,
    allocation=0,
    format=None,
    type=None,
    permissions=None,
    backing_store=None,
    nocow=False,
    **kwargs,
):
    """
    Make a volume in a storage pool that runs.

    pool
        The pool's name.
    name
        The volume's name.
    size
        Its capacity in MiB, or with a unit: ``8192``, ``8g``.
    allocation
        The part that is allocated at once, in MiB. Defaults to 0; in a ``logical`` pool to all.
    format
        ``qcow2``, ``raw``, ...; by default that of the pool's type (virt.pool_capabilities).
    type
        ``file``, ``block``, ``dir``, ``network``, ``netdir`` or ``ploop``; by default the pool's.
    permissions
        ``{mode, owner, group, label}``: an octal mode, numbers of user and group.
    backing_store
        ``{path, format}`` of the backing file; both are needed.
    nocow
        Switch copy-on-write off, on btrfs. Defaults to False.

    Returns True; fails with libvirt's message if the name is taken. Undo:
    virt.volume_delete.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_delete default data.qcow2
    """
    volume = storagevolume.from_call(
        name,
        size,
        allocation=allocation,
        format=format,
        type=type,
        requested_permissions=permissions,
        backing_store=backing_store,
        nocow=nocow,
    )
    with _module.connection("virt.volume_define", kwargs) as conn:
        volumes.define(conn, pool, volume)
    return True


def define_vol_xml_str(xml, pool=None, **kwargs):
    """
    Make a volume from libvirt's own XML.

    xml
        The XML text of a <volume>.
    pool
        The pool's name. Defaults to ``virt:storagepool``, then to ``default``.

    Returns True; fails with libvirt's message. Undo: virt.volume_delete.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.define_vol_xml_str "<volume><name>d1</name><capacity>65536</capacity>\
</volume>" default
        salt hyper1 virt.volume_delete default d1
    """
    arguments.text("xml", xml)
    with _module.opened("virt.define_vol_xml_str", kwargs) as (conn, settings):
        volumes.define_xml(conn, str(pool or settings.storagepool or "default"), xml)
    return True


def define_vol_xml_path(path, pool=None, **kwargs):
    """
    Make a volume from a file with libvirt's own XML.

    path
        Absolute path on this host.
    pool
        The pool's name. Defaults to ``virt:storagepool``, then to ``default``.

    Returns True; fails if the file cannot be read, or with libvirt's message. Undo:
    virt.volume_delete.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.define_vol_xml_path /srv/volume.xml default
        salt hyper1 virt.volume_delete default d1
    """
    return define_vol_xml_str(hostmodule.read_file("path", path), pool=pool, **kwargs)


def volume_delete(pool, volume, test=False, **kwargs):
    """
    Delete a volume with its content.

    pool
        The pool's name.
    volume
        The volume's name.
    test
        Change nothing; return ``would be deleted``, or fail as without it. Defaults to False.

    Returns True; fails if there is none, if a running VM uses it (also on another host that shares
    its file), if a disk or a snapshot of a VM here, or a disk in the trash, is or may be based on
    it, if it was just made for an arriving VM, or with libvirt's message. There is no undo.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_delete default data.qcow2
    """
    is_dry = arguments.boolean("test", test)

    def delete(conn, settings, elsewhere):
        args = (conn, settings, pool, [volume], elsewhere)
        with reservations.host_lock(settings):
            check = functools.partial(vmvolumes.judge_deletion, *args)
            door.delete_volume(conn, pool, volume, check, is_dry=is_dry)
        return "would be deleted" if is_dry else True

    return _module.run_or_ask("virt.volume_delete", kwargs, delete)


def volume_resize(pool, volume, size, shrink=False, **kwargs):
    """
    Change the capacity of a volume.

    pool
        The pool's name.
    volume
        The volume's name.
    size
        The new capacity in MiB, or with a unit: ``8192``, ``8g``.
    shrink
        Allow a smaller size; data beyond it is lost. Defaults to False.

    Returns True, also without a change; fails if a running VM uses it (also on another host that
    shares its file), if it would be smaller without ``shrink``, or with ``shrink`` if
    ``virt.volume_delete`` would fail because other disks are based on it; and with libvirt's
    message. Undo: the old size with ``shrink=True``; lost data does not come back.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_resize default data.qcow2 128
        salt hyper1 virt.volume_delete default data.qcow2
    """
    capacity = storagevolume.size_of("size", size)
    shrinks = arguments.boolean("shrink", shrink)

    def resize(conn, settings, elsewhere):
        args = (conn, settings, pool, volume, elsewhere)
        with reservations.host_lock(settings):
            check = functools.partial(vmvolumes.judge_resize, *args)
            door.resize_volume(conn, pool, volume, capacity, check, shrinks=shrinks)
        return True

    return _module.run_or_ask("virt.volume_resize", kwargs, resize)


def volume_clone(pool, volume, name, to_pool=None, format=None, **kwargs):
    """
    Copy a volume into a new one without a backing file.

    pool
        The pool's name.
    volume
        The name of the volume that is copied.
    name
        The new one's name.
    to_pool
        The pool of the new one. Defaults to the same pool.
    format
        The format of the new one. Defaults to the same format.

    Returns True; fails if a running VM uses the volume, if the new name is taken, if the volume's
    content could make libvirt copy other files of the host, or with libvirt's message. Undo:
    virt.volume_delete.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_clone default data.qcow2 copy.qcow2
        salt hyper1 virt.volume_delete default data.qcow2
        salt hyper1 virt.volume_delete default copy.qcow2
    """
    with _module.opened("virt.volume_clone", kwargs) as (conn, settings):
        writeguard.refuse_disguised(conn, settings, pool, volume)
        volumes.clone(conn, pool, volume, name, to_pool=to_pool or pool, format=format)
    return True


def volume_upload(pool, volume, file, offset=0, length=0, sparse=False, **kwargs):
    """
    Write the content of a file of this host into a volume.

    pool
        The pool's name.
    volume
        The volume's name.
    file
        Absolute path of a file or a block device.
    offset
        The start in the volume, in bytes. Defaults to 0.
    length
        The number of bytes to write. Defaults to 0: the whole file.
    sparse
        Skip holes of the file if the volume is a device, or an empty file that is written to its
        end; otherwise zeros are written. Defaults to False.

    Returns True; fails where ``virt.volume_delete`` does, such as if a running VM uses the volume
    or other disks are based on it; if the file cannot be read, or with libvirt's message: then the
    volume has a part of the file. Meanwhile no VM can start with the volume. There is no undo.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.img 1 format=raw
        salt hyper1 virt.volume_upload default data.img /srv/debian.qcow2 length=1048576
        salt hyper1 virt.volume_delete default data.img
    """
    part = _part(offset, length, sparse)

    def upload(conn, settings, elsewhere):
        volumes.lookup(conn, pool, volume)
        args = (conn, settings, pool, [volume], elsewhere, policies.FILL)
        verdicts = vmvolumes.judge_deletion(*args, call="virt.volume_upload")
        with vmvolumes.lock_volume(conn, pool, volume):
            door.write_volume(conn, pool, volume, str(file), verdicts, **part)
        return True

    return _module.run_or_ask("virt.volume_upload", kwargs, upload)


def volume_download(pool, volume, file, offset=0, length=0, sparse=False, **kwargs):
    """
    Write the content of a volume into a new file of this host, which only root can read.

    pool
        The pool's name.
    volume
        The volume's name.
    file
        Absolute path; an existing file is not overwritten.
    offset
        The start in the volume, in bytes. Defaults to 0.
    length
        The number of bytes to read. Defaults to 0: up to the end.
    sparse
        Make holes for unallocated parts of the volume. Defaults to False.

    A running VM changes its disk meanwhile: stop the VM first. Returns True; fails with libvirt's
    message and leaves no file behind. Undo: remove the file.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_download default data.qcow2 /srv/data.qcow2
        salt hyper1 virt.volume_delete default data.qcow2
    """
    part = _part(offset, length, sparse)
    with _module.connection("virt.volume_download", kwargs) as conn:
        transfer.download(conn, pool, volume, str(file), **part)
    return True


def _part(offset, length, sparse):
    return {
        "offset": arguments.whole_number("offset", offset, least=0),
        "length": arguments.whole_number("length", length, least=0),
        "is_sparse": arguments.boolean("sparse", sparse),
    }


def volume_wipe(pool, volume, algorithm="zero", test=False, **kwargs):
    """
    Overwrite the content of a volume, so that it cannot be recovered.

    pool
        The pool's name.
    volume
        The volume's name.
    algorithm
        ``zero`` (default), ``nnsa``, ``dod``, ``bsi``, ``gutmann``, ``schneier``, ``pfitzner7``,
        ``pfitzner33``, ``random`` or ``trim``; all but ``zero`` and ``trim`` need ``scrub``.
    test
        Change nothing; return ``would be wiped``, or fail as without it. Defaults to False.

    Returns True; fails if a VM, running or not, has the volume as a disk or in a backing chain, or
    is to have it, if it is a cached image, if a disk in the trash is based on it, or with libvirt's
    message. The volume stays, without a format; meanwhile no VM can start with it. There is no
    undo.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.volume_define default data.qcow2 64 format=qcow2
        salt hyper1 virt.volume_wipe default data.qcow2
        salt hyper1 virt.volume_delete default data.qcow2
    """
    is_dry = arguments.boolean("test", test)

    def wipe(conn, settings, elsewhere):
        volumes.refuse_algorithm(algorithm)
        volumes.lookup(conn, pool, volume)
        # A wipe may take hours: keep other commands from giving the volume to a VM meanwhile.
        with vmvolumes.lock_volume(conn, pool, volume):
            verdicts = vmvolumes.judge_wipe(conn, settings, pool, volume, elsewhere)
            door.wipe_volume(conn, pool, volume, algorithm, verdicts, is_dry=is_dry)
        return "would be wiped" if is_dry else True

    return _module.run_or_ask("virt.volume_wipe", kwargs, wipe)


optionguard.modules(globals())
