"""
Answer the master's runner, with signatures; an operator can call these functions as well.

.. versionadded:: 1.0.0

Salt loads a module's files in order of their names until it finds the job's function: this first
file has the functions that each command calls on each host. ``connection``, ``username`` and
``password`` override ``virt:connection:uri`` and ``virt:connection:auth``.
"""

import dataclasses

from saltvirt.core import arguments, wire
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.core import vmfilter
    from saltvirt.core.salt import answering
    from saltvirt.libvirt.domains import query
    from saltvirt.migration.host import sending
    from saltvirt.placement import brief
    from saltvirt.storage import fileusers, lostdisks
    from saltvirt.vm.purge.host import removed
    from saltvirt.vm.show.host import inspect, listing, offering

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def signed(order, **kwargs):
    """
    Run one of this project's functions for the master's runner, and sign the answer.

    order
        ``{"fun", "arg", "kwarg", "id"}``, or the same sealed for this minion. An order with an
        ``id`` runs once, and not after ``virt.refuse_order``.

    Only functions of ``virt`` and those that the runner needs are allowed, so that this function
    gives no caller more rights. Returns ``{"said", "signature"}``; errors are part of the answer.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.signed '{fun: virt.vm_state, arg: []}'
    """
    return answering.answer(
        __opts__,
        __salt__,
        __context__,
        str(kwargs.get("__pub_jid", "")),
        order,
        lambda: _module.settings(),
    )


def refuse_order(order_id):
    """
    Refuse an order that the master has given up, although its job may still be queued here.

    order_id
        The id of the order, from the master's runner.

    Returns ``refused`` if the order has not begun and never will, ``running`` while it runs, and
    ``over`` afterwards. The host remembers at least the last 5,000 orders.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.refuse_order 4f2c8a52c0f14de0a5f8a0a5f0f3b1c7
    """
    return answering.refuse_order(_module.settings(), order_id)


def presence(name, **kwargs):
    """
    Return whether this host has a VM, without inspecting other VMs.

    name
        The VM's name.

    Returns ``{"state": str or None, "building": bool, "unfinished": bool}``; ``building`` means
    that a build or a move brings it here; ``unfinished`` that an interrupted ``virt.init`` waits
    for the next one or a purge, or that a record of it cannot be read, which the next command for
    that VM reports. An existing VM has a ``uuid``. If it has moved and only its definition was kept
    here, ``moved_to`` names the host that has it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.presence centos1
    """
    with _module.opened("virt.presence", kwargs, readonly=True) as (conn, settings):
        return wire.plain(inspect.presence(conn, settings, name))


def shared_files(name, **kwargs):
    """
    Return the files of a VM that other hosts see: a purge has to ask these hosts first.

    name
        The VM's name.
    removables
        Include cdrom and floppy images. Defaults to False.

    Returns a list of paths and of ``POOL/VOLUME``; an empty one if this host has no such VM.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shared_files centos1
    """
    is_whole = arguments.boolean("removables", kwargs.pop("removables", False))
    with _module.opened("virt.shared_files", kwargs, readonly=True) as (conn, settings):
        return removed.find_shared_files(conn, settings, name, removables=is_whole)


def shared_disks(names, **kwargs):
    """
    Return the disk files of lost VMs that this host sees on storage that hosts share.

    names
        The VMs' names: a list, or separated by commas.

    A file is a VM's by its owner mark; without a mark by its name, ``NAME_DISK.FORMAT``. Only files
    in ``virt:images``, in ``virt:storagepool``, in pools that are folders, in ``virt:shared_paths``
    and in the folders there are found. Returns
    ``{name: [{"path", "is_open"}]}``; ``is_open``: a QEMU has it open, here or on another host, as
    far as the file system shows that.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shared_disks centos1
    """
    vm_names = arguments.names("names", names)
    with _module.opened("virt.shared_disks", kwargs, readonly=True) as (conn, settings):
        return wire.plain(lostdisks.find_shared_disks(conn, settings, vm_names))


def file_users(paths, uuid=None, **kwargs):
    """
    Return the users on this host of files that another host is to remove or overwrite.

    paths
        The files: paths, or ``POOL/VOLUME``.
    uuid
        The VM that is removed: a definition of it that a move left here does not count. Defaults
        to none.

    Returns ``{path: {"used_by": [reason], "doubts": [reason]}}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.file_users '[/mnt/shared/web1_system.qcow2]'
    """
    with _module.opened("virt.file_users", kwargs, readonly=True) as (conn, settings):
        return wire.plain(fileusers.file_users(conn, settings, paths, uuid))


