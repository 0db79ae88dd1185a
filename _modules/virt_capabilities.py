"""
Show the capabilities of this hypervisor and its guests.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of every function override
``virt:connection:uri`` and ``virt:connection:auth``.
"""

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt import probe
    from saltvirt.xml.node import capabilities as capabilities_

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def capabilities(**kwargs):
    """
    Return libvirt's capabilities of this host and its guests.

    Returns ``{host, guests}``: ``host`` has ``uuid``, ``cpu``, ``power_management``, ``migration``,
    ``topology``, ``cache`` and ``security``, as far as libvirt reports them; each of ``guests`` is
    ``{os_type, arch: {name, wordsize, emulator, machines, domains}, features}``. Sizes are texts
    with their unit.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.capabilities
    """
    with _module.connection("virt.capabilities", kwargs) as conn:
        return probe.read_host_capabilities(conn)


def domain_capabilities(emulator=None, arch=None, machine=None, domain=None, **kwargs):
    """
    Return the capabilities of one kind of guest on this host.

    emulator
        The emulator's absolute path, one of those that ``virt.capabilities`` lists: libvirt runs
        it. Defaults to libvirt's choice.
    arch, machine, domain
        Architecture, machine type and domain type, as in virt.capabilities. Default to libvirt's
        choice.

    Returns ``{emulator, domain, machine, arch, max_vcpus, iothreads, os, cpu, devices, features}``,
    as far as libvirt reports them; fails with libvirt's message, such as for an unknown kind.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.domain_capabilities arch=x86_64 machine=q35
    """
    with _module.connection("virt.domain_capabilities", kwargs) as conn:
        return probe.read_domain_capabilities(conn, emulator, arch, machine, domain)


def all_capabilities(**kwargs):
    """
    Return the capabilities of this host and of every kind of guest that it lists.

    Returns ``{host, domains}``: virt.capabilities and a list of virt.domain_capabilities.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.all_capabilities
    """
    with _module.connection("virt.all_capabilities", kwargs) as conn:
        return probe.read_all_capabilities(conn)


def cpu_baseline(full=False, migratable=False, out="libvirt", **kwargs):
    """
    Return the CPU model that guests can use on all hosts like this one.

    full
        Include features that the model implies. Defaults to False.
    migratable
        Omit features that prevent moves. Defaults to False.
    out
        ``libvirt`` (default) for the XML, ``salt`` for ``{model, vendor, features}``.

    Fails with libvirt's message, such as on architectures without CPU models.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.cpu_baseline out=salt
    """
    if out not in ("libvirt", "salt"):
        raise BadArgument("out", f"{out!r}; libvirt or salt")
    is_full = arguments.boolean("full", full)
    is_migratable = arguments.boolean("migratable", migratable)
    with _module.connection("virt.cpu_baseline", kwargs) as conn:
        xml = probe.baseline(conn, is_full=is_full, is_migratable=is_migratable)
    return capabilities_.cpu_summary(xml) if out == "salt" else xml


optionguard.modules(globals())
