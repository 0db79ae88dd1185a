"""
Grain ``virt_hypervisor``: whether this minion is a host that runs VMs under libvirt.

It is a hint for whoever says on the master who is a hypervisor, and decides nothing: any minion can
say it. ``virtual: physical`` would leave out hosts that are nested or live in containers. It looks
for what is installed, not for what runs. Grains are read in the minion itself, from which its jobs
are forked: on such a host it has the library imported there (``saltvirt/preload.py``).
"""

import importlib.machinery
import importlib.util
import logging
import os
import shutil
import sys
from pathlib import Path

_log = logging.getLogger(__name__)
_DAEMONS = ("libvirtd", "virtqemud")
_FOLDERS = os.pathsep.join(("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/sbin"))


def virt_hypervisor():
    """Return ``{"virt_hypervisor": bool}``: a libvirt daemon and its Python module are here."""
    has_daemon = any(shutil.which(daemon, path=_FOLDERS) for daemon in _DAEMONS)
    is_host = has_daemon and importlib.util.find_spec("libvirt") is not None
    # salt-call does one job, and threads would do theirs in the minion's own process.
    if is_host and __opts__.get("__cli") == "salt-minion" and __opts__.get("multiprocessing"):
        _preload(os.path.join(__opts__["extension_modules"], "utils"))
    return {"virt_hypervisor": is_host}


def _preload(folder):
    """Have the library in this process, for those that are forked from it."""
    sys.path.append(folder)
    try:
        # Not by an import of the package, of which this must be no part.
        package_spec = importlib.machinery.PathFinder.find_spec("saltvirt")
        if package_spec is not None:
            path = Path(package_spec.origin).with_name("preload.py")
            spec = importlib.util.spec_from_file_location("salt_virt_preload", path)
            preload = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(preload)
            preload.begin()
    except Exception as exc:  # noqa: BLE001 - whatever it is, a job that imports it says so
        _log.debug("saltvirt is not in the minion's memory: %s", exc)
    finally:
        sys.path.remove(folder)
