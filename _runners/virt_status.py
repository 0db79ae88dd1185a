"""
Show in about ten lines how the cloud is; nothing is changed.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.ca import store
    from saltvirt.checks.status.master import run

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function
def status(checks=True, quiet=False):
    """
    Show how the cloud is: hosts, VMs, room, checks, certificates, and what is unfinished.

    checks
        Also count what ``virt.doctor``, ``virt.audit`` and ``virt.setup_check`` would find, which
        takes some seconds. Defaults to True.
    quiet
        Show no progress. Defaults to False.

    Nothing is changed, and every hypervisor is asked once for all. Each line that needs attention
    ends with the command that shows more, or mends it. Always succeeds.

    Returns ``{"at", "hosts", "vms", "room", "checks", "certificates", "restart", "unfinished",
    "at_work", "keys_waiting"}``. ``vms`` and ``room`` are of the hosts that answer; ``silent`` and
    ``failed`` of ``hosts`` name the others, with the number of VMs that these had when they last
    answered. ``checks`` is null with ``checks=False``. docs/status.md has all keys.

    CLI Example:

    .. code-block:: bash

        salt-run virt.status
        salt-run virt.status checks=False --out=json
    """
    has_checks = arguments.boolean("checks", checks)
    cloud = Cloud.of(__opts__, __jid_event__, "Status", quiet, is_reading=True)
    return run.status(cloud, store.utc_now(), has_checks=has_checks)
