"""
Attach and mount disk images with qemu-nbd, so that this host's own kernel parses them.

.. versionadded:: 1.0.0

A disk that a stranger made can crash or take over the host that way: everything here needs
``virt:seed:allow_host_mount: True``. guestfs.mount is safe without.
"""

from saltvirt import arguments, config, optionguard
from saltvirt.later import Later

hostmount = Later("saltvirt.seed.hostmount")
method = Later("saltvirt.ops.seeding.method")
undo = Later("saltvirt.undo")
written = Later("saltvirt.ops.written")


def __virtual__():
    """Load everywhere; a host without qemu-nbd says so when it is called."""
    return True


def _settings():
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    method.refuse_host_mount(settings)
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
    return hostmount.connect(image, written.opened_format(settings, image))


def mount(nbd, root=None):
    """
    Mount the partitions of an attached device, without devices, set-user-id and programs.

    nbd
        The device.
    root
        The folder below which they are mounted, which nobody but root can change, nor those above
        it. Defaults to one below ``virt:state_dir``.

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
        The folder below which they are mounted, which nobody but root can change, nor those above
        it. Defaults to one below ``virt:state_dir``.

    Returns ``{folder: device}``; leaves nothing attached if it fails. Undo: qemu_nbd.clear.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.init /srv/debian.qcow2
    """
    settings, image = _settings(), arguments.text("image", image)
    with undo.on_failure() as steps:
        device = hostmount.connect(image, written.opened_format(settings, image))
        steps.undo_with(hostmount.disconnect, device)
        return hostmount.mount_device(settings, device, root)


def clear(mnt):
    """
    Unmount what qemu_nbd.mount or qemu_nbd.init mounted, and detach it.

    mnt
        What they returned.

    Returns what is still mounted: ``{}`` if all went well. Undo: qemu_nbd.init.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_nbd.clear '{/srv/guest/nbd0p1: /dev/nbd0p1}'
    """
    _settings()
    return hostmount.clear(arguments.mapping("mnt", mnt) or {})


optionguard.modules(globals(), finishes="clear")
