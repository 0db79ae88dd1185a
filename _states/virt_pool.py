"""
States of a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt import statereturn
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.storage import poolstates
from saltvirt.storage import vmvolumes

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings(*login: str | None) -> config.HostSettings:
    override = dict(zip(config.CONNECTION, login, strict=True))
    return config.host_settings(__opts__, __pillar__, __grains__, **override)


def _open_connection(*login: str | None) -> Any:
    return connect.open_connection(_settings(*login), readonly=False)


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
) -> dict[str, Any]:
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
    request = poolstates.PoolStateRequest(
        name=name,
        ptype=ptype,
        target=target,
        permissions=permissions,
        source=source,
        is_transient=transient,
        autostart=autostart,
    )
    return _keep_pool(request, _open_connection, connection, username, password)


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
) -> dict[str, Any]:
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
    request = poolstates.PoolStateRequest(
        name=name,
        ptype=ptype,
        target=target,
        permissions=permissions,
        source=source,
        is_transient=transient,
        autostart=autostart,
        runs=True,
    )
    return _keep_pool(request, _open_connection, connection, username, password)


def _keep_pool(
    request: poolstates.PoolStateRequest, open_connection: Any, *login: str | None
) -> dict[str, Any]:
    try:
        arguments.boolean("transient", request.is_transient)
        arguments.boolean("autostart", request.autostart)
        with open_connection(*login) as conn:
            plan = poolstates.plan(conn, request)
            # A secret cannot be read and compared, so it is written each time.
            if not __opts__["test"]:
                poolstates.apply(conn, plan)
    except VirtError as error:
        return statereturn.make_failure(request.name, error, globals())
    done_comment = f"Pool {request.name} {', '.join(plan.parts)}"
    unchanged_comment = f"Pool {request.name} {'already running' if request.runs else 'unchanged'}"
    changes = poolstates.changes(request.name, plan)
    return statereturn.make_return(
        request.name,
        changes,
        is_test=__opts__["test"],
        test_comment=done_comment,
        done_comment=done_comment,
        unchanged_comment=unchanged_comment,
    )


def pool_deleted(
    name: str,
    purge: bool = False,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
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
    changes = poolstates.empty_changes()
    try:
        purges = arguments.boolean("purge", purge)
        settings = _settings(connection, username, password)
        with connect.open_connection(settings, readonly=False) as conn:
            plan = poolstates.plan_deletion(conn, name, purges=purges)
            if plan is None:
                idle = f"Storage pool could not be found: {name}"
                return {"name": name, "changes": {}, "result": True, "comment": idle}
            # Check all volumes first: a pool must not be deleted by half.
            with reservations.host_lock(settings):
                vmvolumes.refuse_deletion(conn, settings, name, plan.volumes)
            if __opts__["test"]:
                changes = poolstates.predict_changes(plan)
            else:
                deletion_guard = vmvolumes.get_deletion_lock(conn, settings, name, plan.volumes)
                poolstates.delete(conn, plan, changes, deletion_guard)
    except VirtError as error:
        failed = statereturn.make_failure(name, f"Failed deleting pool: {error}", globals())
        return {**failed, "changes": changes if any(changes.values()) else {}}
    result = None if __opts__["test"] else True
    return {"name": name, "changes": changes, "result": result, "comment": plan.comment}


def pool_absent(
    name: str,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
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
    try:
        with _open_connection(connection, username, password) as conn:
            plan = poolstates.plan_deletion(conn, name, purges=False)
            if plan is not None and not __opts__["test"]:
                poolstates.delete(conn, plan, poolstates.empty_changes())
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    words = "stopped, undefined" if plan is not None and plan.is_active else "undefined"
    return statereturn.make_return(
        name,
        {} if plan is None else {name: f"Pool {words}"},
        is_test=__opts__["test"],
        test_comment=f"Pool {name} {words}",
        done_comment=f"Pool {name} {words}",
        unchanged_comment=f"there is no pool {name}",
    )


optionguard.states(globals())
