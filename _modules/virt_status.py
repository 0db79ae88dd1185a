"""
A host's part in ``salt-run virt.status``; nothing is changed.

.. versionadded:: 1.0.0

``connection``, ``username`` and ``password`` override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

import functools

from saltvirt.core import arguments, wire
from saltvirt.core.options import optionguard
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.entry.host import hostmodule

with lazy_imports():
    from saltvirt.checks.status import statusanswer
    from saltvirt.checks.status.host import facts

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def status_facts(checks=False, peers=None, **kwargs):
    """
    Return how this host and its VMs are, for ``salt-run virt.status``.

    checks
        Also what ``virt.audit``, ``virt.doctor_facts`` and ``virt.setup_facts`` return. Defaults to
        False.
    peers
        As for ``virt.setup_facts``. Defaults to none.

    Returns ``{host, audit, doctor, setup, why_not}``. ``host`` has ``is_in_maintenance``, the
    ``states`` of its VMs, those that are ``coming``, what is ``unfinished``, ``moves`` on record,
    what is ``unreadable``, ``restart`` (what VMs get at their next start), and ``{used, promised,
    limit}`` of ``cpus``, ``memory_mib`` and ``disk_mib``. ``why_not`` has the reason for each part
    that could not be read.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.status_facts
    """
    has_checks = arguments.boolean("checks", checks)
    readers = {
        "audit": functools.partial(__salt__["virt.audit"], **kwargs),
        "doctor": functools.partial(__salt__["virt.doctor_facts"], **kwargs),
        # Last: the master compares its clock with its own on receipt.
        "setup": functools.partial(__salt__["virt.setup_facts"], peers=peers, **kwargs),
    }
    parts, reasons = facts.read_parts(readers if has_checks else {})
    own_parts, own_reasons = facts.read_parts(
        {"host": lambda: _read_host(facts.find_info(parts.get("setup")), kwargs)}
    )
    reasons_by_part = {**reasons, **own_reasons}
    return wire.plain(statusanswer.StatusFacts(**parts, **own_parts, why_not=reasons_by_part))


def _read_host(info, kwargs):
    with _module.opened("virt.status_facts", kwargs) as (conn, settings):
        return facts.read_host_status(conn, settings, info)


optionguard.modules(globals())
