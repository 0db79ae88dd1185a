"""
The private cloud from the master: deploy, control and remove VMs.

.. versionadded:: 1.0.0

The runner queries the hypervisors (those of ``virt.allow``, and of ``virt:hypervisors`` in the
master's configuration) live; there is no database. ``unreachable`` lists hosts that did not
answer, ``failed`` those that answered with an error, and ``duplicates`` (``{name: [host]}``) VMs
that several hypervisors have; such a VM is neither started nor controlled until all but one are
removed. Commands that only read wait for an unresponsive hypervisor two seconds longer than for
the others, commands that change something for ``virt:timeout_s``. A failure is one line and exit
code 1. The old name ``force_off`` stays.
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.command.master import vmcommand
    from saltvirt.vm.create.master import deploy, vmrequest
    from saltvirt.vm.purge.master import purging

__virtualname__ = "virt"
__virtual__ = load_always

_SERIALS = {"None": None, "pty": [{"type": "pty"}], "tcp": [{"type": "tcp"}]}


def _run(command, name, dry_run, max_parallel, **given):
    flags = {"dry_run": dry_run, "max_parallel": max_parallel, **given}
    return vmcommand.run(__opts__, __jid_event__, command, name, **flags)


@runner_function(outputter="virt_plan")
def init(
    name,
    cpu,
    mem,
    image=None,
    hypervisor=None,
    host=None,
    seed=True,
    nic="default",
    install=True,
    start=True,
    disk="default",
    saltenv="base",
    enable_vnc=False,
    seed_cmd="seed.apply",
    enable_qcow=None,
    serial_type="None",
    where=None,
    dry_run=False,
    wait=True,
    quiet=False,
    force=False,
    wait_s=None,
    placement=None,
    spread_over=None,
    headroom=None,
    **kwargs,
):
    """
    Deploy a VM on the hypervisor that suits it best, and wait until its own minion answers.

    name
        The VM's name, its minion id and its host name; once in the whole cloud.
    cpu
        Number of virtual CPUs, or a mapping as in the module's ``virt.init``.
    mem
        Memory in MiB, or a mapping.
    image
        ``salt://``, ``http(s)://``, ``file://`` or absolute path on the hypervisor.
    hypervisor
        ``kvm`` or ``qemu``. Defaults to KVM if it works on the chosen host.
    host, where
        Deploy on this hypervisor; or on one that matches this compound Salt target. On a master
        with cells, ``cell=`` or ``host`` (``CELL/HOST``) names the cell.
    seed, install, saltenv, seed_cmd, nic, disk, start, enable_vnc, enable_qcow
        As in the module's ``virt.init``; ``nic=nat`` needs no bridge.
    serial_type
        ``pty``, ``tcp`` or ``None`` (default: a console that is logged).
    dry_run
        Change nothing; return the hosts that fit with their scores (the highest is best), and the
        reasons against the others. The row of the host that would get the VM has ``chosen``, and
        ``warnings`` if no image was given. The image is not examined. Fails if no host fits.
        Defaults to False.
    wait
        Wait for the VM's minion. Defaults to True.
    wait_s
        Wait this many seconds at most. Defaults to ``virt:wait_s`` of the master, else to 300, or
        to 1200 on a host without KVM, which emulates the VM's CPU.
    quiet
        Show no progress. Defaults to False.
    force
        Deploy although an unresponsive hypervisor had a VM of that name when it last answered, or
        has an order to build one. Use it only if you know that the VM is not there. Defaults to
        False.

    placement
        ``spread`` takes the fitting hypervisor with the most room, ``pack`` the fullest. Defaults
        to ``virt:placement`` of the master, else to ``spread``.
    spread_over
        A tag of hypervisors, such as ``rack``: hosts in the rack with the fewest VMs of the VM's
        anti-affinity groups come first, or with the fewest VMs if it has no groups. Defaults to
        ``virt:spread_over`` of the master, else to none.
    headroom
        Only deploy if the others could afterwards still take the VMs of any one hypervisor that
        fails. Defaults to ``virt:headroom`` of the master, else to False.

    All other keyword arguments of the module's ``virt.init`` are passed on, such as
    ``ssh_authorized_keys`` or ``autostart``; unknown ones are refused by name. ``machine`` defaults
    to ``virt:machine`` of the master, else, if the hosts' newest machine types differ, to the
    newest that all of them have.

    Returns ``{"name", "host", "minion", "seconds", "addresses", "login"}``: the VM's addresses,
    IPv4 first, and the command that logs in. They come from the untrusted guest unless
    ``addresses_from`` is ``lease``. ``warnings`` names options that the image will ignore, such as
    ``ssh_authorized_keys`` without an SSH server, and disks that existed already.

    Fails with one line and leaves nothing behind; if no host fits, with a table of the reasons. If
    the minion does not answer in time, the VM and its key stay, because it may still answer, and
    ``console`` has the end of its console, beside ``addresses`` and ``login``. Undo: virt.purge.

    CLI Example:

    .. code-block:: bash

        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
        salt-run virt.init centos1 2 512 salt://images/tiny.qcow2 wait=False
        salt-run virt.purge centos1
    """
    if serial_type not in (None, *_SERIALS):
        raise BadArgument("serial_type", f"{serial_type!r}; one of {', '.join(_SERIALS)}")
    options = {**kwargs, "image": image, "hypervisor": hypervisor, "seed": seed, "nic": nic}
    options |= {"install": install, "start": start, "disk": disk, "saltenv": saltenv}
    options |= {"enable_vnc": enable_vnc, "seed_cmd": seed_cmd, "enable_qcow": enable_qcow}
    if _SERIALS.get(serial_type):
        options["serials"] = _SERIALS[serial_type]
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, __jid_event__, name, quiet, is_reading=is_dry)
    terms = {"host": host, "where": where, "force": force, "wait": wait, "wait_s": wait_s}
    terms |= {"placement": placement, "spread_over": spread_over, "headroom": headroom}
    request = vmrequest.parse(
        name, cpu, mem, options, vmrequest.parse_terms(cloud.settings, **terms)
    )
    return (deploy.dry_run if is_dry else deploy.deploy)(cloud, request)


@runner_function(outputter="virt_vms")
def start(name, *, dry_run=False, max_parallel=8):
    """
    Start a VM wherever it is.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "started"}}``, or ``"already running; nothing was done"`` instead;
    of several VMs ``{"vms": {name: {"host", "outcome", "error"}}}``, and fails if one of them
    failed. Fails for a paused VM, and names virt.resume. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt-run virt.start centos1
    """
    return _run("start", name, dry_run, max_parallel)


@runner_function(outputter="virt_vms")
def stop(name, *, dry_run=False, max_parallel=8):
    """
    Stop a VM at once, as pulling its plug would.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "stopped at once, by pulling its plug"}}``, or ``"already off; nothing
    was done"`` instead; of several VMs ``{"vms": {name: {"host", "outcome", "error"}}}``, and fails
    if one of them failed. The guest may lose what it has not written; virt.shutdown asks it first.
    Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt-run virt.stop centos1
    """
    return _run("stop", name, dry_run, max_parallel)


force_off = stop


@runner_function(outputter="virt_vms")
def shutdown(name, *, wait=True, wait_s=120, dry_run=False, max_parallel=8):
    """
    Ask a VM's guest to shut down, and wait until it has.

    name
        The VM's name; a list of names or a glob for several VMs.
    wait
        Wait for the guest. Defaults to True.
    wait_s
        Wait this many seconds at most. Defaults to 120.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are asked at a time; all are waited for together. Defaults to 8.

    Returns ``{host: {name: "shut down after 12 s"}}``; without ``wait`` ``"asked to shut down"``,
    or ``"already off; nothing was done"`` instead. Of several VMs ``{"vms": {name: {"host",
    "outcome", "error"}}}``. Fails if a guest has not obeyed in time, and if the VM is paused.
    virt.stop pulls the plug. Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt-run virt.shutdown centos1
        salt-run virt.shutdown centos1 wait_s=300
        salt-run virt.shutdown centos1 wait=False
    """
    return _run("shutdown", name, dry_run, max_parallel, wait=wait, wait_s=wait_s)


@runner_function(outputter="virt_vms")
def reset(name, *, dry_run=False, max_parallel=8):
    """
    Reset a VM at once, as its reset button would.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "reset at once, without asking its guest"}}``; of several VMs ``{"vms":
    {name: {"host", "outcome", "error"}}}``, and fails if one of them failed. A paused VM stays
    paused. virt.reboot asks the guest.

    CLI Example:

    .. code-block:: bash

        salt-run virt.reset centos1
    """
    return _run("reset", name, dry_run, max_parallel)


@runner_function(outputter="virt_vms")
def pause(name, *, dry_run=False, max_parallel=8):
    """
    Pause a VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "paused"}}``, or ``"already paused; nothing was done"`` instead; of
    several VMs ``{"vms": {name: {"host", "outcome", "error"}}}``, and fails if one of them failed.
    Undo: virt.resume.

    CLI Example:

    .. code-block:: bash

        salt-run virt.pause centos1
    """
    return _run("pause", name, dry_run, max_parallel)


@runner_function(outputter="virt_vms")
def resume(name, *, dry_run=False, max_parallel=8):
    """
    Let a paused VM go on.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "resumed"}}``, or ``"already running; nothing was done"`` instead;
    of several VMs ``{"vms": {name: {"host", "outcome", "error"}}}``, and fails if one of them
    failed. Undo: virt.pause.

    CLI Example:

    .. code-block:: bash

        salt-run virt.resume centos1
    """
    return _run("resume", name, dry_run, max_parallel)


@runner_function
def purge(name, delete_key=True, force=False, dry_run=False):
    """
    Remove a VM with its disks, its seed and its minion key.

    name
        The VM's name.
    delete_key
        Delete the minion key of that id too. Defaults to True.
    force
        Remove the VM although an unresponsive host may need a shared file: that file goes into the
        trash of its host, for a week at least. Defaults to False.
    dry_run
        Change nothing; return what would be removed, what would go into the trash, and what would
        stay. Defaults to False.

    Needed files stay: for files on shared storage, the runner asks all hosts first. If a purge was
    interrupted, the next one finishes it, and deletes the VM's key. Returns ``{host: {name:
    "purged"}}``; after ``purged`` follow the finished steps. Beside that, ``details`` has ``{name:
    {removed, trashed, left, lost, entry, until, can_undo, undo}}``, unless its host's answer was
    lost: what is gone, what is in the trash, ``{file: reason}`` of what stays, and the command that
    brings the VM back. A dry run returns the same about what would be done, with ``entry`` null; it
    also fails if an interrupted command for the VM is on record. Fails if no host has the VM, or if
    an unresponsive host may need a shared file. Undo: virt.undo, unless ``virt:trash_days`` of the
    host is 0.

    CLI Example:

    .. code-block:: bash

        salt-run virt.purge centos1 dry_run=True
        salt-run virt.purge centos1
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, is_reading=is_dry)
    return (purging.dry_run if is_dry else purging.purge)(cloud, name, delete_key, force)
