"""
Check a running cloud against docs/security.md.

.. versionadded:: 1.0.0
"""

from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

run = Later("saltvirt.fleet.audit.run")
store = Later("saltvirt.pki.store")

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


@runner_function(outputter="virt_audit")
def audit():
    """
    Look at master and hypervisors, and name what falls short of docs/security.md, with the fix.

    Nothing is changed, and every hypervisor is asked once. Returns ``{"findings": [], "checked":
    [host]}`` if nothing falls short. If anything does, fails, with ``findings``, a list of
    ``{check, where, what, fix}``; a hypervisor that could not be looked at is a finding too.

    CLI Example:

    .. code-block:: bash

        salt-run virt.audit
    """
    return run.audit(Cloud.of(__opts__), store.utc_now())
