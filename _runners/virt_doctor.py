"""
Find what faults have left behind, and mend it; and the trash of all hosts.

.. versionadded:: 1.0.0
"""

from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.runners import runner_function
from saltvirt.later import Later

bins = Later("saltvirt.fleet.trash")
run = Later("saltvirt.fleet.doctor.run")
store = Later("saltvirt.pki.store")

__virtualname__ = "virt"


def __virtual__():
    """Load always: a master needs no libvirt."""
    return __virtualname__


@runner_function(outputter="virt_audit")
def doctor(fix=False, quiet=False):
    """
    Look at master and hypervisors for what is left over, and name each thing with its fix.

    fix
        Mend what can be mended. Defaults to False: change nothing.
    quiet
        Show no progress. Defaults to False.

    Every hypervisor is asked, twice if anything is found: only what is left over both times is
    named. What a VM may still need is never named: while a host that may have VMs is silent, no
    file and no key is. docs/doctor.md has all that is found.

    Returns ``{"findings": [], "checked": [host], "mended": [], "ready": text}`` if nothing is left
    over, or all of it was mended. If anything is, fails, with ``findings``, a list of ``{check,
    where, subject, what, fix}``; ``mended`` and ``failed`` are what was done and could not be, one
    line each.

    CLI Example:

    .. code-block:: bash

        salt-run virt.doctor
        salt-run virt.doctor fix=True
    """
    return run.doctor(Cloud.of(__opts__, __jid_event__, "Doctor", quiet), store.utc_now(), fix=fix)


@runner_function
def trash(host=None):
    """
    Show what is in the trash of every hypervisor.

    host
        Only this hypervisor. Defaults to all.

    Returns ``{host: {entry: {vm, uuid, since, until, why, bytes, files, volumes, definition,
    away}}}``: ``files`` is where they were, ``volumes`` are those that are not files and stayed,
    ``definition`` the VM's XML without secrets. ``away`` has a line for each file whose file system
    is not mounted. ``unreachable`` and ``failed`` are beside it.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash
    """
    return bins.list_entries(Cloud.of(__opts__), host)


@runner_function
def trash_restore(host, entry):
    """
    Bring the files of one entry of a trash back to where they were.

    host
        The hypervisor that has it.
    entry
        As ``virt.trash`` names it.

    Returns ``{host: {"files": [path], "definition": XML}}``; the VM is not defined again, and its
    minion's key is not accepted again. Fails, with nothing changed, if a file is in its place.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash_restore hyper1 trashed1-00000001
    """
    return bins.restore(Cloud.of(__opts__), host, entry)


@runner_function
def trash_empty(host=None, *entries):
    """
    Remove what is in the trash for good.

    host
        Only on this hypervisor. Defaults to all.
    entries
        Only these entries of that host. Defaults to all.

    Returns ``{host: {entry: bytes that were freed}}``. Where a host fails, the others are emptied
    all the same: it fails then, with that as ``emptied``, and ``failed``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.trash_empty hyper1
    """
    return bins.empty(Cloud.of(__opts__), host, entries)
