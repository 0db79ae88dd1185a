"""
Lead an operator through what happens to a hypervisor; nothing is changed.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.migration.master import hostlost

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_lost")
def host_lost(host, quiet=False):
    """
    Show what a host had that does not come back, and what to type, in one order.

    host
        The hypervisor's id; one that is shut out, or has no key any more, too.
    quiet
        Show no progress. Defaults to False.

    Nothing is changed. Returns ``{"host", "state", "vms": {name: {"cpu", "mem_mib",
    "shared_disks": {path: [host]}, "open": [path], "also_on": [host]}}, "moves": {name: hosts},
    "steps": [{"step", "commands"}]}``, and ``unasked`` (``{host: reason}``) of other hosts that did
    not answer. ``vms`` are those that the host had when it last answered; ``cpu`` and ``mem_mib``
    are as in the last whole ``virt.list``, None if that had not the VM; ``shared_disks`` are their
    disk files that other hosts see, and ``open`` those that a program has open: make sure that no
    VM runs there. ``steps`` are for you to do, one after the other; CPUS, MIB and IMAGE stand for
    what you put in.

    CLI Example:

    .. code-block:: bash

        salt-run virt.host_lost hyper3
    """
    cloud = Cloud.of(__opts__, __jid_event__, str(host), quiet, is_reading=True)
    return hostlost.report(cloud, host)
