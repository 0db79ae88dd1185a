"""
Mount a guest's disk through libguestfs: the host's kernel parses none of its file systems.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments, config, optionguard
from saltvirt.later import Later

guestmount = Later("saltvirt.seed.guestmount")
storage = Later("saltvirt.ops.storage")
written = Later("saltvirt.ops.written")


def __virtual__():
    """Load everywhere; a host without guestmount says so when it is called."""
    return True


def mount(location, access="rw", root=None):
    """
    Mount all file systems of a disk image below a folder.

    location
        The disk image; no VM may have it open. To be written to, it must be no cached or golden
        image, and nothing a disk, a snapshot or a saved state of a VM, or a disk in the trash needs
        as it is.
    access
        ``rw`` (default) or ``ro``.
    root
        The folder, which nobody but root can change, nor those above it. Defaults to one below
        ``virt:state_dir``.

    Returns the folder. Fails with one line if there is no system in it. Undo: guestfs.umount.

    CLI Example:

    .. code-block:: bash

        salt hyper1 guestfs.mount /srv/debian.qcow2 root=/srv/guest
        salt hyper1 guestfs.umount /srv/guest
    """
    arguments.text("location", location)
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    # What is only read spoils nothing.
    opener = storage if access == "ro" else written
    fmt = opener.opened_format(settings, location)
    return guestmount.mount(settings, location, fmt, access, root)


def umount(name, disk=None, force=False):
    """
    Unmount what guestfs.mount mounted, and wait until its disk is released.

    name
        The folder.
    disk
        Accepted for old calls; it is always waited for.
    force
        End the appliance first, if it does not answer any more: what it has not written is lost.
        Defaults to False.

    Returns True; fails if nothing is mounted there. Undo: guestfs.mount.

    CLI Example:

    .. code-block:: bash

        salt hyper1 guestfs.mount /srv/debian.qcow2 ro root=/srv/guest
        salt hyper1 guestfs.umount /srv/guest
    """
    settings = config.host_settings(__opts__, __pillar__, __grains__)
    mount_folder = arguments.text("name", name)
    return guestmount.umount(settings, mount_folder, force=arguments.boolean("force", force))


optionguard.modules(globals(), finishes="umount")
