"""
Deploy VMs on this hypervisor and change their state.

.. versionadded:: 1.0.0

Sizes are in MiB by default. ``connection``, ``username`` and ``password`` of every function
override ``virt:connection:uri`` and ``virt:connection:auth``.
"""

from saltvirt.core import arguments, wire
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.libvirt import maintenance as upkeep
    from saltvirt.libvirt.domains import lifecycle, power
    from saltvirt.vm import spec
    from saltvirt.vm.create.host import create
    from saltvirt.vm.power.host import startlock
    from saltvirt.vm.purge.host import purge

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())
__func_alias__ = {"purge_": "purge"}


@_module.reports_errors
def init(name=None, cpu=None, mem=None, *values, **kwargs):
    """
    Create a VM on this host, seed it with a minion's identity and start it.

    name
        The VM's name, its minion id and its host name.
    cpu
        Number of virtual CPUs, or a mapping (``maximum``, ``topology``, ``model``, ...).
    mem
        Memory in MiB, or a mapping (``boot``, ``current``, ``max``, ...) of sizes like ``4g``.
    values
        The image, if the fourth value has a slash: ``virt.init NAME CPU MEM salt://centos.img``.
        Then those of Salt 3006 in its order: ``nic``, ``interfaces``, ``hypervisor``, ...
    nic
        NIC profile of ``virt:nic``. Defaults to ``default``: one virtio NIC on ``br0``. ``nat``
        needs no bridge: one virtio NIC on libvirt's network ``default``.
    interfaces
        NICs that override the profile's by ``name``, or are added to them.
    hypervisor
        ``kvm`` or ``qemu``. Defaults to ``virt:hypervisor``, else to KVM if it works here.
    start
        Start the VM when it is seeded. Defaults to True.
    autostart
        Have libvirt start the VM whenever the host boots; ``virt.set_autostart`` changes it.
        Defaults to False.
    disk
        Disk profile of ``virt:disk``. Defaults to ``default``: one disk of 8192 MiB.
    disks
        Disks that override the profile's by ``name``, or are added to them; sizes in MiB. As with
        Salt 3006, an existing file or volume with the disk's name becomes the disk, unchanged and
        without ``image`` and ``seed``, if it is sound and nothing else uses it. A cdrom's
        ``source_file`` may be a URL (http, https, ftp, ftps, tftp), which QEMU fetches.
    saltenv
        File server environment of ``salt://`` images. Defaults to ``base``.
    seed, install, config
        Whether to give the guest a minion's identity; whether to install a minion if it has none;
        more options for its minion configuration. Default to True, True and none.
    pub_key, priv_key
        The minion's key pair: PEM text or absolute paths on this host.
    seed_method
        ``nocloud``, ``guestfs``, ``nbd``, ``credentials``, or ``auto``: one that the image
        supports. Defaults to ``virt:seed:method``, else ``auto``.
    install_from
        Source of the minion if the image has none: a onedir tarball, packages or a
        script; ``{arch}`` stands for the guest's processor. Defaults to ``virt:seed:install_from``,
        else to the packages of ``salt-run virt_image.minion_packages``, else to the guest's own
        repositories, if they have a minion and the guest has cloud-init, or
        ``virt:seed:install_network`` is set.
    user_data
        More cloud-config, a mapping or text, merged over ``virt:seed:user_data``.
    ssh_authorized_keys
        OpenSSH public keys that may log in, a list or a text with a key per line: as the image's
        default user with ``nocloud``, else as root. Added to ``virt:seed:ssh_authorized_keys``.
        Defaults to none.
    seed_cmd
        Another function that seeds the first disk. Defaults to the built-in one.
    graphics, enable_vnc
        A ``graphics`` mapping, or True for VNC with the ``virt:vnc`` options (by default on
        127.0.0.1). Default to no display.
    image, image_hash, enable_qcow
        ``salt://``, ``http(s)://``, ``file://`` or absolute path of the first disk's content; its
        checksum as the file states take it (``sha256=...``, or where a file of checksums is);
        clone it as a qcow2 overlay (the default for qcow2 images) or not.
    os_type, arch, machine, boot, boot_dev, numatune, hypervisor_features, clock
        As libvirt has them; ``os_type`` is ``hvm``, its default; ``machine`` is a machine type such
        as ``pc-q35-7.2``, and defaults to the newest ``pc`` of the host's QEMU; ``boot`` is
        ``{kernel, initrd, cmdline}``, ``{loader, nvram}`` or ``{efi: True}``; kernel and initrd may
        be URLs. ``boot_dev`` is like ``"network hd"``.
    serials, consoles
        Lists of ``{type, path, host, port, ...}``. Default to one serial console, which is logged.
    stop_on_reboot, host_devices
        Stop instead of reboot; names of host devices to pass through.
    affinity, anti_affinity
        Names of groups; VMs of one anti-affinity group never share a host.
    dry_run
        Change nothing and return the plan as plain data: ``disks``, ``nics``, ``seed``, ``files``,
        ``to_fetch``, ``xml``, ... Images in ``to_fetch`` are not fetched, so facts that depend on
        them are unknown. Defaults to False.
    report
        For the runner: return errors as ``{"error", "kind", "retcode"}`` and fire progress events;
        ``{"unasked": [host], "others": [VM], "uuid": text, "images": {image: digest}}`` also has
        the hosts with an unknown inventory, the VMs with possible disks of the same name, the UUID
        of the new VM, and the digests of images on the file server.

    Returns True, or the plan of a dry run. Fails with one line and leaves nothing behind: a bad
    argument, an image that cannot be fetched or trusted, no room, a missing bridge, or a name that
    is taken or belongs to a VM that is being moved to or from this host. Undo: virt.purge.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.init centos1 2 512 salt://images/tiny.qcow2 dry_run=True
        salt hyper1 virt.init centos1 2 512 salt://images/tiny.qcow2
        salt hyper1 virt.purge centos1
    """
    report, is_dry = kwargs.pop("report", False), kwargs.pop("dry_run", False)
    work = create.show if arguments.boolean("dry_run", is_dry) else create.create
    override = {key: kwargs.pop(key) for key in config.CONNECTION if key in kwargs}
    context = _module.context(override, asks_master=True)
    options = spec.options_by_name(values, kwargs)
    deployment = spec.deployment(context.settings, name, cpu, mem, options)
    return work(context.reporting(name, "salt/virt/init", report), deployment)


