"""
Find and remove leftovers of faults; manage the trash of all hosts.

.. versionadded:: 1.0.0
"""

from saltvirt.cluster.cloud import Cloud
from saltvirt.core import arguments
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.runners import load_always, runner_function

with lazy_imports():
    from saltvirt.ca import store
    from saltvirt.checks.doctor.master import run
    from saltvirt.storage.master import images as bins
    from saltvirt.vm.purge.master import undoing

__virtualname__ = "virt"
__virtual__ = load_always


@runner_function(outputter="virt_audit")
def doctor(fix=False, quiet=False):
    """
    Search master and hypervisors for leftovers, and name each with its fix.

    fix
        Apply the fixes where possible. Defaults to False: change nothing.
    quiet
        Show no progress. Defaults to False.

    Every hypervisor is queried, twice if there are findings: only those found both times count.
    Files or keys that a VM may need are never named: none at all while a host that may have VMs is
    unresponsive. docs/doctor.md lists all findings.

    Returns ``{"findings": [], "checked": [host], "mended": [], "ready": text}`` if there are no
    leftovers, or if all were removed; otherwise fails, with ``findings``, a list of ``{check,
    where, subject, what, fix}``; ``mended`` and ``failed`` are applied and failed fixes, one line
    each.

    CLI Example:

    .. code-block:: bash

        salt-run virt.doctor
        salt-run virt.doctor fix=True
    """
    return run.doctor(Cloud.of(__opts__, __jid_event__, "Doctor", quiet), store.utc_now(), fix=fix)


@runner_function
def trash(host=None):
    """
    Show the trash of every hypervisor.

    host
        Only this hypervisor. Defaults to all.

    Returns ``{host: {entry: {vm, uuid, since, until, why, bytes, files, volumes, definition,
    away, undo}}}``: ``files`` are the former paths, ``volumes`` the volumes that are no files and
    stayed, ``definition`` is the VM's XML without secrets. ``away`` has a line for each file on a
    file system that is not mounted. ``undo`` is the command that brings the VM back, or its files
    alone. ``unreachable`` and ``failed`` list the other hosts.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash
    """
    return bins.list_trash(Cloud.of(__opts__), host)


@runner_function
def trash_restore(host, entry):
    """
    Restore the files of an entry of a trash to their former places.

    host
        The hypervisor that has it.
    entry
        As ``virt.trash`` names it.

    Returns ``{host: {"files": [path], "definition": XML}}``; the VM is not defined again, and its
    minion's key is not accepted again: ``virt.undo`` does all three. Fails, with nothing changed,
    if a former path is taken.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash_restore hyper1 trashed1-00000001
    """
    return bins.restore_trash(Cloud.of(__opts__), host, entry)


@runner_function
def undo(name, dry_run=False, force=False):
    """
    Bring the last purged VM of that name back: its files, its definition, its minion key.

    name
        The VM's name.
    dry_run
        Change nothing; return what would be brought back. Defaults to False.
    force
        Bring it back although an unresponsive hypervisor had a VM of that name when it last
        answered. Use it only if you know that the VM is not there. Defaults to False.

    The VM comes back to the host that it was on, and stays off. Its firmware's variables, its
    TPM's state and its autostart come back, too. Returns ``{"name", "host", "uuid", "files":
    [path], "autostart", "lost": [sentence], "has_key"}``; ``lost`` says what is not back, such as
    the password of a display. Fails, with nothing changed, if a host has a VM of that name or may
    have one, if a file is gone, or if the definition does not fit the host any more. If it was
    interrupted, the next one goes on. Undo: virt.purge.

    CLI Example:

    .. code-block:: bash

        salt-run virt.undo centos2 dry_run=True
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, is_reading=is_dry)
    return undoing.undo(cloud, name, is_dry=is_dry, force=force)


@runner_function
def trash_empty(host=None, *entries, dry_run=False):
    """
    Remove the entries of the trash for good.

    host
        Only on this hypervisor. Defaults to all.
    entries
        Only these entries of that host. Defaults to all.
    dry_run
        Change nothing; return what would be removed, and beside it ``failed`` hosts, with an entry
        that would stay. Defaults to False.

    Returns ``{host: {entry: freed bytes}}``. If a host fails, the others are emptied nevertheless;
    then the call fails, with ``emptied`` and ``failed``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash_empty hyper1 dry_run=True
        salt-run virt.trash_empty hyper1
    """
    is_dry = arguments.boolean("dry_run", dry_run)
    cloud = Cloud.of(__opts__, is_reading=is_dry)
    return bins.empty_trash(cloud, host, entries, is_dry=is_dry)
