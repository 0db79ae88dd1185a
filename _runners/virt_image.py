"""
Manage the cached images of all hypervisors.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.storage.master import images as cached

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_images")
def images(host=None, quiet=False):
    """
    Show the cached images of each host with their users, and golden images without a cached copy.

    host
        Only this hypervisor.
    quiet
        Show no progress. Defaults to False.

    Returns ``{host: {digest: {source, format, virtual_bytes, file_bytes, users, os, has_minion,
    has_cloud_init}}}``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.images
        salt-run virt.images hyper1 --out=json
    """
    cloud = Cloud.of(__opts__, __jid_event__, "images", quiet, is_reading=True)
    return cached.show_images(cloud, host)


@runner_function
def image_pull(image, host=None, saltenv="base", image_hash=None, quiet=False):
    """
    Have all hypervisors fetch an image now, so that no VM waits for it.

    image
        ``salt://``, ``http(s)://``, ``file://`` or an absolute path on the hypervisors.
    host
        Only this hypervisor.
    saltenv
        File server environment of ``salt://`` images. Defaults to ``base``.
    image_hash
        Its checksum, in the format of the file states. Defaults to none.
    quiet
        Show no progress. Defaults to False.

    Returns ``{host: digest}``; fails with one line if a host could not get it. Undo:
    virt.image_prune.

    CLI Example:

    .. code-block:: bash

        salt-run virt.image_pull salt://images/tiny.qcow2
    """
    kwarg = {"saltenv": saltenv, "image_hash": image_hash}
    return cached.pull(Cloud.of(__opts__, __jid_event__, "images", quiet), image, host, kwarg)


@runner_function
def image_prune(dry_run=False, quiet=False):
    """
    Remove the cached images that no VM and no overlay on any hypervisor uses.

    dry_run
        Only return the images that would be removed. Defaults to False.
    quiet
        Show no progress. Defaults to False.

    Returns ``{host: {digest: bytes}}``; of a golden image only the cached copy is removed. Removes
    nothing if a hypervisor does not answer, nor from a host that is building a VM. Undo:
    virt.image_pull.

    CLI Example:

    .. code-block:: bash

        salt-run virt.image_prune dry_run=True
        salt-run virt.image_prune
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    return cached.prune(Cloud.of(__opts__, __jid_event__, "images", quiet), is_dry=is_dry)


@runner_function
def image_build(source, name, host, quiet=False, **kwargs):
    """
    Make a golden image on a hypervisor.

    source
        The image to begin with.
    name
        The name of the new image.
    host
        The hypervisor; ``folder=`` can name a folder of the file server.
    quiet
        Show no progress. Defaults to False.
    kwargs
        Those of the module's ``virt.image_build``: ``packages``, ``files``, ``commands``, ...

    Returns ``{host: {"path", "digest", "os", "has_minion", "has_cloud_init"}}``. Fails with one
    line and leaves nothing. Undo: remove the path on the host.

    CLI Example:

    .. code-block:: bash

        salt-run virt.image_build salt://images/tiny.qcow2 web8 hyper1 install=False
        salt hyper1 file.remove /srv/salt-images/golden/web8.qcow2
    """
    cloud = Cloud.of(__opts__, __jid_event__, name, quiet)
    return cached.build(cloud, source, name, host, kwargs)
