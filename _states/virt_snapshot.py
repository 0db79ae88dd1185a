"""
States that take snapshots of the VMs of a hypervisor, or revert to them, each time they run.

.. versionadded:: 1.0.0

A name is a pattern such as ``web*``; without a matching VM the state fails. ``connection``,
``username`` and ``password`` of every state override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import VirtError
from saltvirt.core.options import config, optionguard
from saltvirt.core.salt import statereturn
from saltvirt.libvirt import connect
from saltvirt.vm.power.host import acting

__virtualname__ = "virt"
__opts__: Any
__pillar__: Any
__grains__: Any


def __virtual__() -> str | tuple[bool, str]:
    """Load only if libvirt's Python module is installed; otherwise return the reason."""
    missing = connect.why_missing()
    return (False, missing) if missing else __virtualname__


def _take_snapshots(
    state: str,
    name: str,
    suffix: object,
    external: object,
    done_comment: str,
    keywords: dict[str, Any],
) -> dict[str, Any]:
    is_test = __opts__["test"]
    try:
        is_external = arguments.boolean("external", external)
        settings = config.for_call(f"virt.{state}", keywords, __opts__, __pillar__, __grains__)
        out = acting.take_snapshots(
            settings, name, suffix, is_test=is_test, is_external=is_external
        )
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return statereturn.make_return_for_all(
        name,
        out.matched,
        out.ignored,
        out.changes("saved"),
        is_test=is_test,
        done_comment=done_comment,
        namespace=globals(),
    )


def snapshot(
    name: str, suffix: str | None = None, external: bool = False, **kwargs: Any
) -> dict[str, Any]:
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
) -> dict[str, Any]:
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
) -> dict[str, Any]:
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
    is_test = __opts__["test"]
    try:
        with_cleanup = arguments.boolean("cleanup", cleanup)
        settings = config.for_call("virt.reverted", kwargs, __opts__, __pillar__, __grains__)
        out = acting.revert(settings, name, snapshot, with_cleanup=with_cleanup, is_test=is_test)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    is_single = len(out.matched) == 1 and bool(out.changed)
    changes = out.changed[0] if is_single else out.changes("reverted")
    done_comment = f"Domain{'s' if len(out.matched) > 1 else ''} has been reverted"
    ret = statereturn.make_return_for_all(
        name,
        out.matched,
        out.ignored,
        changes,
        is_test=is_test,
        done_comment=done_comment,
        namespace=globals(),
    )
    return {**ret, "warnings": out.warnings} if out.warnings else ret


optionguard.states(globals())
