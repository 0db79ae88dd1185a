"""Show how to reach a VM, and what its console prints, wherever the VM is."""

from collections.abc import Mapping
from typing import Any

from saltvirt.cluster import minionaddresses, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.core import guestaccess, terminal, wire
from saltvirt.core.errors import VirtError
from saltvirt.core.salt import compat
from saltvirt.placement.shownvms import ShownVm

CONSOLE_LINES = 10
# More than a booting guest prints in half a minute.
_WATCHED_LINES = 500


def find_login(cloud: Cloud, host: str, name: str, *, has_minion: bool) -> dict[str, Any]:
    """
    Return ``{"addresses", "login"}`` of a running VM, and ``addresses_from`` if known.

    has_minion
        Whether its minion answers. If the host knows no address, the addresses are those that the
        minion told the master when it came.

    Nothing here raises: the VM exists without a login, too.
    """
    return _complete_login(
        cloud, host, name, _ask_vm_info(cloud, host, name), has_minion=has_minion
    )


def _complete_login(
    cloud: Cloud, host: str, name: str, answer: Mapping[str, Any], *, has_minion: bool
) -> dict[str, Any]:
    """Return the result of :func:`find_login` from a host's answer about a VM."""
    answer_addresses, source = answer.get("addresses"), answer.get("addresses_from")
    addresses = guestaccess.addresses(
        answer_addresses if isinstance(answer_addresses, list) else []
    )
    if not addresses:
        # The VM itself reported these.
        addresses, source = minionaddresses.from_grains(_read_grains(cloud, name)), "minion"
    user, behind_host = guestaccess.ssh_user(answer.get("ssh_user")), answer.get("behind_host")
    nets = behind_host if isinstance(behind_host, list) else []
    if has_minion and not addresses:
        login: str | None = _by_salt(name)
    else:
        login = guestaccess.ssh(addresses, user, host=host, jump_networks=nets)
    login = login or (_by_salt(name) if has_minion else guestaccess.console(name, host))
    origin = {"addresses_from": source} if addresses and source in guestaccess.SOURCES else {}
    return {"addresses": addresses, **origin, "login": login}


def _by_salt(name: str) -> str:
    return f"salt {name} cmd.run COMMAND"


def vm_info(cloud: Cloud, name: str) -> dict[str, Any]:
    """
    Return ``{host: {name: {...}}}`` of a VM, as its host reports it.

    If the host of a running VM knows no address, the addresses are from the VM's own minion. The
    login command is made of the host's data, and is never the host's text: an operator will type
    the command.
    """
    host, fun = locate(cloud, name, Purpose.READ).host, "virt.vm_info"
    answer = hostcommands.act(cloud, host, fun, name)
    wire.read(host, fun, dict[str, ShownVm], answer)
    # The host was asked about this VM only.
    vm = answer.get(name)
    if vm is None:
        return {host: {}}
    login_info: dict[str, Any] = {"addresses": [], "login": None}
    if vm["state"] == "running":
        # No minion answers for a VM without a key.
        has_minion = minionkeys.read_accepted(cloud.opts, name) is not None
        login_info = _complete_login(cloud, host, name, vm, has_minion=has_minion)
    return {host: {name: {**vm, "addresses_from": None, **login_info}}}


def _ask_vm_info(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    try:
        reply = minions.ask(cloud, [host], "virt.vm_info", [name])[host]
    except VirtError:
        return {}
    vm = reply.value.get(name) if reply.ok and isinstance(reply.value, dict) else None
    return vm if isinstance(vm, dict) else {}


def _read_grains(cloud: Cloud, name: str) -> Mapping[str, Any]:
    """Return the grains that a VM's minion sent when it came; empty without its key."""
    if minionkeys.read_accepted(cloud.opts, name) is None:
        return {}
    grains = compat.Grains(cloud.opts).of(name)
    return grains if isinstance(grains, dict) else {}


def console(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    """
    Return ``{"console", "console_command"}``: a console's last lines, and what shows more.

    If the console cannot be read, ``console_error`` is in place of the lines.
    """
    try:
        # Empty lines are dropped, so request more than are shown.
        lines = terminal.tail(_read_console(cloud, host, name, 5 * CONSOLE_LINES), CONSOLE_LINES)
        shown: dict[str, Any] = {"console": lines}
    except VirtError as error:
        shown = {"console_error": str(error)}
    return {**shown, "console_command": f"salt-run virt.console_log {name}"}


def console_lines(cloud: Cloud, host: str, name: str) -> list[str]:
    """Return the last lines of a VM's console, safe to show; none if they cannot be read."""
    try:
        text = _read_console(cloud, host, name, _WATCHED_LINES)
    except VirtError:
        return []
    return terminal.lines(text, _WATCHED_LINES)


def console_log(cloud: Cloud, name: str, lines: int) -> str:
    """Return the last lines of a VM's console, safe to show, wherever the VM is."""
    host = locate(cloud, name, Purpose.READ).host
    return "\n".join(terminal.lines(_read_console(cloud, host, name, lines), lines))


def _read_console(cloud: Cloud, host: str, name: str, lines: int) -> str:
    """Return the last lines of a VM's console, as its guest wrote them."""
    reply = minions.ask(cloud, [host], "virt.console_log", [name, lines])[host]
    if not reply.ok or not isinstance(reply.value, str):
        reason = terminal.one_line(reply.reason or "its answer is not text")
        raise hostcommands.HostCommandFailed(f"{host}: {reason}", kind=reply.kind)
    return reply.value
