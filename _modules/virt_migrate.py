"""
Move VMs of this hypervisor to another; ``salt-run virt.migrate`` does all of it.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments, config, errors, spec
from saltvirt.kvm import connect, lifecycle
from saltvirt.kvm import migrate as jobs
from saltvirt.ops import inspect, migration, moving
from saltvirt.ops import purge as removal
from saltvirt.ops.context import Context

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings():
    return config.host_settings(__opts__, __pillar__, __grains__)


def _context():
    return Context(settings=_settings(), opts=__opts__, functions=__salt__)


def _say(name):
    def say(stage, **figures):
        event = {"name": name, "stage": stage, **figures}
        __salt__["event.fire_master"](event, "salt/virt/migrate")

    return say


def migrate(vm_, target, **kwargs):
    """
    Move a VM to another host; ``salt-run virt.migrate`` prepares that host first.

    vm_
        The VM's name.
    target
        A hypervisor's name, or a libvirt URI.
    kwargs
        ``live``, ``persistent``, ``undefinesource`` (all True), ``offline``, ``max_bandwidth`` and
        ``postcopy_bandwidth`` (MiB/s), ``max_downtime`` (ms), ``parallel_connections``,
        ``compressed``, ``comp_methods`` (``mt,xbzrle``), ``comp_mt_level``, ``comp_mt_threads``,
        ``comp_mt_dthreads``, ``comp_xbzrle_cache`` (bytes), ``copy_storage`` (``all`` or
        ``incremental``), ``postcopy``, ``postcopy_after`` (passes), ``limit_s`` (3600), ``stall_s``
        (60), ``username`` and ``password``; ``present`` and ``report`` are the runner's.

    Memory and disks are encrypted by QEMU's own TLS; with ``virt:tunnel`` everything goes through
    port 16514. Returns ``{total_ms, downtime_ms, memory_bytes, disk_bytes}``. Fails with one line
    and the VM where it was. Undo: move it back.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_prepare \
            "$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)"
        salt hyper1 virt.migrate centos1 hyper2 present=[]
        salt hyper2 virt.migrate_forget centos1
    """
    report, present = kwargs.pop("report", False), kwargs.pop("present", None)
    try:
        context = _context()
        options = spec.move(context.settings, kwargs)
        say = context.reporting(_say(vm_)) if report else context
        return migration.move(say, vm_, target, options, present)
    except errors.VirtError as error:
        if not report:
            raise
        __context__["retcode"] = 1
        return error.to_dict()


def migration_info(name=None):
    """
    Return what another host must know to take a VM.

    name
        The VM's name. Defaults to all: ``{name: {...}}``.

    Returns ``{name, state, vcpus, memory_mib, disks, images, obstacles, ...}``; ``obstacles`` says
    why it can be moved nowhere. Nothing is changed.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migration_info centos1
    """
    settings = _settings()
    with connect.opened(settings, readonly=False) as conn:
        found = migration.facts(conn, settings, name)
    return found if name is None else found[name]


def migrate_check(about, source=None):
    """
    Return why this host cannot take a VM; an empty list if it can. Nothing is changed.

    about
        The answer of ``virt.migration_info``, of one VM or of all; of all, the return is
        ``{name: [why]}`` of those that it cannot take.
    source
        The host that has it, whose libvirt must let this one in too. Of one VM only.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_check \
            "$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)"
    """
    settings = _settings()
    is_one = isinstance(about.get("disks"), list)
    with connect.opened(settings, readonly=False) as conn:
        if not is_one:
            return moving.check_all(conn, settings, about)
        why = moving.check(conn, settings, about)
    if source:
        try:
            migration.refuse_unreachable(source)
        except errors.VirtError as exc:
            why.append(str(exc))
    return why


def migrate_prepare(about, limit_s=3600, images_sent=False, source=None):
    """
    Claim room for a VM that comes, and make the files it will be written to.

    about
        The answer of ``virt.migration_info``.
    limit_s
        For how long they are kept if it does not come. Defaults to 3600.
    images_sent
        Go on after virt.migrate_push: what was sent is checked first. Defaults to False.
    source
        The host that has it, whose libvirt must let this one in too. Defaults to not looking.

    Returns ``{"images": {digest: path}, "present": [path]}``: images that must be sent here first,
    and media that are here already. Undo: virt.migrate_forget.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_prepare \
            "$(salt hyper1 virt.migration_info centos1 --out=json | jq -c .hyper1)"
        salt hyper2 virt.migrate_forget centos1
    """
    context = _context()
    if source:
        migration.refuse_unreachable(source)
    with connect.opened(context.settings, readonly=False) as conn:
        if images_sent:
            return moving.resume(context, conn, about)
        return moving.prepare(context, conn, about, limit_s)


def migrate_push(name, target, images):
    """
    Send cached images below a VM's disks to another host.

    name
        The VM's name.
    target
        The host that takes it.
    images
        ``{digest: path there}``, as ``virt.migrate_prepare`` answers.

    Returns True.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_push centos1 hyper2 '{}'
    """
    settings = _settings()
    migration.send_files(settings, target, moving.image_paths(settings, images))
    return True


def migrate_forget(name):
    """
    Give up what virt.migrate_prepare made, unless the VM has come.

    name
        The VM's name.

    Returns whether the VM is here.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.migrate_forget centos1
    """
    settings = _settings()
    with connect.opened(settings, readonly=False) as conn:
        return moving.forget(conn, settings, name)


def stay(name, state="on"):
    """
    Tag a VM to stay on its host when ``virt.rebalance`` evens out the load; others ways move it.

    name
        The VM's name.
    state
        ``on`` (default) or ``off``.

    Returns True. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.stay centos1 on
    """
    with connect.opened(_settings(), readonly=False) as conn:
        lifecycle.set_stay(conn, name, arguments.on_off("state", state))
    return True


def load(seconds=1):
    """
    Return what the VMs of this host really use.

    seconds
        For how long the CPUs are watched. Defaults to 1.

    Returns ``{cpus, memory_mib, vms: {name: {cpu, memory_mib}}}``: CPUs in use, resident MiB.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.load
    """
    with connect.opened(_settings()) as conn:
        return inspect.load(conn, arguments.whole("seconds", seconds, most=60))


def evacuated(vms=None):
    """
    Return which VMs an evacuation moved away from this host, and where to; or note some.

    vms
        ``{name: host}`` to note, ``{name: None}`` to forget.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.evacuated
    """
    return removal.evacuated(_settings(), vms or {})


def migrate_status(vm_):
    """
    Return how far the migration of a VM is.

    vm_
        The VM's name.

    Returns ``{percent, elapsed_ms, memory_bytes, disk_bytes, remaining_bytes, rate_bytes_s,
    dirty_pages_s, page_bytes, passes, downtime_ms}``, what libvirt knows of them; empty if it is
    not being moved.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.migrate_status centos1
    """
    with connect.opened(_settings()) as conn:
        return jobs.status(conn, vm_)


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
    with connect.opened(_settings(), readonly=False) as conn:
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
    with connect.opened(_settings(), readonly=False) as conn:
        jobs.start_postcopy(conn, vm_)
    return True


def seed_non_shared_migrate(disks, force=False):
    """
    Make empty disks for a VM that comes, as Salt 3006 did.

    disks
        The answer of ``virt.get_disks`` on the host that has it.
    force
        Replace files that are there. Defaults to False.

    Returns True; fails if a file is there. Undo: remove the files.

    CLI Example:

    .. code-block:: bash

        salt hyper2 virt.seed_non_shared_migrate \
            "{vdb: {file: /srv/d7.qcow2, file format: qcow2, virtual size: 1048576}}" force=True
    """
    moving.seed(disks, force)
    return True
