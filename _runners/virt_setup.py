"""
Say what is missing between an installed Salt Virt and a ``virt.init`` that works.

.. versionadded:: 1.0.0
"""

from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.fleet.setup import run

__virtualname__ = "virt"


def __virtual__():
    """Load always: a master needs no libvirt."""
    return __virtualname__


@runner_function(outputter="virt_audit")
def setup_check(*hosts):
    """
    Look at master and hypervisors, and name what VMs need and is missing, with the fix.

    hosts
        The only ones to look at; of one that is not allowed its next step is said. Defaults to all
        that are allowed.

    Nothing is changed, and every hypervisor is asked once. Returns ``{"findings": [], "checked":
    [host], "ready": text}`` if everything is there; what is only for moving VMs, for images without
    a minion, or a hint may be in ``findings``. If anything is missing that VMs need, fails, with
    ``findings``, a list of ``{check, where, what, fix, level}`` in the order of need.

    CLI Example:

    .. code-block:: bash

        salt-run virt.setup_check
    """
    return run.check(Cloud.of(__opts__), hosts)
