"""
The cached images of this hypervisor.

.. versionadded:: 1.0.0
"""

from saltvirt import arguments, config
from saltvirt.kvm import connect
from saltvirt.ops import images as cached
from saltvirt.ops.context import Context

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings():
    return config.host_settings(__opts__, __pillar__, __grains__)


def images():
    """
    Return the cached images of this host and who uses them.

    Returns ``{digest: {source, format, virtual_bytes, file_bytes, users, os, has_minion,
    has_cloud_init}}``; ``users`` are VMs, and overlays of no VM by their path; the last three are
    None until the image was looked into (see ``seed_method``).

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.images
    """
    settings = _settings()
    with connect.opened(settings) as conn:
        return cached.listed(conn, settings)


def image_pull(image, saltenv="base", image_hash=None):
    """
    Fetch an image into this host's cache, so that the first VM from it need not wait.

    image
        ``salt://``, ``http(s)://``, ``file://`` or an absolute path.
    saltenv
        Where ``salt://`` images are looked for. Defaults to ``base``.
    image_hash
        Its checksum as the file states take it. Defaults to none.

    Returns its digest (SHA-256). Fails with one line if it cannot be had or trusted. Undo:
    virt.image_prune.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.image_pull salt://images/tiny.qcow2
    """
    settings = _settings()
    context = Context(settings=settings, opts=__opts__, functions=__salt__)
    return cached.pull(context, image, saltenv, image_hash)


def image_prune(digests=None, dry_run=False):
    """
    Remove cached images that no VM and no overlay on this host uses.

    digests
        Only these. Defaults to all; ``salt-run virt.image_prune`` asks the other hosts first.
    dry_run
        Only say what would be removed. Defaults to False.

    Returns ``{"removed": {digest: bytes}, "kept": {digest: why}}``. Fails while a VM is being built
    here. Undo: virt.image_pull.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.image_prune dry_run=True
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    settings = _settings()
    with connect.opened(settings) as conn:
        return cached.prune(conn, settings, digests, is_dry=is_dry)
