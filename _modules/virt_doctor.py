"""
A host's part in ``salt-run virt.doctor``, and its trash.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from saltvirt.core import arguments, wire
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.checks.doctor.host import facts, localleftovers
    from saltvirt.storage import putaway
    from saltvirt.storage import trash as bins
    from saltvirt.vm.purge.host import undoing

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


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
    with _module.opened("virt.doctor_facts", kwargs, readonly=True) as (conn, settings):
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
    with _module.opened("virt.doctor_mend", kwargs) as (conn, settings):
        return localleftovers.mend(conn, settings, subjects_by_check)


def trash(**kwargs):
    """
    Return the entries of this host's trash (see ``virt:trash_days``).

    Returns ``{entry: {vm, uuid, since, until, why, bytes, files, volumes, definition, away,
    is_purged}}``; ``files`` are the former paths, ``bytes`` the size, ``definition`` is the VM's
    XML without secrets. ``away`` has a line for each file on a file system that is not mounted.
    ``is_purged`` means that ``virt.undo`` can bring the VM back.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.trash
    """
    return bins.list_entries(_module.settings("virt.trash", kwargs))


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

    def put(conn, settings, elsewhere):
        return putaway.put(conn, settings, path, elsewhere)

    return _module.run_or_ask("virt.trash_put", kwargs, put, readonly=True)


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
    settings = _module.settings("virt.trash_restore", kwargs)
    return bins.restore(settings, arguments.text("entry", entry))


def undo(name, uuid=None, test=False, **kwargs):
    """
    Bring the last purged VM of that name back: its files, its definition, its autostart.

    name
        The VM's name.
    uuid
        The UUID of the purged VM. Defaults to that of the last one.
    test
        Change nothing; return what would be done. Defaults to False.

    Call ``salt-run virt.undo``, which makes sure that no other host has the name, and accepts the
    key of the VM's minion again. The VM stays off. The next call finishes an interrupted one.
    Returns ``{"uuid", "files": [path], "autostart", "lost": [sentence]}``; ``lost`` says what is
    not back, such as the password of a display. Fails, with nothing changed, if a file is gone, if
    a path or the name is taken, or if the definition does not fit this host any more. Undo:
    virt.purge.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.undo centos2 test=True
    """
    vm, is_dry = arguments.text("name", name), arguments.boolean("test", test)
    vm_uuid = None if uuid is None else arguments.text("uuid", uuid)
    with _module.opened("virt.undo", kwargs) as (conn, settings):
        return wire.plain(undoing.undo(conn, settings, vm, uuid=vm_uuid, is_dry=is_dry))


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
    return bins.empty(_module.settings("virt.trash_empty", kwargs), entries)


optionguard.modules(globals())
