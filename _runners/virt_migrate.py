"""
Move VMs between hypervisors, and empty whole hosts.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments, config
from saltvirt.fleet import evacuate as emptying
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
    "from", "to", "total_ms", "downtime_ms", "memory_bytes", "disk_bytes"}``, and ``warning`` if it
    does not start with its new host as it did with the old one. Fails with one line
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


@reported
def maintenance(host, state="on"):
    """
    Keep new VMs away from a hypervisor, or let them come again; running VMs stay.

    host
        The hypervisor.
    state
        ``on`` (default) or ``off``.

    Returns ``{host: bool}``. The flag lives with the host. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt-run virt.maintenance hyper3 on
        salt-run virt.maintenance hyper3 off
    """
    return emptying.set_maintenance(__opts__, config.master_settings(__opts__), host, state)


@reported
def evacuate(host, max_parallel=2, dry_run=False, stopped=True, quiet=False):
    """
    Empty a hypervisor: no new VMs, and its own move to the others.

    host
        The hypervisor.
    max_parallel
        How many VMs move at a time. Defaults to 2.
    dry_run
        Return where each VM would go, and which would stay, and why. Defaults to False.
    stopped
        Move stopped VMs too. Defaults to True.
    quiet
        Show no progress. Defaults to False.

    Big VMs first, never overcommitting, as affinity and anti-affinity want it. If a host refuses a
    VM, the next best takes it. What was interrupted goes on when this is run again. Returns
    ``{"host", "moved", "stays", "failed"}``, and ``warnings`` if something beside a move failed.
    Exit code 1 if a VM had to stay. Undo: virt.restore.

    CLI Example:

    .. code-block:: bash

        salt-run virt.evacuate hyper3 dry_run=True
        salt-run virt.evacuate hyper3
        salt-run virt.restore hyper3
    """
    settings = config.master_settings(__opts__)
    say = progress.teller(__opts__, __jid_event__, host, quiet)
    with_stopped = arguments.boolean("stopped", stopped)
    if dry_run:
        return emptying.dry_run(__opts__, settings, host, with_stopped, say)
    count = arguments.whole("max_parallel", max_parallel, most=64)
    return emptying.evacuate(__opts__, settings, host, max_parallel=count,
                             with_stopped=with_stopped, say=say)  # fmt: skip


@reported
def restore(host, max_parallel=2, quiet=False):
    """
    Let a hypervisor take VMs again, and bring back those that virt.evacuate moved away.

    host
        The hypervisor.
    max_parallel
        How many VMs move at a time. Defaults to 2.
    quiet
        Show no progress. Defaults to False.

    Returns ``{"host", "moved", "failed", "gone", "elsewhere"}``: ``gone`` are VMs that were removed
    since, ``elsewhere`` those that were moved on, which stay there. Exit code 1 if a VM did not
    come back. Undo: virt.evacuate.

    CLI Example:

    .. code-block:: bash

        salt-run virt.restore hyper3
    """
    settings = config.master_settings(__opts__)
    say = progress.teller(__opts__, __jid_event__, host, quiet)
    count = arguments.whole("max_parallel", max_parallel, most=64)
    return emptying.restore(__opts__, settings, host, max_parallel=count, say=say)


@reported
def rebalance(max_moves=5, threshold=0.02, dry_run=False, quiet=False):
    """
    Even out the load of all hypervisors with few moves.

    max_moves
        At most so many. Defaults to 5.
    threshold
        Least gain of a move, as a part of a host's load. Defaults to 0.02.
    dry_run
        Return the moves without making them. Defaults to False.
    quiet
        Show no progress. Defaults to False.

    By what VMs really use, CPUs and memory; a VM tagged by ``virt.stay`` never moves, and a move
    that gains less than it costs is not made. Returns ``{"uneven", "moves": [{"name", "from", "to",
    "gain"}]}``; ``uneven`` is the spread of the hosts' loads before. The first move that fails ends
    it, with exit code 1: ``moves`` are those made, ``stays`` the others. Undo: move them back.

    CLI Example:

    .. code-block:: bash

        salt-run virt.rebalance dry_run=True
    """
    settings = config.master_settings(__opts__)
    say = progress.teller(__opts__, __jid_event__, "balance", quiet)
    count = arguments.whole("max_moves", max_moves, most=1000)
    least = arguments.share("threshold", threshold)
    return emptying.balance(__opts__, settings, max_moves=count, threshold=least,
                            is_dry=arguments.boolean("dry_run", dry_run), say=say)  # fmt: skip
