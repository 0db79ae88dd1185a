"""
Grain ``virt_hypervisor``: whether this minion is a host that runs VMs under libvirt.

It is how the runner finds its hypervisors. ``virtual: physical`` would leave out hosts that
are nested or live in containers. Nothing of ``saltvirt`` is imported here: grains stay
loaded in the minion for ever, and would pin the library's code at its first version.
"""

import importlib.util
from pathlib import Path

_SOCKETS = ("libvirt/libvirt-sock", "libvirt/virtqemud-sock")


def virt_hypervisor():
    """Return ``{"virt_hypervisor": bool}``: libvirt's socket and Python module are here."""
    has_socket = any(Path("/run", socket).exists() for socket in _SOCKETS)
    return {"virt_hypervisor": has_socket and importlib.util.find_spec("libvirt") is not None}
