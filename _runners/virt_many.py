"""
Deploy many VMs at once: one query of the hypervisors, one plan, parallel builds.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.create.master import vmrequest
    from saltvirt.vm.create.master.many import manyrequest, run

__virtualname__ = "virt"
__virtual__ = load_always


def _requests(name, count, first, vms, defaults, terms):
    """Return the requests of a call, from a pattern or a list."""
    if (name is None) == (vms is None):
        raise BadArgument("name", "give a pattern such as 'web{}' with its count, or a list as vms")
    if vms is not None:
        if count is not None:
            raise BadArgument("count", "goes with a name pattern; vms is a list of all VMs")
        return manyrequest.parse_requests(manyrequest.parse_list(vms, defaults), terms)
    names = manyrequest.number_names(name, count, first)
    return manyrequest.parse_requests([{**defaults, "name": vm_name} for vm_name in names], terms)


@runner_function(outputter="virt_moves")
def init_many(
    name=None,
    count=None,
    cpu=None,
    mem=None,
    image=None,
    vms=None,
    first=1,
    host=None,
    where=None,
    placement=None,
    spread_over=None,
    headroom=None,
    per_host=None,
    max_parallel=None,
    all_or_nothing=False,
    dry_run=False,
    wait=True,
    wait_s=None,
    force=False,
    quiet=False,
    **kwargs,
):
    """
    Deploy many VMs: query all hypervisors once, plan all VMs, then build them.

    name
        A pattern with ``{}`` for the number: ``web{}``; ``web{:03}`` for ``web001``.
    count
        How many of them, from 1 to 500.
    cpu, mem, image
        As in virt.init, of each VM.
    vms
        Instead of a pattern, a list of VMs: names, or mappings with ``name`` and the arguments that
        differ for this VM, such as ``cpu``, ``mem`` or ``image``.
    first
        The first number. Defaults to 1.
    host, where, placement, spread_over, headroom, force
        As in virt.init, for all of them.
    per_host
        Parallel builds on one host. Defaults to ``virt:init_per_host`` of the master,
        else to 2.
    max_parallel
        Parallel builds in all, 64 at most. Defaults to ``virt:init_parallel`` of the
        master, else to 16.
    all_or_nothing
        If a VM fails, remove those that this call has built; older disks stay. If a VM has no host,
        build none. Defaults to False.
    dry_run
        Only return the planned hosts. Defaults to False.
    wait
        Wait for the minions of all VMs at once. A VM without an answer has failed, and stays
        (unless ``all_or_nothing`` is given). Defaults to True.
    wait_s
        As in virt.init, of each VM from the end of its build.
    quiet
        Show no progress. Defaults to False.

    All other keyword arguments of the module's ``virt.init`` are passed on; ``machine`` defaults as
    in virt.init.

    Existing VMs with the same CPUs, memory and groups are left alone: a repeated call builds the
    missing ones. If another VM or minion has one of the names, the call fails before it builds
    anything. After an interruption no more builds begin.

    Returns ``{"built": {name: host}, "exists": {name: host}, "failed": {name: reason}}``, and if
    there are any, ``warnings``, ``seconds`` (until each minion answered), and after
    ``all_or_nothing`` ``purged`` and ``left`` (VMs that could not be purged); with ``dry_run=True``
    ``plan`` (``{name: host}``), ``exists`` and ``failed``, and ``warnings`` of VMs without an
    image. If VMs have no host, ``helps`` lists remedies. Exit code 1 if a VM is not built. Undo:
    virt.purge of each.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init_many 'web{}' 3 1 128 salt://images/tiny.qcow2 dry_run=True
        salt-run virt.init_many 'web{}' 3 1 128 salt://images/tiny.qcow2 wait=False
        salt-run virt.init_many vms='[db1, {name: db2, mem: 256}]' cpu=1 mem=128 dry_run=True
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, "many", quiet, is_reading=is_dry)
    terms = {"host": host, "where": where, "force": force, "wait": wait, "wait_s": wait_s}
    terms |= {"placement": placement, "spread_over": spread_over, "headroom": headroom}
    defaults = {**kwargs, "cpu": cpu, "mem": mem, "image": image}
    settings = cloud.settings
    per_host = settings.init_per_host if per_host is None else per_host
    max_parallel = settings.init_parallel if max_parallel is None else max_parallel
    call = manyrequest.Call(
        requests=_requests(
            name, count, first, vms, defaults, vmrequest.parse_terms(settings, **terms)
        ),
        per_host=arguments.whole_number("per_host", per_host, most=64),
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=64),
        all_or_nothing=arguments.boolean("all_or_nothing", all_or_nothing),
    )
    if is_dry:
        return run.dry_run(cloud, call)
    return run.deploy_many(cloud, call)
