"""
A host's part in ``salt-run virt.doctor``, and its trash.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from saltvirt import arguments, config, optionguard, wire
from saltvirt.kvm import connect
from saltvirt.later import Later

bins = Later("saltvirt.ops.trash")
facts = Later("saltvirt.ops.doctor.facts")
mend = Later("saltvirt.ops.doctor.mend")
putaway = Later("saltvirt.storage.putaway")
sharing = Later("saltvirt.storage.sharing")

__virtualname__ = "virt"


def __virtual__():
    """Load only where libvirt's Python module is; say what is missing otherwise."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _settings(function, keywords):
    return config.for_call(function, keywords, __opts__, __pillar__, __grains__)


def doctor_facts(**kwargs):
    """
    Return what ``salt-run virt.doctor`` judges of this host: plain facts, and no judgement.

    Returns ``{code, copies, vms, made_for, shared, files, busy, left, unreadable, moves,
    trash_days, unreadable_trash}``: its VMs with their files, files of VMs that nothing here uses,
    records, and what is this host's affair alone, by check.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.doctor_facts
    """
    settings = _settings("virt.doctor_facts", kwargs)
    with connect.open_connection(settings) as conn:
        return wire.plain(facts.read_host_facts(conn, __opts__, settings))


def doctor_mend(wanted, **kwargs):
    """
    Remove what ``salt-run virt.doctor`` has found here, if nothing needs it now either.

    wanted
        ``{check: [subject]}``. What was written to within the last hour stays, whatever is wanted.

    By itself this host does not know what other hosts need: leave it to ``virt.doctor``. Returns
    what was done, in one line each.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.doctor_mend '{lock: []}'
    """
    leftovers = wire.argument("wanted", dict[str, list[str]], wanted)
    settings = _settings("virt.doctor_mend", kwargs)
    with connect.open_connection(settings, readonly=False) as conn:
        return mend.mend(conn, settings, leftovers)


def trash(**kwargs):
    """
    Return what is in this host's trash, where ``virt:trash_days`` has put it.

    Returns ``{entry: {vm, uuid, since, until, why, bytes, files, volumes, definition, away}}``;
    ``files`` is where they were, ``bytes`` what they take, ``definition`` the VM's XML without
    secrets. ``away`` has a line for each file whose file system is not mounted.

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

    It is kept for ``virt:trash_days``, for a week at least. Returns ``{"entry": name, "undo":
    command}``; fails if anything on this host needs the file, if that cannot be told, or if it is
    on storage that other hosts see: ``salt-run virt.trash_put`` asks them. Undo:
    virt.trash_restore.

    replies
        What the other hosts replied about files on storage that they see. The runner passes it.

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
    Bring the files of one entry of the trash back to where they were.

    entry
        As ``virt.trash`` names it.

    Returns ``{"files": [path], "definition": XML}``; the VM is not defined again:
    ``virt.define_xml_str`` does that. Pools that run look at their folders again. Fails, with
    nothing changed, if a file is in its place.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash_restore trashed1-00000001
    """
    settings = _settings("virt.trash_restore", kwargs)
    return bins.restore(settings, arguments.text("entry", entry))


def trash_empty(*entries, **kwargs):
    """
    Remove what is in this host's trash for good.

    entries
        Only these. Defaults to all.

    Returns ``{entry: bytes that were freed}``.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash_empty
    """
    return bins.empty(_settings("virt.trash_empty", kwargs), entries)


optionguard.modules(globals())
