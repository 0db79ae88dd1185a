"""
Make and convert disk images.

.. versionadded:: 1.0.0
"""

import os
from pathlib import Path

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.core import units, writelimit
    from saltvirt.storage.images import clone, tool, validation

__virtual__ = hostmodule.load_everywhere
_module = hostmodule.HostModule(globals())

_FORMATS = ("qcow2", "raw", "vmdk", "vdi", "vpc", "vhdx")


def _new(argument, path, fmt):
    if fmt not in _FORMATS:
        raise BadArgument("fmt", f"{fmt!r}; one of {', '.join(_FORMATS)}")
    if not Path(arguments.text(argument, path)).is_absolute() or not Path(path).parent.is_dir():
        raise BadArgument(argument, f"{path!r} is not an absolute path in an existing folder")
    # Also a dangling link: qemu-img would write to its target as root.
    if os.path.lexists(path):
        raise StorageError(f"{path} exists already; remove it or choose another name")


def make_image(location, size, fmt):
    """
    Make an empty disk image.

    location
        The absolute path of the image; it must not exist.
    size
        MiB, or a size like ``4g``.
    fmt
        ``qcow2``, ``raw``, ``vmdk``, ``vdi``, ``vpc`` or ``vhdx``.

    Returns the path. Only root can read it until libvirt gives it to QEMU. Undo: remove the file.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_img.make_image /srv/empty.qcow2 64 qcow2
        salt hyper1 file.remove /srv/empty.qcow2
    """
    _new("location", location, fmt)
    with clone.remove_on_failure(location):
        size_mib = arguments.whole_number("size", units.size_mib(size, "size"))
        tool.create(location, size_mib * units.MIB, fmt)
    return location


def convert(orig, dest, fmt):
    """
    Copy a disk image's content into another format.

    orig
        A qcow2 or raw image; an image that refers to other files is refused.
    dest
        The absolute path of the copy, which only root can read; it must not exist.
    fmt
        ``qcow2``, ``raw``, ``vmdk``, ``vdi``, ``vpc`` or ``vhdx``.

    Returns True. Fails with one line, and leaves nothing, if the copy would exceed
    ``virt:image_max_gib``, ``virt:image_limit_s`` or the room above ``virt:disk_reserve_mib``.
    Undo: remove the copy.

    CLI Example:

    .. code-block:: bash

        salt hyper1 qemu_img.make_image /srv/empty.qcow2 64 qcow2
        salt hyper1 qemu_img.convert /srv/empty.qcow2 /srv/empty.vmdk vmdk
        salt hyper1 file.remove /srv/empty.qcow2
        salt hyper1 file.remove /srv/empty.vmdk
    """
    _new("dest", dest, fmt)
    validated = validation.validate(arguments.text("orig", orig))
    settings = _module.settings()
    meter = writelimit.from_settings(settings).meter(orig, Path(dest).parent)
    with clone.remove_on_failure(dest):
        tool.convert(orig, validated.format, dest, fmt, meter)
    return True


optionguard.modules(globals())
