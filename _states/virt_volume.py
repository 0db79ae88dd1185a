"""
States of the volumes in a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt.storage import volumes
from saltvirt.xml.storage import storagevolume

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


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
) -> StateChange:
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
    login = hostmodule.login(locals())
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
    with _module.opened("virt.volume_defined", login) as (conn, _settings):
        old_volume = volumes.find(conn, pool, name)
        if old_volume is not None:
            return _compare(old_volume, volume)
        volumes.refuse_unmakeable(conn, pool, volume)
        if not _module.is_test:
            volumes.define(conn, pool, volume)
    return StateChange(
        {f"{pool}/{name}": {"old": "", "new": "defined"}},
        f"Volume {name} would be defined in pool {pool}",
        done=f"Volume {name} defined in pool {pool}",
    )


def _compare(old_volume: storagevolume.Volume, volume: storagevolume.Volume) -> StateChange:
    """Return the state's result for an existing volume."""
    if storagevolume.differences(old_volume, volume):
        raise BadArgument(
            "A volume with the same name but different backing store or format is existing"
        )
    if old_volume.capacity != volume.capacity:
        return StateChange({}, "The capacity of the volume is different, but no resize performed")
    return StateChange({}, "volume is existing")


optionguard.states(globals())
