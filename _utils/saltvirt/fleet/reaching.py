"""How a VM that was just made is reached; and what its console says where its minion is silent."""

from typing import Any

from saltvirt import access, terminal
from saltvirt.errors import VirtError
from saltvirt.fleet import minions
from saltvirt.fleet.cloud import Cloud

CONSOLE_LINES = 10


def of(cloud: Cloud, host: str, name: str, *, has_minion: bool) -> dict[str, Any]:
    """
    Return ``{"addresses", "login"}`` of a VM that runs.

    has_minion
        Its minion answers: it is asked where its host knows no address.

    The VM is there whatever this finds, so nothing here fails.
    """
    said = _asked(cloud, host, name)
    listed = said.get("addresses")
    found = access.addresses(listed if isinstance(listed, list) else [])
    if not found and has_minion:
        found = _of_minion(cloud, name)
    other = f"salt {name} cmd.run COMMAND" if has_minion else f"virsh console {name} (on {host})"
    login = access.ssh(found, access.ssh_user(said.get("ssh_user"))) or other
    return {"addresses": found, "login": login}


def _asked(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    try:
        reply = minions.ask(cloud, [host], "virt.vm_info", [name])[host]
    except VirtError:
        return {}
    said = reply.value.get(name) if reply.ok and isinstance(reply.value, dict) else None
    return said if isinstance(said, dict) else {}


def _of_minion(cloud: Cloud, name: str) -> list[str]:
    try:
        said = minions.said_by_guest(cloud, name, "grains.item", ["ipv4", "ipv6"])
    except VirtError:
        return []
    grains = said if isinstance(said, dict) else {}
    lists = [grains.get(key) for key in ("ipv4", "ipv6")]
    return access.addresses(one for some in lists if isinstance(some, list) for one in some)


def console(cloud: Cloud, host: str, name: str) -> dict[str, Any]:
    """
    Return ``{"console", "console_command"}``: the end of a VM's console, and what shows more.

    Where it cannot be read there is ``console_error`` instead of the lines.
    """
    command = f"salt {host} virt.console_log {name}"
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
