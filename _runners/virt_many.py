"""
Deploy many VMs at once: one look at the hypervisors, one plan, builds side by side.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

asked = Later("saltvirt.fleet.many.asked")
outcome = Later("saltvirt.fleet.many.outcome")
run = Later("saltvirt.fleet.many.run")

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


def _requests(name, count, first, vms, defaults, common_fields):
    """Return what is asked for: a pattern, or a list."""
    if common_fields["wait_s"] is not None:
        common_fields["wait_s"] = arguments.whole_number(
            "wait_s", common_fields["wait_s"], least=0, most=86400
        )
    common_fields["force"] = arguments.boolean("force", common_fields["force"])
    if (name is None) == (vms is None):
        raise BadArgument("name", "give a pattern such as 'web{}' with its count, or a list as vms")
    if vms is not None:
        if count is not None:
            raise BadArgument("count", "goes with a name pattern; vms is a list of all VMs")
        return asked.parse_requests(asked.parse_list(vms, defaults), common_fields)
    names = asked.number_names(name, count, first)
    return asked.parse_requests([{**defaults, "name": vm_name} for vm_name in names], common_fields)


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
    Deploy many VMs: all hypervisors are asked once, and all VMs are planned before one is built.

    name
        A pattern with ``{}`` where the number goes: ``web{}``; ``web{:03}`` for ``web001``.
    count
        How many of them, from 1 to 500.
    cpu, mem, image
        As in virt.init, of each VM.
    vms
        Instead of a pattern, a list of VMs: names, or mappings with ``name``, and ``cpu``, ``mem``,
        ``image`` and all that is different from the others.
    first
        The first number. Defaults to 1.
    host, where, placement, spread_over, headroom, force
        As in virt.init, for all of them.
    per_host
        How many are built at a time on one host. Defaults to ``virt:init_per_host`` of the master,
        else to 2.
    max_parallel
        How many are built at a time in all, 64 at most. Defaults to ``virt:init_parallel`` of the
        master, else to 16.
    all_or_nothing
        If one fails, take back those that this call has built: disks that were there before stay.
        If one has no place, build none. Defaults to False.
    dry_run
        Only return where they would go. Defaults to False.
    wait
        Wait for the minions of the VMs, of all at once. One that does not answer has failed, and
        stays (with ``all_or_nothing`` it does not). Defaults to True.
    wait_s
        As in virt.init, of each VM from the end of its build.
    quiet
        Show no progress. Defaults to False.

    Every other keyword argument of the module's ``virt.init`` is passed on.

    VMs that are there with the same CPUs, memory and groups are left as they are: called again, it
    builds those that are missing. A name that another VM or minion has ends it before anything is
    built. An interruption begins no more VMs.

    Returns ``{"built": {name: host}, "exists": {name: host}, "failed": {name: why}}``, and where
    there are any ``warnings``, ``seconds`` (how long each minion took to answer), and after
    ``all_or_nothing`` ``purged`` and ``left`` (what could not be purged); with ``dry_run=True``
    ``plan`` (``{name: host}``), ``exists`` and ``failed``. Where VMs have no place, ``helps`` lists
    what can be done about it. Exit code 1 if one is not built. Undo: virt.purge of each.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init_many 'web{}' 3 1 128 salt://images/tiny.qcow2 dry_run=True
        salt-run virt.init_many 'web{}' 3 1 128 salt://images/tiny.qcow2 wait=False
        salt-run virt.init_many vms='[db1, {name: db2, mem: 256}]' cpu=1 mem=128 dry_run=True
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, "many", quiet, is_reading=is_dry)
    common_fields = {"host": host, "where": where, "force": force, "wait_s": wait_s}
    placement_options = {"placement": placement, "spread_over": spread_over, "headroom": headroom}
    defaults = {**kwargs, "cpu": cpu, "mem": mem, "image": image}
    settings = cloud.settings
    per_host = settings.init_per_host if per_host is None else per_host
    max_parallel = settings.init_parallel if max_parallel is None else max_parallel
    call = outcome.Call(
        requests=_requests(
            name, count, first, vms, defaults, {**common_fields, "placed": placement_options}
        ),
        per_host=arguments.whole_number("per_host", per_host, most=64),
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=64),
        whole=arguments.boolean("all_or_nothing", all_or_nothing),
        wait=arguments.boolean("wait", wait),
    )
    if is_dry:
        return run.dry_run(cloud, call)
    return run.deploy_many(cloud, call)
