"""
States of a hypervisor's storage pools.

.. versionadded:: 1.0.0
"""

from saltvirt import config
from saltvirt.errors import VirtError
from saltvirt.kvm import connect, pools

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def pool_running(name, ptype="dir", target=None, source=None, autostart=True, **kwargs):
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
    ret = {"name": name, "changes": {}, "result": False, "comment": ""}
    try:
        xml = pools.build_xml(name, ptype, target, source or {})
        settings = config.for_call("virt.pool_running", kwargs, __opts__, __pillar__, __grains__)
        with connect.opened(settings, readonly=False) as conn:
            ret["changes"] = pools.plan(conn, name, ptype, target, autostart=autostart)
            if ret["changes"] and not __opts__["test"]:
                pools.apply(conn, name, xml, ret["changes"])
    except VirtError as error:
        return {**ret, "changes": {}, "comment": str(error)}
    done = "would be set up" if __opts__["test"] else "is set up"
    comment = f"pool {name} {done}" if ret["changes"] else f"pool {name} is in order"
    result = None if __opts__["test"] and ret["changes"] else True
    return {**ret, "result": result, "comment": comment}
