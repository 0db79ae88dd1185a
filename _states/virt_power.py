"""
States that turn the VMs of a hypervisor off, or reboot them.

.. versionadded:: 1.0.0

A name is a pattern such as ``web*``; without a matching VM the state fails. ``connection``,
``username`` and ``password`` of every state override ``virt:connection:uri`` and
``virt:connection:auth``.
"""

from typing import Any

from saltvirt.core.options import optionguard
from saltvirt.core.salt.statereturn import StateChange
from saltvirt.entry.host import hostmodule
from saltvirt.vm.power.host import acting

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def _act_on_vms(
    state: str, name: str, function: str, section: str, done_comment: str, keywords: dict[str, Any]
) -> StateChange:
    settings = _module.settings(f"virt.{state}", keywords)
    is_off = state != "rebooted"
    out = acting.power(settings, name, function, is_test=_module.is_test, is_off=is_off)
    return out.state_change(out.changes(section), done_comment)


def stopped(name: str, **kwargs: Any) -> StateChange:
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


def powered_off(name: str, **kwargs: Any) -> StateChange:
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


def unpowered(name: str, **kwargs: Any) -> StateChange:
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


def rebooted(name: str, **kwargs: Any) -> StateChange:
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
