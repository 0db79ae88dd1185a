"""
Say what this hypervisor has for new VMs, in few bytes, when the master's runner asks for it.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from saltvirt import config
from saltvirt.kvm import connect
from saltvirt.later import Later

brief = Later("saltvirt.placement.brief")
offering = Later("saltvirt.ops.offering")
wire = Later("saltvirt.wire")

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def placement_facts(about=None, **kwargs):
    """
    Return what of ``virt.host_info`` decides whether this host takes some VMs, and no more.

    about
        What they need: lists of ``groups``, ``tags``, ``bridges``, ``networks``, ``links``, ``nic``
        and ``disk`` profiles, CPU ``features``, domain ``types``, ``archs``, ``machines`` and
        ``stocks``; ``with_names`` (a flag), and who says more than names: ``only`` (a list of
        hosts), or ``seed`` and ``below``. Defaults to nothing of all that.

    Returns ``{"names": {digest, listed, kept, building, unfinished, unreadable}, "offer": {limits,
    committed, arch, versions, domain_types, …}}``: in ``offer``, MiB and CPUs, and what was asked
    about, as ``virt.host_info`` has it; ``digest`` is that of the names of all VMs here, which are
    ``listed`` if they are asked for. What there is nothing of is left out.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.placement_facts '{nic: [default], disk: [default]}'
    """
    settings = config.for_call("virt.placement_facts", kwargs, __opts__, __pillar__, __grains__)
    wanted = wire.argument("about", brief.About, about or {})
    # The probe of KVM starts a guest, which a read-only connection may not.
    with connect.opened(settings, readonly=False) as conn:
        return wire.plain(offering.facts(conn, settings, __opts__["id"], wanted))