def purge_(
    vm_,
    dirs=False,
    removables=False,
    uuid=None,
    only_made=False,
    report=False,
    test=False,
    **kwargs,
):
    """
    Remove a VM with its disks, its seed and its console log.

    vm_
        The VM's name.
    dirs
        Also remove the folders of its disks that are empty afterwards. Defaults to False.
    removables
        Also remove cdrom and floppy images. Defaults to False.
    uuid
        Remove the VM only if it has this UUID, and not if only its definition was kept here.
    only_made
        Remove only files that the build of the VM made; older disks stay. Fails if the definition
        does not record this; ``salt-run virt.init_many all_or_nothing=True`` records it. Defaults
        to False.
    report
        Return what was removed, instead of True: ``{removed, trashed, left, lost, entry, until,
        can_undo}``. Defaults to False.
    test
        Change nothing; return what would be removed, as with ``report``. Defaults to False.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    A needed file stays: a disk of another VM, a base of another disk, a snapshot or a file in the
    trash, a cached image. A volume of a storage pool is removed with the VM; a block or network
    disk in no pool stays, which is logged. The next purge finishes an interrupted one. Returns
    True; fails if there is no such VM, if it is being moved to or from this host, or if it has
    disks on storage that other hosts see: ``salt-run virt.purge`` asks these hosts. Undo:
    virt.undo, unless ``virt:trash_days`` is 0.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.purge centos1 test=True
        salt hyper1 virt.purge centos1
    """
    with_folders = arguments.boolean("dirs", dirs)
    flags = {"removables": arguments.boolean("removables", removables)}
    flags["only_made"] = arguments.boolean("only_made", only_made)
    is_reporting, is_dry = arguments.boolean("report", report), arguments.boolean("test", test)

    def purge_vm(conn, settings, elsewhere):
        if is_dry:
            plan = purge.plan(conn, settings, vm_, uuid=uuid, elsewhere=elsewhere, **flags)
            return wire.plain(plan)
        purged = purge.purge(
            conn, settings, vm_, uuid=uuid, elsewhere=elsewhere, dirs=with_folders, **flags
        )
        return wire.plain(purged) if is_reporting else True

    return _module.run_or_ask("virt.purge", kwargs, purge_vm)


