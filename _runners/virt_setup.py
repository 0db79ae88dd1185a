"""
Check the prerequisites of ``virt.init``.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import hostwords
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.checks.setup.master import run

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_audit")
def setup_check(*hosts, host=None):
    """
    Check the prerequisites of deploying VMs, and name each finding with its fix.

    hosts, host
        Check only these hosts; for a host that is not allowed yet, the next step is named. Defaults
        to all allowed hypervisors.

    Nothing is changed, and every hypervisor is queried once. Returns ``{"findings": [], "checked":
    [host], "ready": text}`` if VMs can be deployed. ``findings`` is a list of ``{check, where,
    what, fix, level}`` in the order of fixing; it may then still have hints, and prerequisites of
    moves or of images without a minion. If a prerequisite of VMs is missing, fails, with the same
    ``findings``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.setup_check
    """
    return run.check(Cloud.of(__opts__), hostwords.several(host, hosts))
