"""
Change a VM's definition and, as far as possible, the running VM.

.. versionadded:: 1.1.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.vm.update.host import apply, request

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def update(
    name,
    cpu=0,
    mem=0,
    disk_profile=None,
    disks=None,
    nic_profile=None,
    interfaces=None,
    graphics=None,
    live=True,
    boot=None,
    numatune=None,
    test=False,
    boot_dev=None,
    hypervisor_features=None,
    clock=None,
    serials=None,
    consoles=None,
    stop_on_reboot=False,
    host_devices=None,
    autostart=None,
    detach=False,
    **kwargs,
):
    """
    Change a VM's definition and, as far as possible, the running VM.

    name
        The VM's name.
    cpu
        Number of virtual CPUs, or a mapping as for virt.init.
    mem
        Memory in MiB or a size like ``2g``, or a mapping as for virt.init.
    disk_profile, disks
        The profile of ``virt:disk`` and all disks that the VM shall have, without its seed; sizes
        in MiB. An existing disk is recognised by its ``source_file``, or by its name in that of
        its file or volume; a drive by its order. Of its settings only ``model``, ``io``,
        ``iothread_id``, a drive's ``source_file`` and, of a file, a larger ``size`` are applied.
        New disks are made as by virt.init, and removed again if this fails; without an image, an
        existing file or volume of that name is taken. A ``size`` below the disk's is refused.
    nic_profile, interfaces
        The profile of ``virt:nic`` and all NICs that the VM shall have. An existing NIC is
        recognised by its MAC, or if none is given, by its bridge or network and its model.
    graphics
        The only display; ``{type: none}`` removes it. Omitted port, password, keymap and listener
        stay, if the type stays.
    live
        Change the running VM too. Defaults to True.
    boot
        ``{kernel, initrd, cmdline, loader, nvram, efi}``; ``efi: False``, or ``loader`` and
        ``nvram`` null, go back to the BIOS.
    numatune, hypervisor_features, clock
        Mappings as for virt.init.
    test
        Change nothing, and return the changes. Defaults to False.
    boot_dev
        Devices to boot from, such as ``"network hd"``.
    serials, consoles
        Lists of all serial ports and consoles that the VM shall have.
    stop_on_reboot
        Stop instead of reboot. Defaults to False, as before: such a VM reboots again. Null leaves
        the setting.
    host_devices
        Names of the host's devices that the VM shall have, as virt.node_devices lists them.
    autostart
        Start the VM with its host or not. Defaults to None: no change.
    detach
        Detach the disks, NICs, serial ports, consoles, displays and devices of the host that the
        VM has and the lists of the call omit; files of disks stay. Defaults to False: such a call
        is refused, and the error names the devices. ``virt:compat: 3006`` needs no ``detach``.

    Omitted settings stay. Null in a mapping removes a setting; entries with an id (CPU features,
    pins, timers, NUMA cells) are replaced as a whole. An empty list with ``detach=True`` clears.

    Returns ``{definition, disk: {attached, detached, updated}, interface: {attached, detached}}``:
    whether the definition changed, and the XML of the devices that changed live. Where they
    apply, also ``hostdev``, ``updated`` of interfaces, ``cpu`` and ``mem`` (True: changed live),
    ``autostart`` (the new value), ``restart`` (arguments that take effect at the VM's next start)
    and ``errors`` (libvirt's messages on refused live changes); with ``test``, ``diff`` (the
    changed lines of the definition, without passwords).
    Fails, and changes nothing, on a bad argument, a file that cannot be made, a VM without a
    definition or in a move to or from this host, or if libvirt refuses the definition. Undo: call
    it with the old values.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.update centos1 cpu=2 mem=1024 test=True
        salt hyper1 virt.update centos1 boot="{kernel: null}" live=False
        salt hyper1 virt.update centos1 interfaces="[]" detach=True test=True
    """
    options = {key: value for key, value in locals().items() if key not in ("name", "kwargs")}
    optionguard.refuse_change(globals(), is_look=arguments.boolean("test", test))
    override = config.connection("virt.update", kwargs)
    context = _module.context(override)
    return apply.update(context, request.from_call(context.settings, name, options))


optionguard.modules(globals(), itself="update")
