"""
States of the volumes in a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core.errors import VirtError
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt import statereturn
from saltvirt.libvirt import connect
from saltvirt.libvirt.storage import volumes
from saltvirt.xml.storage import storagevolume

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def volume_defined(
    pool: str,
    name: str,
    size: Any,
    allocation: Any = 0,
    format: str | None = None,
    type: str | None = None,
    permissions: Any = None,
    backing_store: Mapping[str, Any] | None = None,
    nocow: bool = False,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
) -> dict[str, Any]:
    """
    Keep a volume in a storage pool that runs.

    pool
        The pool's name.
    name
        The volume's name.
    size
        Its capacity in MiB, or with a unit: ``8192``, ``8g``.
    allocation
        The part that is allocated at once, in MiB. Defaults to 0; in a ``logical`` pool to all.
    format
        ``qcow2``, ``raw``, ...; by default that of the pool's type.
    type
        ``file``, ``block``, ``dir``, ``network``, ``netdir`` or ``ploop``; by default the pool's.
    permissions
        ``{mode, owner, group, label}``: an octal mode, numbers of user and group.
    backing_store
        ``{path, format}`` of the backing file; both are needed.
    nocow
        Switch copy-on-write off, on btrfs. Defaults to False.
    connection, username, password
        Override ``virt:connection``.

    The state fails for an existing volume with another format or base; it does not change another
    capacity, which the comment notes (see virt.volume_resize).
    ``changes`` are ``{"POOL/NAME": {"old": "", "new": "defined"}}``. Undo: virt.volume_delete.

    .. code-block:: yaml

        data:
          virt.volume_defined:
            - pool: default
            - name: data.qcow2
            - format: qcow2
            - size: 8192
    """
    override = {"connection": connection, "username": username, "password": password}
    try:
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
        settings = config.host_settings(__opts__, __pillar__, __grains__, **override)
        with connect.open_connection(settings, readonly=False) as conn:
            old_volume = volumes.find(conn, pool, name)
            if old_volume is not None:
                return _compare(name, old_volume, volume)
            volumes.refuse_unmakeable(conn, pool, volume)
            if not __opts__["test"]:
                volumes.define(conn, pool, volume)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return statereturn.make_return(
        name,
        {f"{pool}/{name}": {"old": "", "new": "defined"}},
        is_test=__opts__["test"],
        test_comment=f"Volume {name} would be defined in pool {pool}",
        done_comment=f"Volume {name} defined in pool {pool}",
        unchanged_comment="",
    )


def _compare(
    name: str, old_volume: storagevolume.Volume, volume: storagevolume.Volume
) -> dict[str, Any]:
    """Return the state's result for an existing volume."""
    if storagevolume.differences(old_volume, volume):
        return statereturn.make_failure(
            name,
            "A volume with the same name but different backing store or format is existing",
        )
    comment = "volume is existing"
    if old_volume.capacity != volume.capacity:
        comment = "The capacity of the volume is different, but no resize performed"
    return {"name": name, "changes": {}, "result": True, "comment": comment}


optionguard.states(globals())
