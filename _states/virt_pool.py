"""
States of a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt.storage import poolstates
from saltvirt.storage import vmvolumes

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def pool_defined(
    name: str,
    ptype: str | None = None,
    target: str | None = None,
    permissions: Any = None,
    source: Mapping[str, Any] | None = None,
    transient: bool = False,
    autostart: bool = True,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> StateChange:
    """
    Keep a storage pool defined; do not start or stop it.

    name
        The pool's name.
    ptype
        ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``iscsi-direct``, ``scsi``,
        ``mpath``, ``rbd``, ``sheepdog``, ``gluster``, ``zfs`` or ``vstorage``;
        ``virt.pool_capabilities`` lists the types of this host. Defaults to that of the existing
        pool, and to ``dir`` for a new one with a target.
    target
        Absolute path of the folder where the volumes lie, for the types that have one.
    permissions
        ``{mode, owner, group, label}`` of that folder: an octal mode, numbers of user and group.
    source
        ``{hosts, devices, dir, name, format, auth, adapter, initiator}``, as far as the type uses
        them; see virt.pool_define. With ``auth: {username, password}`` the password becomes
        libvirt's secret ``pool_NAME``, is written each time, and is shown nowhere.
    transient
        Make a pool that runs at once and is gone when it stops. Defaults to False.
    autostart
        Start it with the host. Defaults to True; a transient pool cannot.
    connection, username, password
        Override ``virt:connection``.

    Omitted settings stay. A running pool keeps its old definition until it is started again.
    ``changes`` are ``{name: "Pool defined, marked for autostart"}`` or ``Pool updated``, with
    ``built`` and ``autostart flag changed``. Undo: virt.pool_absent; volumes stay.

    .. code-block:: yaml

        share:
          virt.pool_defined:
            - ptype: netfs
            - target: /mnt/share
            - source:
                hosts: [nas.example.com]
                dir: /export/vms
                format: nfs
    """
    return _keep_pool("virt.pool_defined", locals(), runs=False)


def pool_running(
    name: str,
    ptype: str | None = None,
    target: str | None = None,
    permissions: Any = None,
    source: Mapping[str, Any] | None = None,
    transient: bool = False,
    autostart: bool = True,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> StateChange:
    """
    Keep a storage pool defined and running.

    name, ptype, target, permissions, source, transient, autostart
        As in virt.pool_defined.
    connection, username, password
        Override ``virt:connection``.

    To be changed, a running pool is stopped and started again; running VMs keep their disks open
    meanwhile. If that fails, the old definition is restored and started. ``changes`` are
    ``{name: "Pool defined, marked for autostart, started"}``, ``Pool updated, built, restarted`` or
    ``Pool started``. Undo: virt.pool_absent; volumes stay.

    .. code-block:: yaml

        default:
          virt.pool_running:
            - ptype: dir
            - target: /var/lib/libvirt/images
            - permissions:
                mode: '0711'
    """
    return _keep_pool("virt.pool_running", locals(), runs=True)


def _keep_pool(function: str, state_arguments: Mapping[str, Any], *, runs: bool) -> StateChange:
    request = poolstates.PoolStateRequest(
        name=state_arguments["name"],
        ptype=state_arguments["ptype"],
        target=state_arguments["target"],
        permissions=state_arguments["permissions"],
        source=state_arguments["source"],
        is_transient=arguments.boolean("transient", state_arguments["transient"]),
        autostart=arguments.boolean("autostart", state_arguments["autostart"]),
        runs=runs,
    )
    with _module.opened(function, hostmodule.login(state_arguments)) as (conn, _settings):
        plan = poolstates.plan(conn, request)
        # A secret cannot be read and compared, so it is written each time.
        if not _module.is_test:
            poolstates.apply(conn, plan)
    return StateChange(
        poolstates.changes(request.name, plan),
        f"Pool {request.name} {', '.join(plan.parts)}",
        unchanged=f"Pool {request.name} {'already running' if request.runs else 'unchanged'}",
    )


def pool_deleted(
    name: str,
    purge: bool = False,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> StateChange:
    """
    Stop and undefine a storage pool; ``purge`` also deletes its content.

    name
        The pool's name.
    purge
        Delete its volumes too, for ever, and its folder or volume group; the volumes are known only
        while it runs. Refused if a VM that runs or has a saved state uses a volume (also on another
        host that shares its file), if a disk or a snapshot of a VM here, or a disk in the trash, is
        based on one, or if one was just made for an arriving VM. Defaults to False: the content
        stays.
    connection, username, password
        Override ``virt:connection``.

    ``changes`` are ``{stopped, deleted, undefined, deleted_volumes}``: three booleans and the names
    of volumes; the comment names steps that the type does not support. ``purge`` has no undo; for
    the rest it is virt.pool_running.

    .. code-block:: yaml

        old-pool:
          virt.pool_deleted:
            - purge: True
    """
    changes, is_test = poolstates.empty_changes(), _module.is_test
    login = hostmodule.login(locals())
    try:
        purges = arguments.boolean("purge", purge)
        with _module.opened("virt.pool_deleted", login) as (conn, settings):
            plan = poolstates.plan_deletion(conn, name, purges=purges)
            if plan is None:
                return StateChange({}, f"Storage pool could not be found: {name}")
            # Check all volumes first: a pool must not be deleted by half.
            with vmvolumes.hold_host_lock(settings):
                vmvolumes.refuse_deletion(conn, settings, name, plan.volumes)
            if is_test:
                changes = poolstates.predict_changes(plan)
            else:
                deletion_guard = vmvolumes.get_deletion_lock(conn, settings, name, plan.volumes)
                poolstates.delete(conn, plan, changes, deletion_guard)
    except VirtError as error:
        changes_made = changes if any(changes.values()) else {}
        return StateChange(changes_made, "", failure=f"Failed deleting pool: {error}")
    return StateChange(changes, plan.comment)


def pool_absent(
    name: str,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> StateChange:
    """
    Stop and undefine a storage pool, with the secret made for it.

    name
        The pool's name.
    connection, username, password
        Override ``virt:connection``.

    The content of the pool stays; ``virt.pool_deleted`` with ``purge`` deletes it. ``changes`` are
    ``{name: "Pool stopped, undefined"}``. Undo: virt.pool_running.

    .. code-block:: yaml

        old-pool:
          virt.pool_absent
    """
    with _module.opened("virt.pool_absent", hostmodule.login(locals())) as (conn, _settings):
        plan = poolstates.plan_deletion(conn, name, purges=False)
        if plan is not None and not _module.is_test:
            poolstates.delete(conn, plan, poolstates.empty_changes())
    if plan is None:
        return StateChange({}, f"there is no pool {name}")
    words = "stopped, undefined" if plan.is_active else "undefined"
    return StateChange({name: f"Pool {words}"}, f"Pool {name} {words}")


optionguard.states(globals())
