"""
Answer what the master's runner asks of this hypervisor, signed; all of it can be asked by hand too.

.. versionadded:: 1.0.0

Salt loads the files of a module one after the other, by their names, until one has the function of
a job: what each command asks of each host is in the first. ``connection``, ``username`` and
``password`` override ``virt:connection:uri`` and ``virt:connection:auth``.
"""

import dataclasses

from saltvirt import arguments, config, optionguard, wire
from saltvirt.kvm import connect
from saltvirt.later import Later

answering = Later("saltvirt.ops.answering")
brief = Later("saltvirt.placement.brief")
inspect = Later("saltvirt.ops.inspect")
offering = Later("saltvirt.ops.offering")
ordered = Later("saltvirt.ops.ordered")
purging = Later("saltvirt.ops.purge")
query = Later("saltvirt.kvm.query")
sending = Later("saltvirt.ops.migration.sending")
fileusers = Later("saltvirt.storage.fileusers")
vmfilter = Later("saltvirt.vmfilter")

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _open_connection(function, keywords):
    return connect.open_connection(
        config.connection_settings(function, keywords, __opts__, __pillar__, __grains__)
    )


def signed(order, small=False, **kwargs):
    """
    Do one of this project's functions for the master's runner, and sign what it answers.

    order
        ``{"fun", "arg", "kwarg", "id"}``, or the same sealed for this minion. One that has an
        ``id`` is done once, and not after ``virt.refuse_order``.
    small
        Whether the answer is packed where that is worth it. Defaults to False, as masters of
        earlier releases do not unpack it.

    Functions of ``virt`` are done, and no others but those that the runner needs: whoever may call
    this may call no more than before. Returns ``{"said", "signature"}``; what went wrong is in it.

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
        lambda: config.host_settings(__opts__, __pillar__, __grains__),
        is_small=bool(small),
    )


def refuse_order(order_id):
    """
    Never begin an order that the master has given up, though its job may still be queued here.

    order_id
        Its id, which the master's runner has made.

    Returns ``refused`` when it is not begun and never will be, ``running`` if it is being done, and
    ``over`` if it was. Forgotten after 5,000 later ones, at the earliest.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.refuse_order 4f2c8a52c0f14de0a5f8a0a5f0f3b1c7
    """
    return ordered.refuse(config.host_settings(__opts__, __pillar__, __grains__), order_id)


def presence(name, **kwargs):
    """
    Return whether this host has a VM, without looking at any other.

    name
        The VM's name.

    Returns ``{"state": str or None, "building": bool, "unfinished": bool}``; ``building`` means
    that it is being built here, or is on its way here from another host; ``unfinished`` that its
    ``virt.init`` was interrupted and the next one, or a purge, cleans up, or that a record of it
    cannot be read, which the next command for that VM says. A VM has a ``uuid``. If it has moved
    and only its definition was kept here, ``moved_to`` names the host that has it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.presence centos1
    """
    settings = config.for_call("virt.presence", kwargs, __opts__, __pillar__, __grains__)
    with connect.open_connection(settings) as conn:
        return wire.plain(inspect.presence(conn, settings, name))


def shared_files(name, **kwargs):
    """
    Return which files of a VM other hosts see, and so have to be asked about before it is purged.

    name
        The VM's name.
    removables
        Its cdrom and floppy images too. Defaults to False.

    Returns a list of paths and of ``POOL/VOLUME``; an empty one if this host has no such VM.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shared_files centos1
    """
    is_whole = arguments.boolean("removables", kwargs.pop("removables", False))
    settings = config.for_call("virt.shared_files", kwargs, __opts__, __pillar__, __grains__)
    with connect.open_connection(settings) as conn:
        return purging.find_shared_files(conn, settings, name, removables=is_whole)


def file_users(paths, uuid=None, **kwargs):
    """
    Return what on this host needs files that another host is to remove or to write over.

    paths
        The files: paths, or ``POOL/VOLUME``.
    uuid
        The VM that is removed: a definition that a move left here needs no file. Defaults to none.

    Returns ``{path: {"used_by": [reason], "doubts": [reason]}}`` of all of them.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.file_users '[/mnt/shared/web1_system.qcow2]'
    """
    settings = config.for_call("virt.file_users", kwargs, __opts__, __pillar__, __grains__)
    with connect.open_connection(settings) as conn:
        return wire.plain(fileusers.file_users(conn, settings, paths, uuid))


def host_info(moving=None, **kwargs):
    """
    Return what this host has, and what it has promised to VMs.

    moving
        A VM that is to be moved: if this host has it, the answer also has ``moving``, what
        ``virt.migration_info`` returns of it. Defaults to none.

    Returns ``{maintenance, vms, building, coming, unfinished, unreadable, cpu, memory, storage,
    bridges, links, networks, profiles, domain_types, archs, machines, versions, tags, stocks}``.
    ``tags`` are ``virt:tags``; ``stocks`` are ``{name: {limit_mib, committed_mib}}`` of huge pages,
    NUMA nodes and storage pools in which disks can be made. ``vms`` is
    ``{name: {uuid, state, vcpus, memory_mib, affinity, anti_affinity}}``; ``coming`` is the same
    for those in ``building``, with ``disk_mib`` instead of ``uuid`` and ``state``; ``unfinished``
    names builds and purges that were interrupted; ``unreadable`` is ``{name: why}`` of VMs that
    have a record which cannot be read, with what to do; ``cpu``, ``memory`` and ``storage`` have
    what can be promised (``..._limit``/``limit_mib``) and what is promised
    (``..._committed``/``committed_mib``), sizes in MiB; ``cpu`` has ``features`` by domain type,
    including those that the model implies; ``domain_types`` says which kinds of guests run here and
    why, and its ``default`` is None if KVM is offered but the test guest could not be started;
    ``machines`` lists machine types: ``{arch: {versions: {family: [oldest, newest]}, names}}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.host_info
    """
    settings = config.for_call("virt.host_info", kwargs, __opts__, __pillar__, __grains__)
    # The probe of KVM starts a guest, which a read-only connection may not.
    with connect.open_connection(settings, readonly=False) as conn:
        info = inspect.host_info(conn, settings)
        if moving in info.vms:
            migration_facts = sending.facts(conn, settings, moving)[moving]
            info = dataclasses.replace(info, moving=migration_facts)
        return wire.plain(info)


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
    request = wire.argument("about", brief.Query, about or {})
    # The probe of KVM starts a guest, which a read-only connection may not.
    with connect.open_connection(settings, readonly=False) as conn:
        return wire.plain(offering.facts(conn, settings, __opts__["id"], request))


def vms(name=None, state=None, tag=None, fields=None, **kwargs):
    """
    Return the host's node information with some of its VMs, as ``salt-run virt.query`` asks for it.

    name
        Names and globs, a list or separated by commas. Defaults to all.
    state
        One or more of ``running``, ``paused``, ``shutdown`` and ``crashed``. Defaults to all.
    tag
        Only VMs with all of these: affinity and anti-affinity groups, and ``hold``. Default: any.
    fields
        What to show of each VM, such as ``state,mem``. Defaults to all that ``virt.vm_info`` has.

    Returns ``{freecpu, freemem, node_info, vm_info, names}``; ``freemem`` in MiB; ``names`` are of
    all VMs.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.vms 'web*' state=running fields=mem,cpu
    """
    vm_filter = vmfilter.from_call(name, state, tag, fields)
    with _open_connection("virt.vms", kwargs) as conn:
        return inspect.vms(conn, vm_filter)


def full_info(**kwargs):
    """
    Return the host's node information with all its VMs.

    Returns ``{freecpu, freemem, node_info, vm_info}``; ``freemem`` in MiB, ``vm_info`` as
    ``virt.vm_info`` has it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.full_info
    """
    with _open_connection("virt.full_info", kwargs) as conn:
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
    with _open_connection("virt.vm_state", kwargs) as conn:
        return query.states(conn) if vm_ is None else {vm_: query.state(conn, vm_)}


def migration_info(name=None):
    """
    Return what another host must know to take a VM.

    name
        The VM's name. Defaults to all: ``{name: {...}}``.

    Returns ``{name, state, vcpus, memory_mib, disks, images, obstacles, ...}``; ``obstacles`` says
    why it cannot be moved at all. Nothing is changed.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migration_info centos1
    """
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    with connect.open_connection(settings, readonly=False) as conn:
        facts = sending.facts(conn, settings, name)
    return wire.plain(facts if name is None else facts[name])


optionguard.modules(
    globals(),
    harmless="signed",
    finishes="refuse_order",
)
