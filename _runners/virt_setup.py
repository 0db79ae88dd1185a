"""
Say what is missing between an installed Salt Virt and a ``virt.init`` that works.

.. versionadded:: 1.0.0
"""

from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

run = Later("saltvirt.fleet.setup.run")

__virtualname__ = "virt"


def __virtual__():
    """Load always: a master needs no libvirt."""
    return __virtualname__


@runner_function(outputter="virt_audit")
def setup_check(*hosts):
    """
    Name what the master and the hypervisors lack before VMs can be deployed, with the fix.

    hosts
        Check only these hosts. If one is not allowed yet, its next step is named. Defaults to all
        hypervisors that are allowed.

    Nothing is changed, and every hypervisor is asked once. Returns ``{"findings": [], "checked":
    [host], "ready": text}`` if nothing is missing that VMs need. ``findings`` is a list of
    ``{check, where, what, fix, level}`` in the order in which to mend them, and may then still have
    what moving VMs or images without a minion need, and hints. If anything is missing that VMs
    need, fails, with the same ``findings``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.setup_check
    """
    return run.check(Cloud.of(__opts__), hosts)
