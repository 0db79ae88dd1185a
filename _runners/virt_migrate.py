"""
Move VMs between hypervisors, and empty whole hosts.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

balancing = Later("saltvirt.fleet.balance")
emptying = Later("saltvirt.fleet.evacuate")
filling = Later("saltvirt.fleet.restore")
moving = Later("saltvirt.fleet.migrate")
settling = Later("saltvirt.fleet.settle")

__virtualname__ = "virt"


def __virtual__():
    """Always load: a master needs no libvirt."""
    return __virtualname__


@runner_function(outputter="virt_plan")
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

    Running, paused and stopped VMs can be moved. Disks are sent unless they are in
    ``virt:shared_paths``; of an overlay only the VM's own part, as the image is taken from the
    target's cache.

    Returns ``{"name", "from", "to", "total_ms", "downtime_ms", "memory_bytes", "disk_bytes",
    "removed"}``; ``removed`` lists the files that the source has removed. ``warning`` is there if
    something else than the move failed, or if the VM is behind NAT. Fails with one line and leaves
    the VM where it was, or says which command settles the move. Undo: move it back.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate centos1 dry_run=True
        salt-run virt.migrate centos1 hyper2
        salt-run virt.migrate centos1
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, name, quiet, is_reading=is_dry)
    if is_dry:
        return moving.dry_run(cloud, name, target, kwargs)
    return moving.migrate(cloud, name, target, kwargs)


@runner_function
def settle(name=None, keep=None, force=False, quiet=False):
    """
    Bring interrupted moves to their end: both hosts are asked, and one of them goes on.

    name
        A VM's name. Defaults to all that any host has on record.
    keep
        The host that has the VM from now on, because the other never comes back, and does not
        answer; or because that one has come back, and both have the VM. Or a third one, to which
        the VM has gone on: what the two have of it stays there, and is not started.
    force
        Remove what a target has of a VM even if its source knows of no move, or no longer has the
        VM though it has not come whole: that may be all there is; ``name`` must be given. With
        ``keep``, even if nothing that could run has come there. If neither host answers, forget
        the move. If the VM may have gone on to a host that does not answer, settle it all the same.
        Defaults to False.
    quiet
        Show no progress. Defaults to False.

    The VM ends up on exactly one of the two. Returns ``{"settled": {name: "has moved to hyper2" |
    "stays on hyper1" | "was settled before"}}``; after ``keep`` and ``force``, what was given up.
    Exit code 1 if a move is not over, with what it waits for; nothing is lost meanwhile, and nobody
    starts the VM on either host. Moves that only silent hosts have on record are not settled; these
    hosts are ``unreachable``. ``virt.migrate`` of that VM, run again, does the same first.

    CLI Example:

    .. code-block:: bash

        salt-run virt.settle
    """
    cloud = Cloud.of(__opts__, __jid_event__, name or "moves", quiet)
    if keep is not None and name is None:
        raise BadArgument("keep", "goes with the name of a VM")
    return settling.settle_all(cloud, name, force=arguments.boolean("force", force), keep=keep)


@runner_function
def maintenance(host, state="on"):
    """
    Keep new VMs away from a hypervisor, or let them come again; running VMs stay.

    host
        The hypervisor.
    state
        ``on`` (default) or ``off``.

    Returns ``{host: bool}``. The flag lives with the host. ``off`` brings no VM back and forgets
    none: virt.restore still does that. Undo: the other state.

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
        Return where each VM would go, and which would stay, and why. Defaults to False.
    stopped
        Move stopped VMs too. Defaults to True; else they are in ``stays``, and not a failure.
    quiet
        Show no progress. Defaults to False.
    wait_s
        For how long VMs that are being built there, or arriving, are waited for. Defaults to 600.
    per_host
        How many VMs move to one other host at a time. Defaults to 2.

    Big VMs move first; no host is overcommitted, affinity and anti-affinity hold. If a host refuses
    a VM, the next best takes it. What was interrupted goes on when this is run again. Returns
    ``{"host", "moved", "stays", "failed", "warnings"}``, and ``gone`` if VMs were removed then.
    Exit code 1 if a VM that was to move had to stay, or did not arrive in time. A definition that
    was only kept is no VM: it is in ``warnings``, and ``virt.undefine`` removes it. Undo:
    virt.restore.

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
    options = {
        "max_parallel": arguments.whole_number("max_parallel", max_parallel, most=64),
        "per_host": arguments.whole_number("per_host", per_host, most=64),
        "wait_s": arguments.whole_number("wait_s", wait_s, least=0),
        "with_stopped": with_stopped,
    }
    return emptying.evacuate(cloud, host, **options)


@runner_function(outputter="virt_moves")
def restore(host, max_parallel=2, quiet=False, dry_run=False, per_host=2):
    """
    Let a hypervisor take VMs again, and bring back those that virt.evacuate moved away.

    host
        The hypervisor.
    max_parallel
        How many VMs move at a time. Defaults to 2.
    quiet
        Show no progress. Defaults to False.
    dry_run
        Return which VMs would come back (``moves``), and which not. Defaults to False.
    per_host
        How many VMs come from one other host at a time. Defaults to 2.

    VMs that the evacuation of another host has moved on since come too. Returns ``{"host", "moved",
    "failed", "gone", "elsewhere", "warnings"}``: ``gone`` are VMs that were removed since,
    ``elsewhere`` those that somebody moved by hand, which stay there; both are forgotten. Exit code
    1 if a VM did not come back. Undo: virt.evacuate.

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper3 dry_run=True
        salt-run virt.restore hyper3
    """
    is_reading = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, host, quiet, is_reading=is_reading)
    if is_reading:
        return filling.dry_run(cloud, host)
    options = {
        "max_parallel": arguments.whole_number("max_parallel", max_parallel, most=64),
        "per_host": arguments.whole_number("per_host", per_host, most=64),
    }
    return filling.restore(cloud, host, **options)


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
        How many moves to make at most. Defaults to 5.
    threshold
        Least gain of a move, as a part of a host's load. Defaults to 0.02.
    dry_run
        Return the moves without making them. Defaults to False.
    quiet
        Show no progress. Defaults to False.
    window_s
        For how long the load is watched, from 1 to 3600 s. Defaults to 60.
    max_parallel, per_host
        How many VMs move at a time in all, and to or from one host. Default to 4 and 2.

    Load is what VMs really use of CPUs and memory; a VM tagged by ``virt.hold`` never moves. A move
    is made only if it gains more than it costs, and between hosts whose loads differ by more than
    chance does within the window. Returns ``{"imbalance", "moves": [{"name", "from", "to",
    "gain"}], "stays": {name: why}}``: ``imbalance`` is the spread of the hosts' loads before (as
    ``uneven``, its old name, too for one release), ``moves`` what was moved, ``stays`` the VMs
    whose move failed, which keeps no other from being made. Exit code 1 if there is one. Undo: move
    them back.

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
