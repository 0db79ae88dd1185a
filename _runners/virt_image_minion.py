"""
Put a minion on the file server, for guests with an image that has none.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.seeding.master import minionfiles

__virtualname__ = "virt_image"
__virtual__ = load_always


@runner_function
def minion_packages(
    kind="onedir",
    version=None,
    arch="x86_64,aarch64",
    source=None,
    saltenv="base",
    folder=None,
    remove=False,
    quiet=False,
):
    """
    Fetch Salt's minion for guests to the file server, where virt.init finds it.

    kind
        ``onedir``, the tarball for every system with systemd; ``deb`` for Debian's family; ``rpm``
        for those of RHEL and SUSE. Defaults to ``onedir``.
    version
        The release of Salt, quoted. Defaults to the master's own, and can be no newer.
    arch
        The guests' processors, separated by commas: ``x86_64``, ``aarch64``. Defaults to both.
    source
        A mirror's URL, laid out as Salt's own site, or a folder of the master that has the files,
        each with ``FILE.sha256`` beside it. Defaults to ``virt:minion_packages:source``, else to
        Salt's site.
    saltenv
        The environment of ``file_roots``. Defaults to ``base``.
    folder
        Put ``salt-virt/minion`` below this folder instead, such as a checkout that gitfs serves.
        Defaults to the first folder of ``file_roots`` that the master can write to.
    remove
        Remove all that was fetched. Defaults to False.
    quiet
        Show no progress. Defaults to False.

    Returns ``{"folder", "kind", "version", "fetched": [file], "kept": [file]}``; with ``remove``
    ``{"folder", "removed": [file]}``. Existing files with the right checksum are not fetched again.
    Fails with one line, and leaves nothing, if a file cannot be fetched, does not match the
    source's checksum, is larger than 1 GiB, or takes longer than 3600 s. Undo: ``remove=True``.

    CLI Example:

    .. code-block:: bash

        salt-run virt_image.minion_packages remove=True
    """
    cloud = Cloud.of(__opts__, __jid_event__, "minion_packages", quiet)
    if arguments.boolean("remove", remove):
        return minionfiles.remove(cloud, saltenv, folder)
    request = minionfiles.from_call(cloud, kind, version, arch, source)
    return minionfiles.fetch(cloud, request, saltenv, folder)
