"""
States of a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt import config, statereturn
from saltvirt.errors import VirtError
from saltvirt.kvm import connect, pools

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def pool_running(
    name: str,
    ptype: str = "dir",
    target: str | None = None,
    source: Mapping[str, Any] | None = None,
    autostart: bool = True,
    **kwargs: Any,
) -> dict[str, Any]:
    """
    Keep a storage pool defined and running.

    name
        The pool's name.
    ptype
        ``dir`` (default), ``fs`` or ``netfs``.
    target
        Absolute path where its volumes lie.
    source
        ``{host, dir, device, format}``, for ``fs`` and ``netfs``.
    autostart
        Start it with the host. Defaults to True.

    A pool of that name with another type or target is refused, not replaced. Undo:
    ``virsh pool-destroy`` and ``virsh pool-undefine``; volumes stay.

    .. code-block:: yaml

        default:
          virt.pool_running:
            - target: /var/lib/libvirt/images
    """
    try:
        xml = pools.build_xml(name, ptype, target, source or {})
        settings = config.for_call("virt.pool_running", kwargs, __opts__, __pillar__, __grains__)
        with connect.opened(settings, readonly=False) as conn:
            changes = pools.plan(conn, name, ptype, target, autostart=autostart)
            if changes and not __opts__["test"]:
                pools.apply(conn, name, xml, changes)
    except VirtError as error:
        return statereturn.failed(name, error)
    return statereturn.of(
        name,
        changes,
        is_test=__opts__["test"],
        would=f"pool {name} would be set up",
        done=f"pool {name} is set up",
        idle=f"pool {name} is in order",
    )
