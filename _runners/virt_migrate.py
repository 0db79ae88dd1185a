"""
Move VMs between hypervisors, and empty whole hosts.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments, hostwords
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.migration.master import evacuate as emptying
    from saltvirt.migration.master import migrate as moving
    from saltvirt.migration.master import rebalance as balancing
    from saltvirt.migration.master import restore as filling
    from saltvirt.migration.master import settle as settling

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_plan")
def migrate(name, target=None, dry_run=False, quiet=False, host=None, **kwargs):
    """
    Move a VM to another hypervisor, encrypted, without its guest noticing.

    name
        The VM's name.
    target, host
        The hypervisor that takes it. Defaults to the one that suits it best.
    dry_run
        Return the plan, or fail with every reason against it. Defaults to False.
    quiet
        Show no progress. Defaults to False.
    kwargs
        Those of the module's ``virt.migrate``: ``max_bandwidth``, ``postcopy``, ``limit_s``, ...

    Running, paused and stopped VMs can be moved. Disks are sent unless they are in
    ``virt:shared_paths``; of an overlay only the VM's own part, because the target has the image in
    its cache.

    Returns ``{"name", "from", "to", "total_ms", "downtime_ms", "memory_bytes", "disk_bytes",
    "removed"}``; ``removed`` lists the files that the source has removed. A ``warning`` is added if
    a step after the move failed, or if the VM is behind NAT. Fails with one line and leaves the VM
    on the source, or names the command that settles the move. Undo: move it back.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate centos1 dry_run=True
        salt-run virt.migrate centos1 hyper2
        salt-run virt.migrate centos1
    """
    is_dry, name = arguments.boolean("dry_run", dry_run), arguments.text("name", name)
    new_host = hostwords.either(host, "target", target)
    cloud = Cloud.of(__opts__, __jid_event__, name, quiet, is_reading=is_dry)
    return (moving.dry_run if is_dry else moving.migrate)(cloud, name, new_host, kwargs)


@runner_function
def settle(name=None, keep=None, force=False, quiet=False, dry_run=False):
    """
    Finish or undo interrupted moves, after asking both hosts.

    name
        A VM's name. Defaults to all moves that any host has on record.
    keep
        The host that has the VM from now on, because the other host does not answer and never comes
        back; or because it has come back, and both have the VM. Or a third host that has the VM by
        now: files on the two hosts stay there, and are not started.
    force
        Remove a target's files of a VM even if its source knows of no move, or no longer has the VM
        although it has not arrived completely: these may be the only files left; needs ``name``.
        With ``keep``, proceed even if nothing that could run has arrived there. If neither host
        answers, forget the move. If the VM may have moved on to an unresponsive host, settle it
        nevertheless. Defaults to False.
    quiet
        Show no progress. Defaults to False.
    dry_run
        Change nothing; return how each move would end by the hosts' present answers. Goes without
        ``keep`` and ``force``, by which the operator decides. Defaults to False.

    The VM ends up on exactly one of the two. Returns ``{"settled": {name: "has moved to hyper2" |
    "stays on hyper1" | "was settled before"}}``; after ``keep`` and ``force``, what was lost. Exit
    code 1 if a move is not over, with the reason; until then nothing is lost, and the VM does not
    start on either host. Moves that only unresponsive hosts have on record are not settled; these
    hosts are ``unreachable``. A repeated ``virt.migrate`` of that VM settles it first.

    CLI Example:

    .. code-block:: bash

        salt-run virt.settle dry_run=True
        salt-run virt.settle
    """
    is_dry, is_forced = arguments.boolean("dry_run", dry_run), arguments.boolean("force", force)
    cloud = Cloud.of(__opts__, __jid_event__, name or "moves", quiet, is_reading=is_dry)
    if keep is not None and name is None:
        raise BadArgument("keep", "goes with the name of a VM")
    return settling.settle_all(cloud, name, force=is_forced, keep=keep, is_dry=is_dry)


@runner_function
def maintenance(host, state="on"):
    """
    Keep new VMs off a hypervisor, or accept them again; running VMs stay.

    host
        The hypervisor.
    state
        ``on`` (default) or ``off``.

    Returns ``{host: bool}``. The host stores the flag. ``off`` moves no VM back and forgets none:
    virt.restore moves them back. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt-run virt.maintenance hyper3 on
        salt-run virt.maintenance hyper3 off
    """
    return emptying.set_maintenance(Cloud.of(__opts__), host, state)


@runner_function(outputter="virt_moves")
def evacuate(
    host, max_parallel=2, dry_run=False, stopped=True, quiet=False, wait_s=600, per_host=2
):
    """
    Empty a hypervisor: it takes no new VMs, and its own are moved to other hosts.

    host
        The hypervisor.
    max_parallel
        How many VMs move at a time. Defaults to 2.
    dry_run
        Return the new host of each VM, and the reasons of VMs that would stay. Defaults to False.
    stopped
        Move stopped VMs too. Defaults to True; with False they are in ``stays``, and no failure.
    quiet
        Show no progress. Defaults to False.
    wait_s
        Seconds to wait for VMs that are being built or arriving there. Defaults to 600.
    per_host
        How many VMs move to one other host at a time. Defaults to 2.

    Big VMs move first; no host is overcommitted, affinity and anti-affinity hold. If a host refuses
    a VM, the next best takes it. Run it again to continue after an interruption. Returns ``{"host",
    "moved", "stays", "failed", "warnings"}``, and ``gone`` if VMs were removed meanwhile. Exit code
    1 if a VM had to stay, or did not arrive in time. The kept definition of a moved VM is no VM: it
    is in ``warnings``, and ``virt.undefine`` removes it. Undo: virt.restore.

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper3 dry_run=True
        salt-run virt.evacuate hyper3
        salt-run virt.restore hyper3
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, host, quiet, is_reading=is_dry)
    with_stopped = arguments.boolean("stopped", stopped)
    if is_dry:
        return emptying.dry_run(cloud, host, with_stopped)
    return emptying.evacuate(
        cloud,
        host,
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=64),
        per_host=arguments.whole_number("per_host", per_host, most=64),
        wait_s=arguments.whole_number("wait_s", wait_s, least=0),
        with_stopped=with_stopped,
    )