def host_info(moving=None, **kwargs):
    """
    Return this host's resources, and the part that is committed to VMs.

    moving
        A VM that is to be moved: if this host has it, the answer also has ``moving``, its
        ``virt.migration_info``. Defaults to none.

    Returns ``{maintenance, vms, building, coming, unfinished, unreadable, cpu, memory, storage,
    bridges, links, networks, profiles, domain_types, archs, machines, versions, tags, stocks}``.
    ``tags`` are ``virt:tags``; ``stocks`` are ``{name: {limit_mib, committed_mib}}`` of huge pages,
    NUMA nodes and storage pools in which disks can be made. ``vms`` is
    ``{name: {uuid, state, vcpus, memory_mib, affinity, anti_affinity}}``; ``coming`` is the same
    for those in ``building``, with ``disk_mib`` instead of ``uuid`` and ``state``; ``unfinished``
    names interrupted builds and purges; ``unreadable`` is ``{name: reason}`` of VMs with an
    unreadable record, with the remedy; ``cpu``, ``memory`` and ``storage`` have the committable
    amount (``..._limit``/``limit_mib``) and the committed one (``..._committed``/
    ``committed_mib``), sizes in MiB; ``cpu`` has ``features`` by domain type, including those that
    the model implies; ``domain_types`` has the kinds of guests that run here with the reason, and
    its ``default`` is None if KVM is offered but the test guest could not be started;
    ``machines`` lists machine types: ``{arch: {versions: {family: [oldest, newest]}, names}}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.host_info
    """
    # The probe of KVM starts a guest, which a read-only connection may not.
    with _module.opened("virt.host_info", kwargs) as (conn, settings):
        info = inspect.host_info(conn, settings)
        if moving in info.vms:
            migration_facts = sending.facts(conn, settings, moving)[moving]
            info = dataclasses.replace(info, moving=migration_facts)
        return wire.plain(info)


def placement_facts(about=None, **kwargs):
    """
    Return the part of ``virt.host_info`` that decides whether this host takes some VMs.

    about
        The VMs' needs: lists of ``groups``, ``tags``, ``bridges``, ``networks``, ``links``, ``nic``
        and ``disk`` profiles, CPU ``features``, domain ``types``, ``archs``, ``machines`` and
        ``stocks``; ``with_names`` (a flag), and the hosts that send more than names: ``only`` (a
        list of hosts), or ``seed`` and ``below``. All default to none.

    Returns ``{"names": {digest, listed, kept, building, unfinished, unreadable}, "offer": {limits,
    committed, arch, versions, domain_types, …}}``: ``offer`` has MiB, CPUs and the requested facts
    as in ``virt.host_info``; ``digest`` is that of the names of all VMs here, which ``listed`` has
    on request. Empty entries are left out.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.placement_facts '{nic: [default], disk: [default]}'
    """
    request = wire.argument("about", brief.Query, about or {})
    # The probe of KVM starts a guest, which a read-only connection may not.
    with _module.opened("virt.placement_facts", kwargs) as (conn, settings):
        return wire.plain(offering.facts(conn, settings, __opts__["id"], request))


def vms(name=None, state=None, tag=None, fields=None, **kwargs):
    """
    Return the host's node information with some of its VMs, for ``salt-run virt.query``.

    name
        Names and globs, a list or separated by commas. Defaults to all.
    state
        One or more of ``running``, ``paused``, ``shutdown`` and ``crashed``. Defaults to all.
    tag
        Only VMs with all of these: affinity and anti-affinity groups, and ``hold``. Default: any.
    fields
        The fields of each VM, such as ``state,mem``. Defaults to all of ``virt.vm_info``.

    Returns ``{freecpu, freemem, node_info, vm_info, names}``; ``freemem`` in MiB; ``names`` are of
    all VMs.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vms 'web*' state=running fields=mem,cpu
    """
    vm_filter = vmfilter.from_call(name, state, tag, fields)
    with _module.connection("virt.vms", kwargs, readonly=True) as conn:
        return inspect.vms(conn, vm_filter)


def vm_rows(name=None, state=None, tag=None, **kwargs):
    """
    Return the host's VMs as lines of a list, for ``salt-run virt.list``; no QEMU is asked.

    name, state, tag
        Only such VMs, as in ``virt.vms``. Default to all.

    Returns ``{name: {state, cpu, mem_mib, disk_mib, address, created}}``: ``disk_mib`` is the full
    size of the disks, ``address`` the one that a network of this host has leased to it, ``created``
    the seconds since 1970 when it was built; what is unknown is left out.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_rows 'web*' state=running
    """
    vm_filter = vmfilter.from_call(name, state, tag)
    with _module.connection("virt.vm_rows", kwargs, readonly=True) as conn:
        return wire.plain(listing.rows(conn, vm_filter))


def full_info(**kwargs):
    """
    Return the host's node information with all its VMs.

    Returns ``{freecpu, freemem, node_info, vm_info}``; ``freemem`` in MiB, ``vm_info`` as
    ``virt.vm_info`` has it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.full_info
    """
    with _module.connection("virt.full_info", kwargs, readonly=True) as conn:
        return inspect.full_info(conn)


def vm_state(vm_=None, **kwargs):
    """
    Return the state of one VM, or of all.

    vm_
        The VM's name. Defaults to all.

    Returns ``{name: "running" | "paused" | "shutdown" | "crashed"}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vm_state centos1
    """
    with _module.connection("virt.vm_state", kwargs, readonly=True) as conn:
        return query.states(conn) if vm_ is None else {vm_: query.state(conn, vm_)}


def migration_info(name=None):
    """
    Return the facts about a VM that another host needs to take it.

    name
        The VM's name. Defaults to all: ``{name: {...}}``.

    Returns ``{name, state, vcpus, memory_mib, disks, images, obstacles, ...}``; ``obstacles`` are
    the reasons why it cannot be moved at all. Nothing is changed.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migration_info centos1
    """
    with _module.opened() as (conn, settings):
        facts = sending.facts(conn, settings, name)
    return wire.plain(facts if name is None else facts[name])


optionguard.modules(
    globals(),
    harmless="signed",
    finishes="refuse_order",
)
