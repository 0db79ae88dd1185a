"""
Show, define, start, stop and remove storage pools of this hypervisor.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.storage import pools, volumes
    from saltvirt.storage import vmvolumes
    from saltvirt.xml.storage import poolsource

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _source(call):
    return {key: call[f"source_{key}"] for key in poolsource.KEYS}


def pool_capabilities(**kwargs):
    """
    Return the types of storage pools that this host's libvirt supports.

    Returns ``{computed, pool_types}``: ``computed`` is always False, as the data are libvirt's own;
    ``pool_types`` is a list of ``{name, supported, options}``, where ``options`` has ``pool`` and
    ``volume`` with a ``default_format`` and lists such as ``sourceFormatType``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_capabilities
    """
    with _module.connection("virt.pool_capabilities", kwargs, readonly=True) as conn:
        return pools.capabilities(conn)


def list_pools(**kwargs):
    """
    Return the names of all storage pools, sorted.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_pools
    """
    with _module.connection("virt.list_pools", kwargs, readonly=True) as conn:
        return pools.names(conn)


def pool_info(name=None, **kwargs):
    """
    Return information about storage pools.

    name
        The pool's name. By default all.

    Returns ``{pool: {uuid, state, capacity, allocation, free, autostart, persistent, target_path,
    type}}``; sizes in bytes, 1 and 0 for yes and no, a state of ``inactive``, ``building``,
    ``running``, ``degraded`` and ``inaccessible``. Empty if there is no such pool.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_info default
    """
    with _module.connection("virt.pool_info", kwargs, readonly=True) as conn:
        return pools.infos(conn, name)


def pool_get_xml(name, **kwargs):
    """
    Return the XML of a storage pool; the password of its source is never in it.

    name
        The pool's name.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_get_xml default
    """
    with _module.connection("virt.pool_get_xml", kwargs, readonly=True) as conn:
        return pools.xml(conn, name)


def pool_list_volumes(name, **kwargs):
    """
    Return the names of the volumes in a storage pool that runs.

    name
        The pool's name.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_list_volumes default
    """
    with _module.connection("virt.pool_list_volumes", kwargs, readonly=True) as conn:
        return volumes.names(conn, name)


def pool_define(
    name,
    ptype,
    target=None,
    permissions=None,
    source_devices=None,
    source_dir=None,
    source_initiator=None,
    source_adapter=None,
    source_hosts=None,
    source_auth=None,
    source_name=None,
    source_format=None,
    transient=False,
    start=True,
    **kwargs,
):
    """
    Define a storage pool.

    name
        The pool's name.
    ptype
        ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``iscsi-direct``, ``scsi``,
        ``mpath``, ``rbd``, ``sheepdog``, ``gluster``, ``zfs`` or ``vstorage``.
    target
        Absolute path of the folder where the volumes lie, for the types that have one.
    permissions
        ``{mode, owner, group, label}`` of that folder: an octal mode such as ``'0711'``, numbers of
        user and group.
    source_devices
        List of ``{path, part_separator}``, or of paths; of iSCSI the target's qualified name.
    source_dir
        The exported folder, or the name of a share of Windows (``source_format=cifs``).
    source_initiator
        The initiator's qualified name, for iSCSI.
    source_adapter
        ``{type, name, parent, managed, parent_wwnn, parent_wwpn, parent_fabric_wwn, wwnn, wwpn,
        parent_address: {unique_id, address: {domain, bus, slot, function}}}``, for ``scsi``.
    source_hosts
        List of names, each with its port if need be: ``san1:3260``, ``[2001:db8::1]:3260``.
    source_auth
        ``{username, password}``, of Ceph the key in base64: libvirt's secret ``pool_NAME`` is made
        of it, and shown nowhere. Or ``{type, username, secret: {type, value}}`` with an existing
        secret: ``type`` is ``ceph`` or ``chap``, the secret's ``usage`` or ``uuid``.
    source_name
        The volume group, or the pool at its servers. Defaults to the pool's name.
    source_format
        The format of the source; virt.pool_capabilities shows which.
    transient
        Make a pool that runs at once and is gone when it stops. Defaults to False.
    start
        Start it too. Defaults to True.

    Parts of a source that the type does not use are ignored. virt.pool_build makes the folder.
    Returns True; fails and leaves nothing behind if the pool exists, if an argument is missing, or
    with libvirt's message. Undo: virt.pool_stop and virt.pool_undefine.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_define vms dir target=/srv start=False
        salt hyper1 virt.pool_undefine vms
    """
    pool = pools.request_from_call(name, ptype, target, permissions, _source(locals()))
    flags = {"is_transient": arguments.boolean("transient", transient)}
    flags["starts"] = arguments.boolean("start", start)
    with _module.connection("virt.pool_define", kwargs) as conn:
        pools.define(conn, pool, **flags)
    return True


def pool_update(
    name,
    ptype,
    target=None,
    permissions=None,
    source_devices=None,
    source_dir=None,
    source_initiator=None,
    source_adapter=None,
    source_hosts=None,
    source_auth=None,
    source_name=None,
    source_format=None,
    test=False,
    **kwargs,
):
    """
    Change the definition of a storage pool if it differs.

    name, ptype, target, permissions, source_devices, source_dir, source_initiator, source_adapter
        As in virt.pool_define, like the next.
    source_hosts, source_auth, source_name, source_format
        Omitted target, permissions or source stay unchanged. A password is written to the pool's
        secret each time, because the stored one cannot be read.
    test
        Only return whether the definition would change. Defaults to False.

    A running pool keeps its old definition until it is started again. Returns whether it was, or
    would be, changed; fails if there is no such pool, or with libvirt's message. Undo: call it with
    the old values.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_update default dir target=/var/lib/libvirt/images test=True
    """
    pool = pools.request_from_call(name, ptype, target, permissions, _source(locals()))
    with _module.connection("virt.pool_update", kwargs) as conn:
        return pools.update(conn, pool, is_test=arguments.boolean("test", test))


def pool_start(name, **kwargs):
    """
    Start a storage pool.

    name
        The pool's name.

    Returns True; fails with libvirt's message if it runs already. Undo: virt.pool_stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_stop default
        salt hyper1 virt.pool_start default
    """
    with _module.connection("virt.pool_start", kwargs) as conn:
        pools.act(conn, name, "create")
    return True


def pool_build(name, **kwargs):
    """
    Make the folder, volume group or disk label of a stopped storage pool.

    name
        The pool's name.

    Returns True; fails with libvirt's message, such as if a disk is not empty. Undo:
    virt.pool_delete.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_define vms dir target=/srv/vms start=False
        salt hyper1 virt.pool_build vms
        salt hyper1 virt.pool_delete vms
        salt hyper1 virt.pool_undefine vms
    """
    with _module.connection("virt.pool_build", kwargs) as conn:
        pools.act(conn, name, "build")
    return True


def pool_stop(name, **kwargs):
    """
    Stop a storage pool; its content stays, and running VMs keep their disks.

    name
        The pool's name.

    Returns True; fails with libvirt's message if it does not run, or if running VMs use devices of
    a pool of type ``iscsi`` or ``scsi``, which would vanish. Undo: virt.pool_start.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_stop default
        salt hyper1 virt.pool_start default
    """
    with _module.connection("virt.pool_stop", kwargs) as conn:
        volumes.refuse_stop(conn, name)
        pools.act(conn, name, "destroy")
    return True


def pool_undefine(name, **kwargs):
    """
    Remove the definition of a stopped storage pool, and the secret made for it.

    name
        The pool's name.

    Returns True; fails with libvirt's message if it runs. Its volumes stay. Undo: virt.pool_define.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_define vms dir target=/srv start=False
        salt hyper1 virt.pool_undefine vms
    """
    with _module.connection("virt.pool_undefine", kwargs) as conn:
        pools.undefine(conn, name)
    return True


def pool_delete(name, **kwargs):
    """
    Delete the empty folder or the volume group of a stopped storage pool.

    name
        The pool's name.

    Returns True; fails with libvirt's message, such as if a folder is not empty, or if a VM, the
    trash or another host may need a volume of the group. The definition stays. Undo:
    virt.pool_build.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_define vms dir target=/srv/vms start=False
        salt hyper1 virt.pool_build vms
        salt hyper1 virt.pool_delete vms
        salt hyper1 virt.pool_undefine vms
    """
    opened = _module.opened("virt.pool_delete", kwargs)
    with opened as (conn, settings), vmvolumes.hold_host_lock(settings):
        vmvolumes.refuse_group(conn, settings, name)
        pools.act(conn, name, "delete")
    return True


def pool_refresh(name, **kwargs):
    """
    Refresh libvirt's list of the volumes in a running storage pool.

    name
        The pool's name.

    Returns True; fails with libvirt's message.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_refresh default
    """
    with _module.connection("virt.pool_refresh", kwargs) as conn:
        pools.act(conn, name, "refresh")
    return True


def pool_set_autostart(name, state="on", **kwargs):
    """
    Start a storage pool together with its host, or stop doing so.

    name
        The pool's name.
    state
        ``on`` or ``off``. Defaults to ``on``.

    Returns True; fails with libvirt's message. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pool_set_autostart default on
    """
    is_on = arguments.on_off("state", state)
    with _module.connection("virt.pool_set_autostart", kwargs) as conn:
        pools.set_autostart(conn, name, is_on=is_on)
    return True


optionguard.modules(
    globals(),
    harmless="pool_refresh",
)
