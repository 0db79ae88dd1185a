"""
Return the resources that this hypervisor's VMs have used since they were started.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of every function override
``virt:connection:uri`` and ``virt:connection:auth``.
"""

from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt.domains import counters

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def vm_cputime(vm_=None, **kwargs):
    """
    Return the processor time of one VM, or of all.

    vm_
        The VM's name. Defaults to all.

    Returns ``{name: {cputime, cputime_percent}}``: ``cputime`` in nanoseconds, 0 for a stopped VM;
    ``cputime_percent`` is, as in Salt 3006, that time in hundredths of a second, divided by the
    host's CPUs and the VM's: it grows as long as the VM runs. virt.load returns the present use.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_cputime centos1
    """
    with _module.connection("virt.vm_cputime", kwargs, readonly=True) as conn:
        return counters.cputime(conn, vm_)


def vm_netstats(vm_=None, **kwargs):
    """
    Return the network traffic of one VM, or of all.

    vm_
        The VM's name. Defaults to all.

    Returns ``{name: {rx_bytes, rx_packets, rx_errs, rx_drop, tx_bytes, tx_packets, tx_errs,
    tx_drop}}``: the sums over its NICs, as the guest sees them; 0 for a stopped VM.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_netstats centos1
    """
    with _module.connection("virt.vm_netstats", kwargs, readonly=True) as conn:
        return counters.network(conn, vm_)


def vm_diskstats(vm_=None, **kwargs):
    """
    Return the disk traffic of one running VM, or of all.

    vm_
        The VM's name. Defaults to all that run.

    Returns ``{name: {rd_req, rd_bytes, wr_req, wr_bytes, errs}}``: the sums over its disks. Fails
    if the VM that was named does not run.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_diskstats centos1
    """
    with _module.connection("virt.vm_diskstats", kwargs, readonly=True) as conn:
        return counters.disk(conn, vm_)


optionguard.modules(globals())
