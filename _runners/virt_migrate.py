"""
Move VMs between hypervisors, and empty whole hosts.

.. versionadded:: 1.0.0
"""

from saltvirt import config
from saltvirt.fleet import migrate as moving
from saltvirt.fleet import progress
from saltvirt.fleet.report import reported

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


@reported
def migrate(name, target=None, dry_run=False, quiet=False, **kwargs):
    """
    Move a VM to another hypervisor, encrypted, without its guest noticing.

    name
        The VM's name.
    target
        The hypervisor that takes it. Defaults to the one that suits it best.
    dry_run
        Return what would be done, or fail with every reason why not. Defaults to False.
    quiet
        Show no progress. Defaults to False.
    kwargs
        Those of the module's ``virt.migrate``: ``max_bandwidth``, ``postcopy``, ``limit_s``, ...

    Running, paused and stopped VMs. Disks travel unless they are in ``virt:shared_paths``: of an
    overlay only the VM's own part, its image is taken from the target's cache. Returns ``{"name",
    "from", "to", "total_ms", "downtime_ms", "memory_bytes", "disk_bytes"}``. Fails with one line
    and the VM where it was. Undo: move it back.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate centos1 dry_run=True
        salt-run virt.migrate centos1 hyper2
        salt-run virt.migrate centos1
    """
    settings = config.master_settings(__opts__)
    say = progress.teller(__opts__, __jid_event__, name, quiet)
    if dry_run:
        return moving.dry_run(__opts__, settings, name, target, say)
    return moving.migrate(__opts__, settings, name, target, kwargs, say)
