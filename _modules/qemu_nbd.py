"""
Attach and mount disk images with qemu-nbd, so that this host's own kernel parses them.

.. versionadded:: 1.0.0

An untrusted disk can crash or take over the host this way: all functions need
``virt:seed:allow_host_mount: True``. guestfs.mount is safe without it.
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.core import undo
    from saltvirt.seeding import seedchoice
    from saltvirt.seeding.offline import hostmount
    from saltvirt.storage import writeguard

__virtual__ = hostmodule.load_everywhere
_module = hostmodule.HostModule(globals())


def _settings():
    settings = _module.settings()
    seedchoice.refuse_host_mount(settings)
    return settings


def connect(image):
    """
    Attach a disk image to a free nbd device.

    image
        The disk image; no VM may have it open.

    Returns the device. Fails with one line if the kernel has no nbd, or none is free. Undo:
    qemu_nbd.clear, or ``qemu-nbd --disconnect`` if nothing was mounted.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.connect /srv/debian.qcow2
    """
    settings, image = _settings(), arguments.text("image", image)
    return hostmount.connect(image, writeguard.opened_format(settings, image))


def mount(nbd, root=None):
    """
    Mount the partitions of an attached device with nodev, nosuid and noexec.

    nbd
        The device.
    root
        The folder of the mount points; only root may be able to change it and its parents.
        Defaults to a folder below ``virt:state_dir``.

    Returns ``{folder: device}``. Undo: qemu_nbd.clear.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.mount /dev/nbd0
    """
    return hostmount.mount_device(_settings(), arguments.text("nbd", nbd), root)


def init(image, root=None):
    """
    Attach a disk image and mount its partitions.

    image
        The disk image; no VM may have it open.
    root
        The folder of the mount points; only root may be able to change it and its parents.
        Defaults to a folder below ``virt:state_dir``.

    Returns ``{folder: device}``; leaves nothing attached if it fails. Undo: qemu_nbd.clear.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.init /srv/debian.qcow2
    """
    settings, image = _settings(), arguments.text("image", image)
    with undo.on_failure() as steps:
        device = hostmount.connect(image, writeguard.opened_format(settings, image))
        steps.undo_with(hostmount.disconnect, device)
        return hostmount.mount_device(settings, device, root)


def clear(mnt):
    """
    Unmount the folders of qemu_nbd.mount or qemu_nbd.init, and detach their device.

    mnt
        The mounts, as these functions return them.

    Returns the mounts that remain: ``{}`` on success. Undo: qemu_nbd.init.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.clear '{/srv/guest/nbd0p1: /dev/nbd0p1}'
    """
    _settings()
    return hostmount.clear(arguments.mapping("mnt", mnt) or {})


optionguard.modules(globals(), finishes="clear")
