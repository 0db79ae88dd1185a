"""
Move VMs of this hypervisor to another; ``salt-run virt.migrate`` runs the whole protocol.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments, errors, wire
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt import maintenance
    from saltvirt.libvirt.domains import lifecycle
    from saltvirt.libvirt.domains import migrate as jobs
    from saltvirt.libvirt.storage import diskvolumes
    from saltvirt.migration import movespec
    from saltvirt.migration.host import departure, incomingfiles, peer
    from saltvirt.vm.show.host import inspect

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


@_module.reports_errors
def migrate(vm_, target, **kwargs):
    """
    Move a VM to another host; ``salt-run virt.migrate`` prepares that host first.

    vm_
        The VM's name.
    target
        A hypervisor's name, or ``qemu+tls://NAME/system``. Other URIs are refused.
    kwargs
        ``live`` (True; False for an emulated VM of a QEMU before 9.0, which would lose what it
        writes), ``persistent``, ``undefinesource`` (both True), ``offline``, ``max_bandwidth`` and
        ``postcopy_bandwidth`` (MiB/s), ``max_downtime`` (ms), ``parallel_connections`` (for the
        memory of a running VM; 2 where both QEMUs can, 0 and 1 are one connection; one with
        ``postcopy``, ``compressed`` and ``virt:tunnel``), ``compressed``, ``comp_methods``
        (``mt,xbzrle``), ``comp_mt_level``, ``comp_mt_threads``, ``comp_mt_dthreads``,
        ``comp_xbzrle_cache`` (bytes), ``copy_storage`` (``all`` or ``incremental``), ``postcopy``,
        ``postcopy_after`` (passes), ``limit_s`` (3600), ``stall_s`` (60); ``token``, ``present``
        and ``report`` are the runner's. ``username`` and ``password`` are refused: hosts have
        certificates.

    With ``undefinesource=False`` or ``persistent=False`` the definition stays here, without
    autostart and with a record of the VM's new host; ``virt.start`` refuses it.

    Memory and disks are encrypted by QEMU's own TLS; with ``virt:tunnel`` everything goes through
    port 16514. Returns ``{total_ms, downtime_ms, memory_bytes, disk_bytes}``, with a token also
    ``noted`` (the record that the target needs), and ``warnings`` if an emulated VM was moved
    while it ran and may have lost data. Fails with one line, and leaves the VM on this host. Undo:
    move it back.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_begin centos1 t1 hyper2
        salt hyper2 virt.migrate_prepare token=t1 source=hyper1 \
            about="$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)"
        salt hyper1 virt.migrate centos1 hyper2 token=t1 present=[]
        salt-run virt.settle centos1
    """
    report, present, token = (kwargs.pop(key, None) for key in ("report", "present", "token"))
    peer.refuse_strange("target", target)
    context = _module.context()
    options = movespec.from_call(context.settings, kwargs)
    context = context.reporting(vm_, "salt/virt/migrate", report)
    if token is not None:
        return departure.send(context, vm_, token, target, options, present)
    if present is not None:
        raise errors.BadArgument("present", "needs a token; salt-run virt.migrate passes both")
    return departure.move_unprepared(context, vm_, target, options)


def hold(name, state="on"):
    """
    Tag a VM that ``virt.rebalance`` must not move; other commands still move it.

    name
        The VM's name.
    state
        ``on`` (default) or ``off``.

    Returns True. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.hold centos1 on
    """
    with _module.opened() as (conn, settings):
        lifecycle.set_stay(conn, name, arguments.on_off("state", state))
    return True


def load(seconds=1):
    """
    Return the CPUs and memory that this host's VMs actually use.

    seconds
        Seconds of measuring the CPUs. Defaults to 1.

    Returns ``{cpus, memory_mib, vms: {name: {cpu, memory_mib}}}``: CPUs in use, resident MiB.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.load
    """
    with _module.opened(readonly=True) as (conn, _settings):
        return wire.plain(inspect.load(conn, arguments.whole_number("seconds", seconds, most=60)))


def evacuated(vms=None):
    """
    Return the records of VMs that evacuations moved away from this host; or change them.

    vms
        ``{name: None}`` to forget. The master records ``{name: {"hosts", "uuid", "proof"}}``.

    Returns the records: for each VM its hosts in order. ``salt-run virt.restore`` moves a VM back
    from any of these hosts if the proof is from this master. A record without a proof is ``{name:
    [hosts]}``: virt.restore names it, but does not act on it.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.evacuated
        salt hyper1 virt.evacuated "{centos1: null}"
    """
    return maintenance.note_evacuated(_module.settings(), vms)


def migrate_status(vm_):
    """
    Return the progress of a VM's migration.

    vm_
        The VM's name.

    Returns ``{percent, elapsed_ms, memory_bytes, disk_bytes, remaining_bytes, rate_bytes_s,
    dirty_pages_s, page_bytes, passes, downtime_ms}``, as far as libvirt knows them; empty if the VM
    is not being moved. ``percent`` is that of the disks, and after these, of the memory.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_status centos1
    """
    with _module.opened(readonly=True) as (conn, _settings):
        return jobs.read_current_job(conn, vm_)


def migrate_cancel(vm_):
    """
    End the migration of a VM; it stays where it is.

    vm_
        The VM's name.

    Returns True; fails if it is not being moved.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_cancel centos1
    """
    with _module.opened() as (conn, settings):
        jobs.cancel(conn, vm_)
    return True


def migrate_start_postcopy(vm_):
    """
    Switch a migration that was begun with ``postcopy=True`` to post-copy.

    vm_
        The VM's name.

    Returns True.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_start_postcopy centos1
    """
    with _module.opened() as (conn, settings):
        jobs.start_postcopy(conn, vm_)
    return True


def seed_non_shared_migrate(disks, force=False):
    """
    Make empty disks for an arriving VM, as Salt 3006 did.

    disks
        The answer of ``virt.get_disks`` on the source; ``POOL/VOLUME`` is made in the pool of that
        name.
    force
        Replace existing files that no VM has. Defaults to False.

    Returns True; fails without making any file if one exists. Undo: remove the files.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.seed_non_shared_migrate \
            "{vdb: {file: /srv/d7.qcow2, file format: qcow2, virtual size: 1048576}}" force=True
    """
    with _module.opened() as (conn, settings):
        incomingfiles.seed(conn, settings, disks, force)
        diskvolumes.refresh(conn, incomingfiles.pools_of(disks))
    return True


optionguard.modules(
    globals(),
    finishes="evacuated migrate_cancel migrate_start_postcopy",
    finishes_if={"migrate": lambda keywords: keywords.get("token") is not None},
)
