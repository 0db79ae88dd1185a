"""
Show parts of one VM, or of several, wherever they are; nothing is changed.

.. versionadded:: 1.1.0

``name`` is a VM's name; or a list of names, or a glob such as ``'web*'``, for several VMs: then the
answer is ``{"vms": {name: {"host", "outcome", "error"}}}``. Texts of hosts and guests are escaped.
"""

from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.vm.command.master import vmcommand

__virtualname__ = "virt"
__virtual__ = load_always


def _run(command, name, max_parallel):
    return vmcommand.run(__opts__, __jid_event__, command, name, max_parallel=max_parallel)


@runner_function(outputter="virt_vms")
def list_snapshots(name, *, max_parallel=8):
    """
    Return the snapshots of a VM, the oldest first.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: [{name, created, running, current}]}}``, an empty list for a VM
    without any; ``created`` in the host's local time. External snapshots have ``external``.
    Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.list_snapshots centos1
    """
    return _run("list_snapshots", name, max_parallel)


snapshots = list_snapshots


@runner_function(outputter="virt_vms")
def vm_state(name, *, max_parallel=8):
    """
    Return the state of a VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: state}}``, such as ``running``. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_state centos1
    """
    return _run("vm_state", name, max_parallel)


@runner_function
def get_xml(name):
    """
    Return a VM's XML as libvirt has it, without secrets.

    name
        The VM's name.

    Returns the text, as it is on the VM's host. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_xml centos1
    """
    answer = vmcommand.run(__opts__, __jid_event__, "get_xml", name)
    ((xml,),) = (vms.values() for vms in answer.values())
    return xml


@runner_function(outputter="virt_vms")
def get_disks(name, *, max_parallel=8):
    """
    Return a VM's disks.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {target: {...}}}}`` with the answer of the module's
    ``virt.get_disks``; sizes in bytes. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_disks centos1
    """
    return _run("get_disks", name, max_parallel)


@runner_function(outputter="virt_vms")
def get_nics(name, *, max_parallel=8):
    """
    Return the network interfaces of a VM's definition.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {mac: {type, mac, source, model, address}}}}``. Fails if no host has
    the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_nics centos1
    """
    return _run("get_nics", name, max_parallel)


@runner_function(outputter="virt_vms")
def get_macs(name, *, max_parallel=8):
    """
    Return the MAC addresses of a VM.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: [mac]}}``. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_macs centos1
    """
    return _run("get_macs", name, max_parallel)


@runner_function(outputter="virt_vms")
def get_graphics(name, *, max_parallel=8):
    """
    Return a VM's display; of several, the last value of each field.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {...}}}`` with the answer of the module's ``virt.get_graphics``;
    never a password. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_graphics centos1
    """
    return _run("get_graphics", name, max_parallel)


@runner_function(outputter="virt_vms")
def get_loader(name, *, max_parallel=8):
    """
    Return a VM's firmware.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {...}}}`` with the answer of the module's ``virt.get_loader``. Fails
    if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.get_loader centos1
    """
    return _run("get_loader", name, max_parallel)


@runner_function(outputter="virt_vms")
def vm_cputime(name, *, max_parallel=8):
    """
    Return the processor time of a VM since its start.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {cputime, cputime_percent}}}``, as the module's ``virt.vm_cputime``.
    Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_cputime centos1
    """
    return _run("vm_cputime", name, max_parallel)


@runner_function(outputter="virt_vms")
def vm_netstats(name, *, max_parallel=8):
    """
    Return the network traffic of a VM since its start.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {rx_bytes, rx_packets, rx_errs, rx_drop, tx_bytes, tx_packets,
    tx_errs, tx_drop}}}``. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_netstats centos1
    """
    return _run("vm_netstats", name, max_parallel)


@runner_function(outputter="virt_vms")
def vm_diskstats(name, *, max_parallel=8):
    """
    Return the disk traffic of a running VM since its start.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {rd_req, rd_bytes, wr_req, wr_bytes, errs}}}``. Fails if no host has
    the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.vm_diskstats centos1
    """
    return _run("vm_diskstats", name, max_parallel)


@runner_function(outputter="virt_vms")
def migrate_status(name, *, max_parallel=8):
    """
    Return the progress of a VM's migration.

    name
        The VM's name; a list of names or a glob for several VMs.
    max_parallel
        Of several VMs, how many are asked about at a time. Defaults to 8.

    Returns ``{host: {name: {...}}}`` with the answer of the module's ``virt.migrate_status``;
    empty if the VM is not being moved. Fails if no host has the VM.

    CLI Example:

    .. code-block:: bash

        salt-run virt.migrate_status centos1
    """
    return _run("migrate_status", name, max_parallel)
