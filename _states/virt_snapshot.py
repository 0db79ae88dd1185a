"""
States that take snapshots of the VMs of a hypervisor, or revert to them, each time they run.

.. versionadded:: 1.0.0

A name is a pattern such as ``web*``; without a matching VM the state fails. ``connection``,
``username`` and ``password`` of every state override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from typing import Any

from saltvirt.core import arguments
from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.vm.power.host import acting

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _take_snapshots(
    state: str,
    name: str,
    suffix: object,
    external: object,
    done_comment: str,
    keywords: dict[str, Any],
) -> StateChange:
    is_external = arguments.boolean("external", external)
    settings = _module.settings(f"virt.{state}", keywords)
    out = acting.take_snapshots(
        settings, name, suffix, is_test=_module.is_test, is_external=is_external
    )
    return out.state_change(out.changes("saved"), done_comment)


def snapshot(
    name: str, suffix: str | None = None, external: bool = False, **kwargs: Any
) -> StateChange:
    """
    Take a snapshot of VMs, each time the state runs.

    name
        The VM's name, or a pattern.
    suffix
        A suffix of the snapshot's name, which is the VM's name with date and time.
    external
        As in the module's ``virt.snapshot``. Defaults to False.

    ``changes`` are ``{saved: [{domain, snapshot: NAME}]}``, with ``test=True`` True for the name;
    for VMs that libvirt refuses, ``{ignored: [{domain, issue}]}``. Undo: virt.delete_snapshots.

    .. code-block:: yaml

        web*:
          virt.snapshot:
            - suffix: nightly
    """
    return _take_snapshots("snapshot", name, suffix, external, "Snapshot has been taken", kwargs)


def saved(
    name: str, suffix: str | None = None, external: bool = False, **kwargs: Any
) -> StateChange:
    """
    Take a snapshot of VMs, each time the state runs: the old name of ``virt.snapshot``.

    name, suffix, external
        As of ``virt.snapshot``.

    .. code-block:: yaml

        web*:
          virt.saved
    """
    return _take_snapshots("saved", name, suffix, external, "Snapshots has been taken", kwargs)


def reverted(
    name: str, snapshot: str | None = None, cleanup: bool = False, **kwargs: Any
) -> StateChange:
    """
    Revert VMs to a snapshot, each time the state runs; later changes to their disks are lost.

    name
        The VM's name, or a pattern.
    snapshot
        The snapshot's name. Defaults to the one before the current one.
    cleanup
        Then delete the snapshots that are newer. Defaults to False.

    ``changes`` of one VM are ``{domain, current, deleted}``, of several ``{reverted: [...]}`` of
    these; ``deleted`` is a list of names, or ``N/A`` without ``cleanup``. For VMs that cannot be
    reverted, ``{ignored: [{domain, issue}]}``. ``warnings`` names each VM that runs afterwards,
    because its minion may not answer for some minutes. There is no undo.

    .. code-block:: yaml

        web1:
          virt.reverted:
            - snapshot: before-update
    """
    with_cleanup = arguments.boolean("cleanup", cleanup)
    out = acting.revert(
        _module.settings("virt.reverted", kwargs),
        name,
        snapshot,
        with_cleanup=with_cleanup,
        is_test=_module.is_test,
    )
    is_single = len(out.matched) == 1 and bool(out.changed)
    changes = out.changed[0] if is_single else out.changes("reverted")
    done_comment = f"Domain{'s' if len(out.matched) > 1 else ''} has been reverted"
    return out.state_change(changes, done_comment)


optionguard.states(globals())
