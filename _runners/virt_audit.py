"""
Check a running cloud against docs/security.md.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.ca import store
    from saltvirt.checks.audit.master import run

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_audit")
def audit():
    """
    Check master and hypervisors against docs/security.md, and name each finding with its fix.

    Nothing is changed, and every hypervisor is queried once. Returns ``{"findings": [], "checked":
    [host]}`` if there are no findings; otherwise fails, with ``findings``, a list of ``{check,
    where, what, fix}``; a hypervisor that could not be checked is a finding too.

    CLI Example:

    .. code-block:: bash

        salt-run virt.audit
    """
    return run.audit(Cloud.of(__opts__), store.utc_now())