def start(name, **kwargs):
    """
    Start a defined VM, unless it runs.

    name
        The VM's name.

    Returns True; fails if there is no such VM, if it is paused (virt.resume), if it is being moved
    to or from this host or being purged, or if libvirt refuses. Undo: virt.stop.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.start centos1
    """
    opened = _module.opened("virt.start", kwargs)
    with opened as (conn, settings), startlock.allow_start(conn, settings, name):
        power.refuse(conn, name, "start")
        lifecycle.start(conn, name)
    return True


def stop(name, **kwargs):
    """
    Stop a running VM at once, as pulling its plug would.

    name
        The VM's name.

    Returns True; fails if there is no such VM or it does not run. Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.stop centos1
    """
    with _module.connection("virt.stop", kwargs) as conn:
        power.act(conn, name, "destroy")
    return True


def shutdown(vm_, **kwargs):
    """
    Ask a running VM's guest to shut down; the guest may take its time or ignore it.

    vm_
        The VM's name.

    Returns True after the request; fails if the VM does not run, or is paused: a paused guest
    cannot shut down. Undo: virt.start.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.shutdown centos1
    """
    with _module.connection("virt.shutdown", kwargs) as conn:
        power.act(conn, vm_, "shutdown")
    return True


def reboot(name, **kwargs):
    """
    Ask a running VM's guest to reboot.

    name
        The VM's name.

    Returns True after the request; fails if the VM does not run.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.reboot centos1
    """
    with _module.connection("virt.reboot", kwargs) as conn:
        power.act(conn, name, "reboot")
    return True


def reset(vm_, **kwargs):
    """
    Reset a running VM at once, as its reset button would.

    vm_
        The VM's name.

    Returns True; fails if it does not run.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.reset centos1
    """
    with _module.connection("virt.reset", kwargs) as conn:
        power.act(conn, vm_, "reset")
    return True


def pause(vm_, **kwargs):
    """
    Pause a running VM: it keeps its memory and gets no CPU.

    vm_
        The VM's name.

    Returns True; fails if it does not run. Undo: virt.resume.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.pause centos1
    """
    with _module.connection("virt.pause", kwargs) as conn:
        power.act(conn, vm_, "suspend")
    return True


def resume(vm_, **kwargs):
    """
    Let a paused VM go on.

    vm_
        The VM's name.

    Returns True; fails if it does not run. Undo: virt.pause.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.resume centos1
    """
    with _module.connection("virt.resume", kwargs) as conn:
        power.act(conn, vm_, "resume")
    return True


def ctrl_alt_del(vm_, **kwargs):
    """
    Press Ctrl-Alt-Del on a running VM's keyboard.

    vm_
        The VM's name.

    Returns True; fails if it does not run.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.ctrl_alt_del centos1
    """
    with _module.connection("virt.ctrl_alt_del", kwargs) as conn:
        power.act(conn, vm_, "ctrl_alt_del")
    return True


def maintenance(state="on"):
    """
    Keep new VMs off this host, or accept them again; running VMs stay.

    state
        ``on`` (default) or ``off``.

    Returns the new state as a bool. Undo: the other state.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.maintenance on
        salt hyper1 virt.maintenance off
    """
    return upkeep.set_flag(_module.settings(), state)


optionguard.modules(globals(), looks_if={"init": optionguard.flag_rule("dry_run")})
