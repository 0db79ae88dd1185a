"""
States that turn the VMs of a hypervisor off, or reboot them.

.. versionadded:: 1.0.0

A name is a pattern such as ``web*``; without a matching VM the state fails. ``connection``,
``username`` and ``password`` of every state override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from typing import Any

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


def _act_on_vms(
    state: str, name: str, function: str, section: str, done_comment: str, keywords: dict[str, Any]
) -> dict[str, Any]:
    is_test = __opts__["test"]
    try:
        settings = config.for_call(f"virt.{state}", keywords, __opts__, __pillar__, __grains__)
        is_off = state != "rebooted"
        out = acting.power(settings, name, function, is_test=is_test, is_off=is_off)
    except VirtError as error:
        return statereturn.make_failure(name, error, globals())
    return statereturn.make_return_for_all(
        name,
        out.matched,
        out.ignored,
        out.changes(section),
        is_test=is_test,
        done_comment=done_comment,
        namespace=globals(),
    )


def stopped(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Keep VMs shut down: ask the guests of running VMs.

    name
        The VM's name, or a pattern.

    The state does not wait for the guest. A paused guest cannot shut down: the state fails, with a
    remedy. ``changes`` are ``{stopped: [{domain, shutdown: True}]}``; for VMs that libvirt refuses,
    ``{ignored: [{domain, issue}]}``. Undo: virt.start.

    .. code-block:: yaml

        web1:
          virt.stopped
    """
    done_comment = "Machine has been shut down"
    return _act_on_vms("stopped", name, "shutdown", "stopped", done_comment, kwargs)


def powered_off(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Keep VMs off: stop running VMs at once, as pulling their plugs would.

    name
        The VM's name, or a pattern.

    ``changes`` are ``{unpowered: [{domain, stop: True}]}``; for VMs that libvirt refuses,
    ``{ignored: [{domain, issue}]}``. Undo: virt.start.

    .. code-block:: yaml

        web1:
          virt.powered_off
    """
    done_comment = "Machine has been powered off"
    return _act_on_vms("powered_off", name, "stop", "unpowered", done_comment, kwargs)


def unpowered(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Keep VMs off: the old name of ``virt.powered_off``.

    name
        The VM's name, or a pattern.

    .. code-block:: yaml

        web1:
          virt.unpowered
    """
    done_comment = "Machine has been powered off"
    return _act_on_vms("unpowered", name, "stop", "unpowered", done_comment, kwargs)


def rebooted(name: str, **kwargs: Any) -> dict[str, Any]:
    """
    Ask the guests of VMs to reboot, each time the state runs.

    name
        The VM's name, or a pattern.

    ``changes`` are ``{rebooted: [{domain, reboot: True}]}``; for VMs that do not run, or that
    libvirt refuses, ``{ignored: [{domain, issue}]}``.

    .. code-block:: yaml

        web1:
          virt.rebooted
    """
    done_comment = "Machine has been rebooted"
    return _act_on_vms("rebooted", name, "reboot", "rebooted", done_comment, kwargs)


optionguard.states(globals())
