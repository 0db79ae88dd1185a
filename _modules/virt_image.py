"""
Manage the cached images of this hypervisor.

.. versionadded:: 1.0.0
"""

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.seeding import golden
    from saltvirt.storage.images import cachedimages

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())

_STEPS = ("begin", "look", "end")


def images():
    """
    Return this host's cached images with their users, and golden images without a cached copy.

    Returns ``{digest: {source, format, virtual_bytes, file_bytes, users, os, has_minion,
    has_cloud_init}}``; ``users`` are VMs, and paths of overlays without a VM; the last three are
    None until the image was inspected (see ``seed_method``).

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.images
    """
    with _module.opened(readonly=True) as (conn, settings):
        return cachedimages.shown_images(conn, settings)


def image_pull(image, saltenv="base", image_hash=None):
    """
    Fetch an image into this host's cache, so that the first VM from it need not wait.

    image
        ``salt://``, ``http(s)://``, ``file://`` or an absolute path.
    saltenv
        File server environment of ``salt://`` images. Defaults to ``base``.
    image_hash
        Its checksum, in the format of the file states. Defaults to none.

    Returns its digest (SHA-256). Fails with one line if it cannot be fetched or trusted. Undo:
    virt.image_prune.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.image_pull salt://images/tiny.qcow2
    """
    context = _module.context()
    return cachedimages.pull(context, image, saltenv, image_hash)


def image_prune(digests=None, dry_run=False, step=None):
    """
    Remove cached images that no VM and no overlay on this host uses.

    digests
        Only these, a list or a comma-separated text; the prefixes in ``virt.images`` are enough.
        Defaults to all; ``salt-run virt.image_prune`` asks the other hosts first.
    dry_run
        Only return the images that would be removed. Defaults to False.
    step
        For the runner, with whole digests: ``begin``, then ``look`` on all hosts, then ``end``.
        Defaults to none: all steps, for this host alone.

    Returns ``{"removed": {digest: bytes}, "kept": {digest: why}}``. Fails while a VM is being built
    here. Undo: virt.image_pull.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.image_prune dry_run=True
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    if step not in (None, *_STEPS):
        raise BadArgument("step", f"{step!r}; one of {', '.join(_STEPS)}")
    if step and is_dry:
        raise BadArgument("dry_run", "step= cannot be combined with dry_run")
    requested_digests = arguments.names("digests", digests)
    with _module.opened(readonly=True) as (conn, settings):
        if step == "end":
            return cachedimages.end(conn, settings, requested_digests)
        if step == "begin":
            return cachedimages.begin(
                conn, settings, None if digests is None else requested_digests
            )
        if step == "look":
            return cachedimages.find_used(conn, settings, requested_digests)
        return cachedimages.prune(
            conn, settings, cachedimages.resolve_digests(settings, digests), is_dry=is_dry
        )


def image_build(
    source,
    name,
    packages=None,
    files=None,
    commands=None,
    install=True,
    install_from=None,
    sysprep=True,
    saltenv="base",
    image_hash=None,
    folder=None,
    replace=False,
    report=False,
):
    """
    Make a golden image, with the content that all VMs made from it shall have.

    source, saltenv, image_hash
        The image to begin with, as in ``virt.init``.
    name
        The name of the new image: ``NAME.qcow2``.
    packages
        Packages that the guest's own package manager installs; needs
        ``virt:seed:install_network: True``. Default: none.
    files
        ``{path in the guest: salt://..., or {source: ..., mode: 755}}``. Default: none.
    commands
        Commands for the guest's ``sh`` in the appliance, in order. Default: none.
    install, install_from
        Install a minion if there is none; its source (as in ``virt.init``). Default: True.
    sysprep
        Remove host keys, machine id, logs, minion keys, cloud-init's state. Default: True.
    folder
        The image's folder, such as the file server's. Default: ``golden`` below ``virt:images``.
    replace
        Replace an image of that name; VMs made from the old image keep it. Refused if a VM's disk
        is that file, or is based on its path. Default: False.
    report
        Fire progress events: for the runner.

    Returns ``{"path", "digest", "os", "has_minion", "has_cloud_init"}``; the path is an image for
    ``virt.init``. If the cache had no room for a copy of the image, ``warnings`` notes this.
    Fails with one line and leaves nothing. Undo: remove the path.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.image_build salt://images/tiny.qcow2 web install=False
        salt hyper1 file.remove /srv/salt-images/golden/web.qcow2
    """
    options = {k: v for k, v in locals().items() if k not in ("source", "name", "report")}
    return golden.build(
        _module.context().reporting(name, "salt/virt/image_build", report), source, name, options
    )


optionguard.modules(
    globals(),
    finishes_if={"image_prune": lambda keywords: keywords.get("step") in ("look", "end")},
)
