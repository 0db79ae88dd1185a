"""
Change one VM from the master, or several, wherever they are.

.. versionadded:: 1.1.0

``name`` is a VM's name; or a list of names, or a glob such as ``'web*'``, for several VMs. Several
VMs are located by one question to all hosts, and the answer is ``{"vms": {name: {"host",
"outcome", "error"}}}``; if one of them failed, so did the command.
"""

from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.command.master import vmcommand

__virtualname__ = "virt"
__virtual__ = load_always


def _run(command, name, *args, **options):
    return vmcommand.run(__opts__, __jid_event__, command, name, *args, **options)


def _switch(command, name, state, words, dry_run, max_parallel):
    is_on = arguments.on_off("state", state)
    options = {"outcome": words[not is_on], "dry_run": dry_run, "max_parallel": max_parallel}
    return _run(command, name, "on" if is_on else "off", **options)


@runner_function(outputter="virt_vms")
def update(name, *, dry_run=False, max_parallel=8, **changes):
    """
    Change a VM's definition and, as far as possible, the running VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing, and return the changes, as ``test=True`` does. Defaults to False.
    max_parallel
        Of several VMs, how many are changed at a time. Defaults to 8.
    changes
        The other arguments of the module's ``virt.update``, such as ``cpu``, ``mem`` and
        ``autostart``; unknown ones are refused by name. ``disks``, ``interfaces``, ``graphics`` and
        ``host_devices`` are for one VM.

    Returns ``{host: {name: {...}}}`` with the answer of the module's ``virt.update``, each
    definition of a device in one line; of several VMs as virt.start. Fails where the host's own
    ``virt.update`` does. Undo: the old values.

    CLI Example:

    .. code-block:: bash

        salt-run virt.update centos1 cpu=2 mem=1024 dry_run=True
        salt-run virt.update centos1 boot="{kernel: null}" live=False
    """
    flags = {"dry_run": dry_run, "max_parallel": max_parallel}
    return _run("update", name, kwarg=changes, **flags)


@runner_function(outputter="virt_vms")
def setmem(name, memory, config=False, *, dry_run=False, max_parallel=8):
    """
    Set the memory of a stopped VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    memory
        MiB, or a size like ``2g``.
    config
        For a running VM, change the definition for its next start. Defaults to False.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "given that memory"}}``; of several VMs as virt.start. Fails if the
    VM runs and ``config`` is not given. Undo: the old value.

    CLI Example:

    .. code-block:: bash

        salt-run virt.setmem centos1 768 config=True
    """
    flags = {"dry_run": dry_run, "max_parallel": max_parallel}
    return _run("setmem", name, memory, config, **flags)


@runner_function(outputter="virt_vms")
def setvcpus(name, vcpus, config=False, *, dry_run=False, max_parallel=8):
    """
    Set the number of virtual CPUs of a stopped VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    vcpus
        How many.
    config
        For a running VM, change the definition for its next start. Defaults to False.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "given these CPUs"}}``; of several VMs as virt.start. Fails if the
    VM runs and ``config`` is not given. Undo: the old value.

    CLI Example:

    .. code-block:: bash

        salt-run virt.setvcpus centos1 1 config=True
    """
    flags = {"dry_run": dry_run, "max_parallel": max_parallel}
    return _run("setvcpus", name, vcpus, config, **flags)


@runner_function(outputter="virt_vms")
def set_autostart(name, state="on", *, dry_run=False, max_parallel=8):
    """
    Start a VM together with its host, or stop doing so.

    name
        The VM's name; a list of names or a glob for several VMs.
    state
        ``on`` (default) or ``off``.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "set to start with its host"}}``, or ``"set not to start with its
    host"``; of several VMs as virt.start. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt-run virt.set_autostart centos1 off
    """
    words = ("set to start with its host", "set not to start with its host")
    return _switch("set_autostart", name, state, words, dry_run, max_parallel)


@runner_function(outputter="virt_vms")
def hold(name, state="on", *, dry_run=False, max_parallel=8):
    """
    Tag a VM that ``virt.rebalance`` must not move; other commands still move it.

    name
        The VM's name; a list of names or a glob for several VMs.
    state
        ``on`` (default) or ``off``.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "held"}}`` or ``"not held any more"``; of several VMs as virt.start.
    Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt-run virt.hold centos1
        salt-run virt.hold centos1 off
    """
    return _switch("hold", name, state, ("held", "not held any more"), dry_run, max_parallel)