@runner_function(outputter="virt_moves")
def restore(host, max_parallel=2, quiet=False, dry_run=False, per_host=2):
    """
    Let a hypervisor take VMs again, and move those of virt.evacuate back.

    host
        The hypervisor.
    max_parallel
        How many VMs move at a time. Defaults to 2.
    quiet
        Show no progress. Defaults to False.
    dry_run
        Return the VMs that would come back (``moves``), and the others. Defaults to False.
    per_host
        How many VMs come from one other host at a time. Defaults to 2.

    VMs that the evacuation of another host moved on come back as well, and so do VMs that were
    renamed since, under their new names. Returns ``{"host", "moved",
    "failed", "gone", "elsewhere", "warnings"}``: ``gone`` are VMs that were removed meanwhile,
    ``elsewhere`` VMs that an operator moved, which stay there; both are forgotten. Exit code 1 if a
    VM did not come back. Undo: virt.evacuate.

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper3 dry_run=True
        salt-run virt.restore hyper3
    """
    is_reading = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, host, quiet, is_reading=is_reading)
    if is_reading:
        return filling.dry_run(cloud, host)
    return filling.restore(
        cloud,
        host,
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=64),
        per_host=arguments.whole_number("per_host", per_host, most=64),
    )


@runner_function(outputter="virt_moves")
def rebalance(
    max_moves=5,
    threshold=0.02,
    dry_run=False,
    quiet=False,
    window_s=60,
    max_parallel=4,
    per_host=2,
):
    """
    Even out the load of all hypervisors with few moves.

    max_moves
        Limit of the number of moves. Defaults to 5.
    threshold
        Least gain of a move, as a part of a host's load. Defaults to 0.02.
    dry_run
        Return the moves without making them. Defaults to False.
    quiet
        Show no progress. Defaults to False.
    window_s
        Seconds of measuring the load, 1 to 3600. Defaults to 60.
    max_parallel, per_host
        How many VMs move at a time in all, and to or from one host. Default to 4 and 2.

    Load is the VMs' actual use of CPUs and memory; a VM tagged by ``virt.hold`` never moves. A move
    is made only if it gains more than it costs, and only between hosts with loads that differ by
    more than chance within the window. Returns ``{"imbalance", "moves": [{"name", "from", "to",
    "gain"}], "stays": {name: reason}}``: ``imbalance`` is the spread of the hosts' loads before,
    ``moves`` the moves, and ``stays`` the VMs with a failed move, which stops no other. Exit code 1
    if a move failed. Undo: move them back.

    CLI Example:

    .. code-block:: bash

        salt-run virt.rebalance dry_run=True window_s=6
    """
    cloud = Cloud.of(__opts__, __jid_event__, "balance", quiet)
    return balancing.balance(
        cloud,
        max_moves=arguments.whole_number("max_moves", max_moves, most=1000),
        threshold=arguments.share("threshold", threshold),
        window_s=arguments.whole_number("window_s", window_s, most=3600),
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=64),
        per_host=arguments.whole_number("per_host", per_host, most=64),
        is_dry=arguments.boolean("dry_run", dry_run),
    )
