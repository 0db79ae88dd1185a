"""
A host's part in ``salt-run virt.doctor``, and its trash.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from saltvirt.core import arguments, wire
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt.lazyimport import Later
from saltvirt.libvirt import connect

bins = Later("saltvirt.storage.trash")
facts = Later("saltvirt.checks.doctor.host.facts")
localleftovers = Later("saltvirt.checks.doctor.host.localleftovers")
putaway = Later("saltvirt.storage.putaway")
sharing = Later("saltvirt.storage.sharing")

__virtualname__ = "virt"


def __virtual__():
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings(function, keywords):
    return config.for_call(function, keywords, __opts__, __pillar__, __grains__)


def doctor_facts(**kwargs):
    """
    Return facts about this host, which ``salt-run virt.doctor`` judges.

    Returns ``{code, copies, vms, made_for, shared, files, busy, left, unreadable, moves,
    unreadable_trash, foreign_virt}``: its VMs with their files, files of VMs that nothing here
    uses, records, and leftovers that concern this host only, by check.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.doctor_facts
    """
    settings = _settings("virt.doctor_facts", kwargs)
    with connect.open_connection(settings) as conn:
        return wire.plain(facts.read_host_facts(conn, __opts__, settings))


def doctor_mend(wanted, **kwargs):
    """
    Remove leftovers that ``salt-run virt.doctor`` found here, if they are still unneeded.

    wanted
        ``{check: [subject]}``. Files that were written to within the last hour stay in any case.

    This host does not know the needs of other hosts: leave the call to ``virt.doctor``. Returns
    the actions, one line each.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.doctor_mend '{lock: []}'
    """
    subjects_by_check = wire.argument("wanted", dict[str, list[str]], wanted)
    settings = _settings("virt.doctor_mend", kwargs)
    with connect.open_connection(settings, readonly=False) as conn:
        return localleftovers.mend(conn, settings, subjects_by_check)


def trash(**kwargs):
    """
    Return the entries of this host's trash (see ``virt:trash_days``).

    Returns ``{entry: {vm, uuid, since, until, why, bytes, files, volumes, definition, away}}``;
    ``files`` are the former paths, ``bytes`` the size, ``definition`` is the VM's XML without
    secrets. ``away`` has a line for each file on a file system that is not mounted.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash
    """
    return bins.list_entries(_settings("virt.trash", kwargs))


def trash_put(path, **kwargs):
    """
    Move a file that no VM has into this host's trash, as ``virt.doctor`` advises.

    path
        Absolute path of the file.

    The trash keeps it for ``virt:trash_days``, for a week at least. Returns ``{"entry": name,
    "undo": command}``; fails if something on this host needs the file, if this is unknown, or if
    the file is on storage that other hosts see: ``salt-run virt.trash_put`` asks these hosts. Undo:
    virt.trash_restore.

    replies
        The replies of the other hosts about shared files; passed by the runner.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash_put /srv/salt-images/left1_system.qcow2
    """
    replies = kwargs.pop("replies", None)
    settings = _settings("virt.trash_put", kwargs)

    def put(elsewhere):
        with connect.open_connection(settings) as conn:
            return putaway.put(conn, settings, path, elsewhere)

    return sharing.run_or_ask(replies, put)


def trash_restore(entry, **kwargs):
    """
    Restore the files of an entry of the trash to their former places.

    entry
        As ``virt.trash`` names it.

    Returns ``{"files": [path], "definition": XML}``; the VM is not defined again:
    ``virt.define_xml_str`` does that. Running pools are refreshed. Fails, with nothing changed, if
    a former path is taken.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash_restore trashed1-00000001
    """
    settings = _settings("virt.trash_restore", kwargs)
    return bins.restore(settings, arguments.text("entry", entry))


def trash_empty(*entries, **kwargs):
    """
    Remove the entries of this host's trash for good.

    entries
        Only these. Defaults to all.

    Returns ``{entry: freed bytes}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash_empty
    """
    return bins.empty(_settings("virt.trash_empty", kwargs), entries)


optionguard.modules(globals())
