"""
Show this hypervisor and its VMs; nothing is changed.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of every function override
``virt:connection:uri`` and ``virt:connection:auth``.
"""

import dataclasses
from collections.abc import Mapping

from saltvirt.core import wire
from saltvirt.core.errors import BadConfig, HostUnreachable
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.checks.audit.host import facts
    from saltvirt.checks.setup.host import facts as setup
    from saltvirt.libvirt import hostfacts
    from saltvirt.libvirt.domains import query
    from saltvirt.vm import shownprofiles, spec
    from saltvirt.vm.guest.host import inguest
    from saltvirt.vm.show.host import inspect

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _basepath():
    """Return the formula's folder of certificates; empty pillar values are ignored."""
    value = __pillar__
    for key in ("hypervisor", "keys", "basepath"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value or "/etc/pki"


def audit(**kwargs):
    """
    Return facts about this host, which ``salt-run virt.audit`` judges.

    Returns ``{code, vms, daemons, local, plain, trusted, revoked, qemu, displays, consoles,
    certificates, keys, unreadable}``: a digest of this project's code, the clients that libvirt and
    QEMU accept, listeners without TLS, fingerprints of trusted CAs, serials of certificates and of
    revoked ones, modes of keys; no secrets.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.audit
    """
    # A read-only connection cannot see whether a display has a password.
    with _module.opened("virt.audit", kwargs) as (conn, settings):
        host_facts = facts.read_host_facts(
            conn, settings, _basepath(), f"{__opts__['pki_dir']}/minion.pem"
        )
    reasons = [*host_facts.wrong_options, *filter(None, [optionguard.refusal(globals())])]
    return wire.plain(dataclasses.replace(host_facts, wrong_options=reasons))


def setup_facts(peers=None, others=None, **kwargs):
    """
    Return facts about this host, which ``salt-run virt.setup_check`` judges.

    peers, others
        ``{host: [address]}`` of hosts that are checked at the same time, and of the others: for
        three of them this host tests whether libvirt's TLS port is reachable and whether their ids
        resolve to an address. Default to none.

    Returns ``{code, clock_s, hash_type, virtualization, has_kvm, libvirt, info, why_not, folder,
    lacking, storagepool, pool, appliance, users, masters, no_master, moving, unreadable, misspelt,
    machine, seed_method, deep, bad_option, foreign_virt}``; ``info`` is the answer of
    ``virt.host_info``, or None if libvirt does not answer; ``libvirt`` has the reason. If an option
    of this host cannot be used, returns only ``{refused_option}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.setup_facts
    """
    addresses = dict[str, list[str]]
    addresses_by_host = wire.argument("others", addresses, others or {})
    addresses_by_host |= wire.argument("peers", addresses, peers or {})
    misspelt = config.find_misspelt(__opts__, __pillar__, __grains__)
    try:
        settings = config.for_call("virt.setup_facts", kwargs, __opts__, __pillar__, __grains__)
        return wire.plain(
            setup.read_host_facts(__opts__, settings, _basepath(), addresses_by_host, misspelt)
        )
    except BadConfig as error:
        return {"refused_option": str(error)}


def list_domains(**kwargs):
    """
    Return the names of all VMs, running or not, sorted.

    Returns a list of names.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_domains
    """
    with _module.connection("virt.list_domains", kwargs, readonly=True) as conn:
        return query.names(conn)


def list_active_vms(**kwargs):
    """
    Return the names of the running VMs, sorted.

    Returns a list of names.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_active_vms
    """
    with _module.connection("virt.list_active_vms", kwargs, readonly=True) as conn:
        return query.names(conn, active=True)


def list_inactive_vms(**kwargs):
    """
    Return the names of the VMs that are off, sorted.

    Returns a list of names.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.list_inactive_vms
    """
    with _module.connection("virt.list_inactive_vms", kwargs, readonly=True) as conn:
        return query.names(conn, active=False)


def vm_info(vm_=None, **kwargs):
    """
    Return information about one VM, or about all.

    vm_
        The VM's name. Defaults to all.

    Returns ``{name: {cpu, cputime, disks, graphics, nics, uuid, loader, on_crash, on_reboot,
    on_poweroff, maxMem, mem, state}}``; ``mem`` and ``maxMem`` in KiB, disk sizes in bytes,
    ``cputime`` in nanoseconds. One VM also has ``addresses`` (at most 16, IPv4 first),
    ``addresses_from`` (``lease``, or from the untrusted guest ``agent`` or ``neighbours``; or
    None), ``behind_host`` (its networks that only this host reaches, such as those with NAT),
    ``ssh_user`` (the user of its SSH keys, ``USER`` for a default user with an unknown name, or
    None) and ``login``: the command that logs in, None if the VM is not running; and further
    ``autostart``, ``machine``, ``snapshots`` (names), ``affinity``, ``anti_affinity``, ``hold``,
    ``created`` (seconds since 1970), ``uptime_s`` (since its start on this host) and ``pending``
    (in words, what changes at its next start); what is unknown is None.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_info centos1
    """
    # A read-only connection may not use a guest's agent.
    with _module.opened("virt.vm_info", kwargs, readonly=vm_ is None) as (conn, _settings):
        return (
            inspect.vm_info(conn) if vm_ is None else inguest.describe_vm(conn, vm_, __opts__["id"])
        )


def node_info(**kwargs):
    """
    Return the host's processors and memory.

    Returns ``{cpucores, cpumhz, cpumodel, cpus, cputhreads, numanodes, phymemory, sockets}``;
    ``phymemory`` in MiB.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.node_info
    """
    with _module.connection("virt.node_info", kwargs, readonly=True) as conn:
        return query.node(conn)


def node_devices(**kwargs):
    """
    Return this host's PCI and USB devices, which ``host_devices`` can pass to a VM, and its links.

    Returns ``[{name, caps, vendor_id, product_id, vendor, product, address, "PCI class", "virtual
    functions", "physical function"}]``, as far as known; of a link ``{name, caps, address,
    "device name", state}``, with its MAC as ``address`` and its device's name.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.node_devices
    """
    with _module.connection("virt.node_devices", kwargs, readonly=True) as conn:
        return hostfacts.describe_devices(conn)


def freecpu(**kwargs):
    """
    Return the host's CPUs minus those of running and paused VMs; negative if overcommitted.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.freecpu
    """
    with _module.connection("virt.freecpu", kwargs, readonly=True) as conn:
        return inspect.free(conn)["freecpu"]


def freemem(**kwargs):
    """
    Return the host's memory in MiB, minus 256 for itself and that of running and paused VMs.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.freemem
    """
    with _module.connection("virt.freemem", kwargs, readonly=True) as conn:
        return inspect.free(conn)["freemem"]


def get_profiles(hypervisor=None, **kwargs):
    """
    Return the NIC and disk profiles of this host, the built-in ones included.

    hypervisor
        ``kvm`` or ``qemu``, which have the same profiles; others are refused.

    Returns ``{"nic": {name: [...]}, "disk": {name: [...]}}``: of each entry all configured values
    and the defaults; disk sizes in MiB. A profile that cannot be used is ``[{"error": why}]``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_profiles
    """
    spec.hypervisor_type(hypervisor)
    settings = _module.settings("virt.get_profiles", kwargs)
    return shownprofiles.describe(settings.nic, settings.disk)


def is_hyper():
    """
    Return whether libvirt answers on this host.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.is_hyper
    """
    try:
        with _module.connection("virt.is_hyper", {}, readonly=True):
            return True
    except HostUnreachable:
        return False


def virt_type():
    """
    Return the grain ``virtual``: the virtualisation in which this host itself runs.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.virt_type
    """
    return __grains__["virtual"]


def get_hypervisor():
    """
    Return the domain type that new VMs get here: ``kvm`` or ``qemu``, None if unknown.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.get_hypervisor
    """
    with _module.opened() as (conn, settings):
        return inspect.domain_types(conn, settings, hostfacts.capabilities(conn)).default


optionguard.modules(globals())
