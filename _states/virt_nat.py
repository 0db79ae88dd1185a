"""
The state of a hypervisor's NAT network, by which VMs reach other networks without a bridge.

.. versionadded:: 1.0.0
"""

from typing import Any

from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt import nat

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def nat_running(name: str, subnet: str = nat.SUBNET, **kwargs: Any) -> StateChange:
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
    xml = nat.build_xml(name, subnet)
    with _module.opened("virt.nat_running", kwargs) as (conn, _settings):
        changes = nat.plan(conn, name, subnet)
        if changes and not _module.is_test:
            nat.apply(conn, name, xml, changes)
    return StateChange(
        changes,
        f"network {name} would be set up",
        done=f"network {name} is set up",
        unchanged=f"network {name} is in order",
    )


optionguard.states(globals())
