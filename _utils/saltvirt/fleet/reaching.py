"""How a VM is reached, and what its console says, wherever it is."""

import shlex
from collections.abc import Mapping
from typing import Any

from saltvirt import access, compat, terminal, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import finding, hosts, keys, minions
from saltvirt.fleet.cloud import Cloud
from saltvirt.placement.shownvms import ShownVm

CONSOLE_LINES = 10
# A guest does not print more while it boots than this in half a minute.
_WATCHED_LINES = 500
# What Salt says of a function that an older version does not have.
_OLD = "is not available"


def of(cloud: Cloud, host: str, name: str, *, has_minion: bool) -> dict[str, Any]:
    """
    Return ``{"addresses", "login"}`` of a VM that runs, and ``addresses_from`` where it is known.

    has_minion
        Its minion answers. What it has told the master when it came counts where its host knows no
        address.

    The VM is there whatever this finds, so nothing here fails.
    """
    return _completed(cloud, host, name, _asked(cloud, host, name), has_minion=has_minion)


def _completed(
    cloud: Cloud, host: str, name: str, said: Mapping[str, Any], *, has_minion: bool
) -> dict[str, Any]:
    """Return what :func:`of` does, of what a host has said of a VM."""
    listed, source = said.get("addresses"), said.get("addresses_from")
    found = access.addresses(listed if isinstance(listed, list) else [])
    if not found:
        # It is the VM itself that has said so.
        found, source = _listed(_told(cloud, name)), "minion"
    user, behind = access.ssh_user(said.get("ssh_user")), said.get("behind_host")
    nets = behind if isinstance(behind, list) else []
    if has_minion and not found:
        login: str | None = _by_salt(name)
    else:
        login = access.ssh(found, user, host=host, behind=nets)
    login = login or (_by_salt(name) if has_minion else access.console(name, host))
    by = {"addresses_from": source} if found and source in access.SOURCES else {}
    return {"addresses": found, **by, "login": login}


def _by_salt(name: str) -> str:
    return f"salt {name} cmd.run COMMAND"


def vm_info(cloud: Cloud, name: str) -> dict[str, Any]:
    """
    Return ``{host: {name: {...}}}`` of a VM, as its host has it.

    Where the host of a running VM knows no address, the VM's own minion has said it. How to log in
    is made of what the host says, and is not the host's own text: somebody will type it.
    """
    host, fun = finding.to_read(cloud, name), "virt.vm_info"
    said = hosts.act(cloud, host, fun, name)
    wire.read(host, fun, dict[str, ShownVm], said)
    # It was asked of this VM alone.
    one = said.get(name)
    if one is None:
        return {host: {}}
    reached: dict[str, Any] = {"addresses": [], "login": None}
    if one["state"] == "running":
        # Nobody answers for a VM without a key.
        has_minion = keys.accepted(cloud.opts, name) is not None
        reached = _completed(cloud, host, name, one, has_minion=has_minion)
    return {host: {name: {**one, "addresses_from": None, **reached}}}


def _asked(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    try:
        reply = minions.ask(cloud, [host], "virt.vm_info", [name])[host]
    except VirtError:
        return {}
    said = reply.value.get(name) if reply.ok and isinstance(reply.value, dict) else None
    return said if isinstance(said, dict) else {}


def _told(cloud: Cloud, name: str) -> Mapping[str, Any]:
    """Return the grains that a VM's minion has sent this master when it came, if it did."""
    if keys.accepted(cloud.opts, name) is None:
        return {}
    said = compat.Grains(cloud.opts).of(name)
    return said if isinstance(said, dict) else {}


def _listed(grains: Mapping[str, Any]) -> list[str]:
    lists = [grains.get(key) for key in ("ipv4", "ipv6")]
    return access.addresses(one for some in lists if isinstance(some, list) for one in some)


def console(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    """
    Return ``{"console", "console_command"}``: the end of a VM's console, and what shows more.

    Where it cannot be read there is ``console_error`` instead of the lines.
    """
    command = f"salt-run virt.console_log {name}"
    try:
        # Empty lines are left out, so more are asked for than are shown.
        asked = [name, 5 * CONSOLE_LINES]
        reply = minions.ask(cloud, [host], "virt.console_log", asked)[host]
    except VirtError as error:
        return {"console_error": str(error), "console_command": command}
    if not reply.ok or not isinstance(reply.value, str):
        why = reply.error or f"{host} did not answer"
        return {"console_error": terminal.one_line(why), "console_command": command}
    lines = terminal.tail(reply.value, CONSOLE_LINES)
    return {"console": lines, "console_command": command}


def console_lines(cloud: Cloud, host: str, name: str) -> list[str]:
    """Return the last lines of a VM's console, fit to be shown; none if they cannot be read."""
    try:
        reply = minions.ask(cloud, [host], "virt.console_log", [name, _WATCHED_LINES])[host]
    except VirtError:
        return []
    if not reply.ok or not isinstance(reply.value, str):
        return []
    return terminal.lines(reply.value, _WATCHED_LINES)


def console_log(cloud: Cloud, name: str, lines: int) -> str:
    """Return the last lines of a VM's console, fit to be shown, wherever the VM is."""
    host = finding.to_read(cloud, name)
    reply = minions.ask(cloud, [host], "virt.console_log", [name, lines])[host]
    if _OLD in (reply.error or ""):
        raise hosts.DeployError(
            f"{host} has an older version of Salt Virt, which does not show consoles: "
            f"salt {shlex.quote(host)} saltutil.sync_all"
        )
    if not reply.ok or not isinstance(reply.value, str):
        why = terminal.one_line(
            reply.error or f"it did not answer; see: salt {shlex.quote(host)} test.ping"
        )
        raise hosts.DeployError(f"{host}: {why}")
    return "\n".join(terminal.lines(reply.value, lines))
