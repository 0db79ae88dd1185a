"""
States of a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt import arguments, config, optionguard, statereturn
from saltvirt.errors import VirtError
from saltvirt.kvm import connect, poolstates
from saltvirt.ops import ownvolumes

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings(*where: str | None) -> config.HostSettings:
    override = dict(zip(config.CONNECTION, where, strict=True))
    return config.host_settings(__opts__, __pillar__, __grains__, **override)


def _opened(*where: str | None) -> Any:
    return connect.opened(_settings(*where), readonly=False)


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
    Keep a storage pool defined as it is said here; whether it runs is left alone.

    name
        The pool's name.
    ptype
        ``dir``, ``fs``, ``netfs``, ``logical``, ``disk``, ``iscsi``, ``iscsi-direct``, ``scsi``,
        ``mpath``, ``rbd``, ``sheepdog``, ``gluster``, ``zfs`` or ``vstorage``; what this host can
        have says ``virt.pool_capabilities``. By default that of the pool that is there, and
        ``dir`` of a new one with a target.
    target
        Absolute path of the folder where the volumes lie, for the types that have one.
    permissions
        ``{mode, owner, group, label}`` of that folder: an octal mode, numbers of user and group.
    source
        ``{hosts, devices, dir, name, format, auth, adapter, initiator}``, what the type takes of
        it; see virt.pool_define. With ``auth: {username, password}`` the password becomes
        libvirt's secret ``pool_NAME``, is put there each time, and is shown nowhere.
    transient
        Make a pool that is gone when it stops; it runs as soon as it is there. Defaults to False.
    autostart
        Start it with the host. Defaults to True; a transient pool cannot.
    connection, username, password
        Another libvirt than ``virt:connection`` says.

    What is not said stays as it is defined. A pool that runs goes on as it was until it is started
    again. ``changes`` are ``{name: "Pool defined, marked for autostart"}`` or ``Pool updated``,
    with ``built`` and ``autostart flag changed``. Undo: virt.pool_absent; volumes stay.

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
    asked = poolstates.Asked(
        name=name,
        ptype=ptype,
        target=target,
        permissions=permissions,
        source=source,
        is_transient=transient,
        autostart=autostart,
    )
    return _kept(asked, _opened, connection, username, password)


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
    Keep a storage pool defined as it is said here, and running.

    name, ptype, target, permissions, source, transient, autostart
        As of virt.pool_defined.
    connection, username, password
        Another libvirt than ``virt:connection`` says.

    A pool that runs and is to be changed is stopped and started again; VMs that run keep their
    disks open meanwhile. If that fails it is defined and started as it was. ``changes`` are
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
    asked = poolstates.Asked(
        name=name,
        ptype=ptype,
        target=target,
        permissions=permissions,
        source=source,
        is_transient=transient,
        autostart=autostart,
        runs=True,
    )
    return _kept(asked, _opened, connection, username, password)


def _kept(asked: poolstates.Asked, opened: Any, *where: str | None) -> dict[str, Any]:
    try:
        arguments.boolean("transient", asked.is_transient)
        arguments.boolean("autostart", asked.autostart)
        with opened(*where) as conn:
            todo = poolstates.plan(conn, asked)
            # What a secret holds cannot be read, so it is put there each time.
            if not __opts__["test"]:
                poolstates.apply(conn, todo)
    except VirtError as error:
        return statereturn.failed(asked.name, error, globals())
    done = f"Pool {asked.name} {', '.join(todo.parts)}"
    idle = f"Pool {asked.name} {'already running' if asked.runs else 'unchanged'}"
    changes = poolstates.changes(asked.name, todo)
    return statereturn.of(
        asked.name, changes, is_test=__opts__["test"], would=done, done=done, idle=idle
    )


def pool_deleted(
    name: str,
    purge: bool = False,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
    """
    Stop and undefine a storage pool, with ``purge`` with all that is in it.

    name
        The pool's name.
    purge
        Delete its volumes too, for ever, and its folder or volume group. They are known only while
        it runs. Refused if a VM that runs, or has a saved state, uses one, also on another host
        that shares its file, if a disk or a snapshot of any VM here, or a disk in the trash, is
        based on one, or if one is just made for a VM that comes. Defaults to False: what is in it
        stays.
    connection, username, password
        Another libvirt than ``virt:connection`` says.

    ``changes`` are ``{stopped, deleted, undefined, deleted_volumes}``: three of True and False, and
    the names of volumes; what a type cannot do is in the comment. There is no undo of ``purge``;
    of the rest it is virt.pool_running.

    .. code-block:: yaml

        old-pool:
          virt.pool_deleted:
            - purge: True
    """
    done = poolstates.nothing_done()
    try:
        purges = arguments.boolean("purge", purge)
        settings = _settings(connection, username, password)
        with connect.opened(settings, readonly=False) as conn:
            todo = poolstates.plan_deletion(conn, name, purges=purges)
            if todo is None:
                idle = f"Storage pool could not be found: {name}"
                return {"name": name, "changes": {}, "result": True, "comment": idle}
            # Before anything is done: a pool is not to go by half.
            with ownvolumes.none_begun(settings):
                ownvolumes.refuse_deletion(conn, settings, name, todo.volumes)
            if __opts__["test"]:
                done = poolstates.predicted(todo)
            else:
                alone = ownvolumes.deleting(conn, settings, name, todo.volumes)
                poolstates.delete(conn, todo, done, alone)
    except VirtError as error:
        failed = statereturn.failed(name, f"Failed deleting pool: {error}", globals())
        return {**failed, "changes": done if any(done.values()) else {}}
    result = None if __opts__["test"] else True
    return {"name": name, "changes": done, "result": result, "comment": todo.comment}


def pool_absent(
    name: str,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
    """
    Have no storage pool of a name: stopped, undefined, with the secret made for it.

    name
        The pool's name.
    connection, username, password
        Another libvirt than ``virt:connection`` says.

    What is in the pool stays; ``virt.pool_deleted`` with ``purge`` deletes it. ``changes`` are
    ``{name: "Pool stopped, undefined"}``. Undo: virt.pool_running.

    .. code-block:: yaml

        old-pool:
          virt.pool_absent
    """
    try:
        with _opened(connection, username, password) as conn:
            todo = poolstates.plan_deletion(conn, name, purges=False)
            if todo is not None and not __opts__["test"]:
                poolstates.delete(conn, todo, poolstates.nothing_done())
    except VirtError as error:
        return statereturn.failed(name, error, globals())
    words = "stopped, undefined" if todo is not None and todo.is_active else "undefined"
    return statereturn.of(
        name,
        {} if todo is None else {name: f"Pool {words}"},
        is_test=__opts__["test"],
        would=f"Pool {name} {words}",
        done=f"Pool {name} {words}",
        idle=f"there is no pool {name}",
    )


optionguard.states(globals())
