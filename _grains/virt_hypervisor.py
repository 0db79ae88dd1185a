"""
Grain ``virt_hypervisor``: whether this minion is a host that runs VMs under libvirt.

The grain is a hint for the operator of the master and grants nothing: any minion can set it.
``virtual: physical`` would omit nested hosts and hosts in containers. Installed programs count,
not running ones. Salt reads grains in the minion's process, which forks its jobs: on a host, the
grain therefore preloads the library there (``saltvirt/core/salt/preload.py``).
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
    """Return ``{"virt_hypervisor": bool}``: whether a libvirt daemon and module are installed."""
    has_daemon = any(shutil.which(daemon, path=_FOLDERS) for daemon in _DAEMONS)
    is_host = has_daemon and importlib.util.find_spec("libvirt") is not None
    # Not for salt-call, which runs one job, nor for minions that run jobs in threads.
    if is_host and __opts__.get("__cli") == "salt-minion" and __opts__.get("multiprocessing"):
        _preload(os.path.join(__opts__["extension_modules"], "utils"))
    return {"virt_hypervisor": is_host}


def _preload(folder):
    """Preload the library into this process, for the jobs that are forked from it."""
    sys.path.append(folder)
    try:
        # Load the file apart, not as a part of the package.
        package_spec = importlib.machinery.PathFinder.find_spec("saltvirt")
        if package_spec is not None:
            path = Path(package_spec.origin).parent / "core/salt/preload.py"
            spec = importlib.util.spec_from_file_location("salt_virt_preload", path)
            preload = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(preload)
            preload.begin()
    except Exception as exc:  # noqa: BLE001 - jobs that import the library report the error
        _log.debug("saltvirt is not in the minion's memory: %s", exc)
    finally:
        sys.path.remove(folder)
