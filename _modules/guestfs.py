"""
Mount a guest's disk through libguestfs: the host's kernel parses none of its file systems.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.seeding.offline import guestmount
    from saltvirt.storage import diskpaths, writeguard

__virtual__ = hostmodule.load_everywhere
_module = hostmodule.HostModule(globals())


def mount(location, access="rw", root=None):
    """
    Mount all file systems of a disk image below a folder.

    location
        The disk image; no VM may have it open. With ``rw`` it must not be a cached or golden image,
        nor needed unchanged by a disk, a snapshot or a saved state of a VM, or a disk in the trash.
    access
        ``rw`` (default) or ``ro``.
    root
        The mount point; only root may be able to change this folder and its parents. Defaults to
        a folder below ``virt:state_dir``.

    Returns the folder. Fails with one line if the disk has no system. Undo: guestfs.umount.

    CLI Example:

    .. code-block:: bash

        salt hyper1 guestfs.mount /srv/debian.qcow2 root=/srv/guest
        salt hyper1 guestfs.umount /srv/guest
    """
    arguments.text("location", location)
    settings = _module.settings()
    # Read-only access cannot damage the disk.
    opener = diskpaths if access == "ro" else writeguard
    fmt = opener.opened_format(settings, location)
    return guestmount.mount(settings, location, fmt, access, root)


def umount(name, disk=None, force=False):
    """
    Unmount a folder of guestfs.mount, and wait until its disk is released.

    name
        The folder.
    disk
        Accepted for old calls; umount always waits for the disk.
    force
        First end an appliance that no longer answers; unwritten data is lost. Defaults to False.

    Returns True; fails if nothing is mounted there. Undo: guestfs.mount.

    CLI Example:

    .. code-block:: bash

        salt hyper1 guestfs.mount /srv/debian.qcow2 ro root=/srv/guest
        salt hyper1 guestfs.umount /srv/guest
    """
    settings = _module.settings()
    mount_folder = arguments.text("name", name)
    return guestmount.umount(settings, mount_folder, force=arguments.boolean("force", force))


optionguard.modules(globals(), finishes="umount")
