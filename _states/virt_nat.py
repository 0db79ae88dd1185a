"""
The state of a hypervisor's NAT network, by which VMs reach other networks without a bridge.

.. versionadded:: 1.0.0
"""

from typing import Any

from saltvirt.core.errors import VirtError
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt import statereturn
from saltvirt.libvirt import connect, nat

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def nat_running(name: str, subnet: str = nat.SUBNET, **kwargs: Any) -> dict[str, Any]:
    """
    Keep a NAT network of libvirt active, and have it started with the host.

    name
        The network's name; ``default`` is the one that ``nic=nat`` uses.
    subnet
        The subnet of a new network. Defaults to libvirt's own,
        ``192.168.122.0/24``.

    The definition of an existing network is not changed. Fails with libvirt's message if it cannot
    be started, for example because the host's own network is the same. Undo: ``virsh net-destroy
    NAME`` and ``virsh net-autostart NAME --disable``.

    .. code-block:: yaml

        default:
          virt.nat_running
    """
    try:
        xml = nat.build_xml(name, subnet)
        settings = config.for_call("virt.nat_running", kwargs, __opts__, __pillar__, __grains__)
        with connect.open_connection(settings, readonly=False) as conn:
            changes = nat.plan(conn, name, subnet)
            if changes and not __opts__["test"]:
                nat.apply(conn, name, xml, changes)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return statereturn.make_return(
        name,
        changes,
        is_test=__opts__["test"],
        test_comment=f"network {name} would be set up",
        done_comment=f"network {name} is set up",
        unchanged_comment=f"network {name} is in order",
    )


optionguard.states(globals())
