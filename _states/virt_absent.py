"""
States that remove a VM from a hypervisor, and cache an image there.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` of ``virt.absent`` override ``virt:connection:uri``
and ``virt:connection:auth``.
"""

import shlex
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage.images import cache, cachedimages
from saltvirt.vm.purge.host import purge

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def absent(name: str, removables: bool = False, **kwargs: Any) -> StateChange:
    """
    Stop a VM and remove it with its disks, as ``virt.purge`` does.

    name
        The VM's name; no pattern.
    removables
        Also remove cdrom and floppy images. Defaults to False.

    ``changes`` are ``{name: "purged"}``. Fails, and leaves the VM, where ``virt.purge`` refuses: if
    it is being moved to or from this host, or if another host may use its shared disks. With
    ``test=True`` this is not checked. Undo: ``salt HOST virt.undo NAME``, unless
    ``virt:trash_days`` is 0; the comment says so. The VM's key stays at the master.

    .. code-block:: yaml

        web1:
          virt.absent
    """
    arguments.boolean("removables", removables)
    opened = _module.opened("virt.absent", kwargs, readonly=_module.is_test)
    with opened as (conn, settings):
        is_defined = lifecycle.is_defined(conn, name)
        if not is_defined and set(name) & set("*?["):
            raise BadArgument("name", f"{name!r} is a pattern; name one VM")
        # After an interrupted purge only files may be left.
        is_left_over = is_defined or name in reservations.find_unfinished(settings)
        changes = {name: "purged"} if is_left_over else {}
        undo_text = ""
        if changes and not _module.is_test:
            purged = purge.purge(conn, settings, name, removables=removables)
            undo_text = f"; undo: virt.undo {shlex.quote(name)}" if purged.can_undo else ""
    return StateChange(
        changes,
        f"VM {name} would be removed with its disks",
        done=f"VM {name} was removed with its disks{undo_text}",
        unchanged=f"VM {name} is absent",
    )


def image_present(name: str, saltenv: str = "base", image_hash: str | None = None) -> StateChange:
    """
    Fetch an image into this host's cache, so that the first VM from it need not wait.

    name
        The image: ``salt://``, ``http(s)://``, ``file://`` or an absolute path.
    saltenv
        File server environment of ``salt://`` images. Defaults to ``base``.
    image_hash
        Its checksum, in the format of the file states; checked when the image is fetched. Defaults
        to none.

    A cached image from the web is not requested again: ``virt.image_pull`` does that.
    ``changes`` are ``{name: digest}``, its SHA-256, or with ``test=True`` None instead. Fails if
    the image cannot be fetched or trusted. Undo: ``virt.image_prune``.

    .. code-block:: yaml

        salt://images/debian.qcow2:
          virt.image_present
    """
    shown_name = arguments.hide_credentials(name)
    if not arguments.is_image(name):
        raise BadArgument("name", f"{shown_name!r} is not an image: salt://..., a path")
    context = _module.context()
    cached_image = cache.peek(name, saltenv, context.settings, context.opts)
    changes: dict[str, Any] = {} if cached_image else {shown_name: None}
    if changes and not _module.is_test:
        changes = {shown_name: cachedimages.pull(context, name, saltenv, image_hash)}
    return StateChange(
        changes,
        f"Image {shown_name} would be fetched",
        done=f"Image {shown_name} was fetched",
        unchanged=f"Image {shown_name} is here",
    )


optionguard.states(globals())
