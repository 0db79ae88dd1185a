"""
Clone VMs.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.clone.master import cloning
    from saltvirt.vm.create.master import deploy, vmrequest

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_plan")
def clone(source, name, dry_run=False, wait=True, wait_s=None, quiet=False, force=False, **kwargs):
    """
    Make a VM that is a full copy of a stopped one, on the same hypervisor, and wait for its minion.

    source
        The VM to copy; it is not changed.
    name
        The clone's name, its minion id and its host name; once in the whole cloud.
    dry_run
        Return the hypervisor's plan, as ``{host: plan}``, and make nothing. Defaults to False.
    wait
        Wait for the clone's minion. Defaults to True.
    wait_s
        Wait this many seconds at most. Defaults as in ``virt.init``.
    quiet
        Show no progress. Defaults to False.
    force
        Clone although an unresponsive hypervisor had a VM of the clone's name when it last
        answered. Defaults to False.
    kwargs
        Those of the module's ``virt.clone``: ``start`` (True; with False it is made, not started,
        and not waited for), ``autostart``, ``seed``, ``config``, ...

    Returns the same as ``virt.init``; ``warnings`` names what the clone shares with its source.
    Fails with one line and leaves nothing behind, as the module's ``virt.clone``. To move it to
    another hypervisor: virt.migrate. Undo: virt.purge.

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop centos1
        salt-run virt.clone centos1 centos2 seed_method=nocloud wait=False
        salt-run virt.purge centos2
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, name, quiet, is_reading=is_dry)
    terms = vmrequest.parse_terms(cloud.settings, force=force, wait=wait, wait_s=wait_s)
    request = cloning.parse(cloud, source, name, kwargs, terms)
    return (cloning.dry_run if is_dry else deploy.deploy)(cloud, request)