@runner_function(outputter="virt_vms")
def reboot(name, *, dry_run=False, max_parallel=8):
    """
    Ask a VM's guest to reboot.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "asked to reboot; its guest may ignore that"}}``; of several VMs as
    virt.start. Fails if the VM does not run, or is paused. virt.reset does not ask the guest.

    CLI Example:

    .. code-block:: bash

        salt-run virt.reboot centos1
    """
    return _run("reboot", name, dry_run=dry_run, max_parallel=max_parallel)


@runner_function(outputter="virt_vms")
def ctrl_alt_del(name, *, dry_run=False, max_parallel=8):
    """
    Press Ctrl-Alt-Del on a VM's keyboard.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "sent Ctrl-Alt-Del"}}``; of several VMs as virt.start. Fails if the
    VM does not run.

    CLI Example:

    .. code-block:: bash

        salt-run virt.ctrl_alt_del centos1
    """
    return _run("ctrl_alt_del", name, dry_run=dry_run, max_parallel=max_parallel)


@runner_function(outputter="virt_vms")
def snapshot(
    name,
    vm_snapshot=None,
    suffix=None,
    external=False,
    quiesce=False,
    *,
    dry_run=False,
    max_parallel=8,
):
    """
    Take a snapshot of a VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    vm_snapshot
        The snapshot's name. Defaults to the VM's name with date and time.
    suffix, external, quiesce
        As in the module's ``virt.snapshot``.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: {"name": snapshot}}}``; of several VMs as virt.start. Fails where
    the host's own ``virt.snapshot`` does. Undo: virt.delete_snapshots.

    CLI Example:

    .. code-block:: bash

        salt-run virt.snapshot centos1 before-update
        salt-run virt.delete_snapshots centos1 before-update
    """
    flags = {"dry_run": dry_run, "max_parallel": max_parallel}
    return _run("snapshot", name, vm_snapshot, suffix, external, quiesce, **flags)


@runner_function(outputter="virt_vms")
def undefine(name, managed_save=False, snapshots=False, *, dry_run=False):
    """
    Forget a VM's definition; its disks and its minion key stay.

    name
        The VM's name.
    managed_save
        Also lose its saved state. Defaults to False: a VM that has one is refused.
    snapshots
        Also forget libvirt's metadata of its snapshots and backup checkpoints. Defaults to False: a
        VM that has some is refused.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.

    Returns ``{host: {name: "undefined"}}``. Fails where the host's own ``virt.undefine`` does,
    and if an unresponsive host may have the VM. To remove a VM with its disks: virt.purge.
    Undo: the module's virt.define_xml_str with the answer of virt.get_xml.

    CLI Example:

    .. code-block:: bash

        salt-run virt.undefine centos1
    """
    return _run("undefine", name, managed_save, snapshots, dry_run=dry_run)


@runner_function(outputter="virt_vms")
def migrate_cancel(name, *, dry_run=False, max_parallel=8):
    """
    End the migration of a VM; it stays where it is.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "told to stay where it is"}}``; of several VMs as virt.start. Fails
    if the VM is not being moved. Undo: virt.migrate.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_cancel centos1
    """
    return _run("migrate_cancel", name, dry_run=dry_run, max_parallel=max_parallel)


@runner_function(outputter="virt_vms")
def migrate_start_postcopy(name, *, dry_run=False, max_parallel=8):
    """
    Switch a migration that was begun with ``postcopy=True`` to post-copy.

    name
        The VM's name; a list of names or a glob for several VMs.
    dry_run
        Change nothing; return where the VM is and what would be done. Defaults to False.
    max_parallel
        Of several VMs, how many are acted on at a time. Defaults to 8.

    Returns ``{host: {name: "switched to post-copy"}}``; of several VMs as virt.start. There is
    no undo.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_start_postcopy centos1
    """
    return _run("migrate_start_postcopy", name, dry_run=dry_run, max_parallel=max_parallel)
