"""Actions of a domain's power switch, and the states in which the guest cannot follow them."""

from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.connect import domain, libvirt

# Actions that end a domain: advice to start it would be wrong.
_ENDS = ("destroy", "shutdown")


def act(conn: Any, name: str, action: str) -> None:
    """
    Call one libvirt method of a domain.

    action
        ``shutdown``, ``destroy``, ``reboot``, ``reset``, ``suspend``, ``resume`` or
        ``ctrl_alt_del``.
    """
    refuse(conn, name, action)
    dom = domain(conn, name)
    if action == "reset":
        dom.reset(0)
    elif action == "reboot":
        dom.reboot(libvirt.VIR_DOMAIN_REBOOT_DEFAULT)
    elif action == "ctrl_alt_del":
        keys = [29, 56, 111]  # Linux key codes: left control, left alt, delete
        dom.sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 0, keys, len(keys), 0)
    elif action == "resume" and dom.state()[0] == libvirt.VIR_DOMAIN_PMSUSPENDED:
        dom.pMWakeup()
    else:
        getattr(dom, action)()


def refuse(conn: Any, name: str, action: str) -> None:
    """Raise LibvirtRefused if the state of a domain does not allow an action."""
    dom = domain(conn, name)
    reason = why_not(name, action, dom.state()[0], is_active=bool(dom.isActive()))
    if reason is not None:
        raise LibvirtRefused(reason)


def why_not(name: str, action: str, state: int, *, is_active: bool) -> str | None:
    """
    Return the reason and remedy if a domain's state forbids an action; None if it does not.

    QEMU's driver refuses the same actions, mostly with the words "domain is not running".

    action
        An action of :func:`act`, or ``start``.
    state
        A number of libvirt's ``virDomainState``.
    """
    if not is_active:
        return None if action == "start" else _why_not_off(name, action)
    find = {
        libvirt.VIR_DOMAIN_PAUSED: _why_not_paused,
        libvirt.VIR_DOMAIN_PMSUSPENDED: _why_not_asleep,
        libvirt.VIR_DOMAIN_CRASHED: _why_not_crashed,
    }.get(state)
    return None if find is None else find(name, action)


def _why_not_off(name: str, action: str) -> str:
    if action in _ENDS:
        return f"VM {name!r} is not running, so there is nothing to stop"
    return f"VM {name!r} is not running; start it with virt.start {name}"


def _why_not_paused(name: str, action: str) -> str | None:
    if action == "start":
        return f"VM {name!r} is paused; let it go on with virt.resume {name}"
    if action == "shutdown":
        return (
            f"VM {name!r} is paused, so its guest cannot shut down; let it go on with virt.resume "
            f"{name} first, or stop it at once with virt.stop {name}"
        )
    return None


def _why_not_asleep(name: str, action: str) -> str | None:
    if action in ("start", "shutdown", "suspend"):
        return (
            f"VM {name!r} is paused, as its guest sleeps; wake it with virt.resume {name}, or stop "
            f"it at once with virt.stop {name}"
        )
    return None


def _why_not_crashed(name: str, action: str) -> str | None:
    if action in ("destroy", "reset"):
        return None
    return (
        f"VM {name!r} has crashed, and is kept as it was then; end it with virt.stop {name}, then "
        "start it"
    )
