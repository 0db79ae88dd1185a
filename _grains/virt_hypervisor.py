"""
Grain ``virt_hypervisor``: whether this minion is a host that runs VMs under libvirt.

It is a hint for whoever says on the master who is a hypervisor, and decides nothing: any minion can
say it. ``virtual: physical`` would leave out hosts that are nested or live in containers. It looks
for what is installed, not for what runs. Nothing of ``saltvirt`` is imported here: grains stay
loaded in the minion for ever, and would pin the library's code.
"""

import importlib.util
import os
import shutil

_DAEMONS = ("libvirtd", "virtqemud")
_FOLDERS = os.pathsep.join(("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/sbin"))


def virt_hypervisor():
    """Return ``{"virt_hypervisor": bool}``: a libvirt daemon and its Python module are here."""
    has_daemon = any(shutil.which(daemon, path=_FOLDERS) for daemon in _DAEMONS)
    return {"virt_hypervisor": has_daemon and importlib.util.find_spec("libvirt") is not None}
