"""A guest for its users: facts and commands by its agent, addresses, login, and console."""

import base64
import logging
import os
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from saltvirt.core import arguments, files, guestaccess, terminal
from saltvirt.core.errors import BadArgument, GuestAnswerRefused, LibvirtRefused, VirtError
from saltvirt.core.units import MIB
from saltvirt.libvirt import networks
from saltvirt.libvirt.domains import guestanswers, query
from saltvirt.libvirt.domains.guestanswers import CommandResult
from saltvirt.network.bridge import links
from saltvirt.vm.show.host import details, inspect, showndisks
from saltvirt.vm.spec import console_log
from saltvirt.xml.edit import readdomain

# By part of our answer: the agent's command, and the parser of its reply.
_PARTS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "hostname": ("guest-get-host-name", guestanswers.host_name),
    "os": ("guest-get-osinfo", guestanswers.system),
    "timezone": ("guest-get-timezone", guestanswers.time_zone),
    "users": ("guest-get-users", guestanswers.users),
    "filesystems": ("guest-get-fsinfo", guestanswers.file_systems),
    "interfaces": ("guest-network-get-interfaces", guestanswers.interfaces),
}
_SHORTEST_S, _LONGEST_S = 0.05, 1.0
# libvirt limits each message from and to the agent to 4 MiB.
_MOST_INPUT, _MOST_OUTPUT = MIB, 2 * MIB
_MOST_WORDS, _MOST_ARGUMENTS = 1024, 128 * 1024


class GuestAgent(Protocol):
    """The interface of :class:`saltvirt.libvirt.domains.guestagent.Agent`."""

    def ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        """Run a command of the agent and return its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command for a guest: its path and arguments, its input, and its limits."""

    words: tuple[str, ...]
    stdin: str | None = None
    limit_s: int = 60
    output_bytes: int = 65536


def parse_command(words: Sequence[Any], stdin: Any, timeout_s: Any, output_bytes: Any) -> Command:
    """Validate a call's arguments and return them as a command."""
    if len(words) == 1 and isinstance(words[0], list | tuple):
        words = words[0]
    if not words:
        raise BadArgument("command", "is missing: a program of the guest, and its arguments")
    checked_words = tuple(_check_word(word) for word in words)
    if len(checked_words) > _MOST_WORDS or sum(map(len, checked_words)) > _MOST_ARGUMENTS:
        raise BadArgument(
            "command", f"at most {_MOST_WORDS} arguments of {_MOST_ARGUMENTS} characters in all"
        )
    if stdin is not None and (not isinstance(stdin, str) or len(stdin.encode()) > _MOST_INPUT):
        raise BadArgument("stdin", f"is not a text of at most {_MOST_INPUT} bytes")
    return Command(
        words=checked_words,
        stdin=stdin,
        limit_s=arguments.whole_number("timeout_s", timeout_s, most=3600),
        output_bytes=arguments.whole_number("output_bytes", output_bytes, most=_MOST_OUTPUT),
    )


def _check_word(value: Any) -> str:
    # YAML turns words such as yes or null into other types.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadArgument("command", f"{value!r} is not text; quote it, also for YAML")
    text = str(value)
    if "\0" in text:
        raise BadArgument("command", "has a character 0, which no argument can have")
    return text


def read_info(agent: GuestAgent) -> dict[str, Any]:
    """
    Return the guest's facts from its agent; an unavailable part is None, with a reason.

    Returns ``{agent, hostname, os, timezone, users, filesystems, interfaces, unavailable}``.
    """
    agent_info = agent.ask("guest-info")
    enabled_by_command = guestanswers.commands(agent_info)
    out: dict[str, Any] = {"agent": guestanswers.version(agent_info), **dict.fromkeys(_PARTS)}
    unavailable = {}
    for part, (agent_command, parse) in _PARTS.items():
        if not enabled_by_command.get(agent_command):
            problem = "has switched off" if agent_command in enabled_by_command else "does not know"
            unavailable[part] = f"the agent {problem} {agent_command}"
            continue
        try:
            out[part] = parse(agent.ask(agent_command))
        except (LibvirtRefused, GuestAnswerRefused) as exc:
            unavailable[part] = str(exc)
    return {**out, "unavailable": unavailable}


def run(agent: GuestAgent, command: Command) -> CommandResult:
    """Run a command in a guest, without a shell, and return its result."""
    path, *args = command.words
    exec_arguments: dict[str, Any] = {"path": path, "arg": args, "capture-output": True}
    if command.stdin is not None:
        exec_arguments["input-data"] = base64.b64encode(command.stdin.encode()).decode()
    pid = guestanswers.process(agent.ask("guest-exec", exec_arguments))
    until, pause = time.monotonic() + command.limit_s, _SHORTEST_S
    while True:
        status = agent.ask("guest-exec-status", {"pid": pid})
        result = guestanswers.parse_exec_status(status, command.output_bytes)
        if result is not None:
            return result
        if time.monotonic() >= until:
            raise VirtError(
                f"the command has not ended within {command.limit_s} s (timeout_s); it goes on in "
                f"the guest as process {pid}, as its agent cannot end it"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)


log = logging.getLogger(__name__)


def describe_vm(conn: Any, name: str, host: str) -> dict[str, dict[str, Any]]:
    """
    Return a VM as :func:`saltvirt.vm.show.host.inspect.vm_info` does, with details, and its login.

    host
        This host's minion id.
    """
    disks = showndisks.Disks(conn)
    return {
        row["name"]: {
            **inspect.describe(row, disks),
            **details.describe(conn, row),
            **_describe_access(conn, row, host),
        }
        for row in inspect.rows(conn, name)
    }


def _describe_access(conn: Any, row: Mapping[str, Any], host: str) -> dict[str, Any]:
    root, name = readdomain.domain(row["xml"]), row["name"]
    user = guestaccess.ssh_user(readdomain.describe_notes(root)["ssh_user"])
    behind = networks.find_host_only_subnets(conn, readdomain.links(root)["networks"])
    out = {"addresses": [], "addresses_from": None, "behind_host": behind, "ssh_user": user}
    if row["state"] != "running":
        return {**out, "login": None}
    addresses, source = _find_addresses(conn, name, root)
    login = guestaccess.ssh(
        addresses, user, host=host, jump_networks=behind
    ) or guestaccess.console(name, host)
    return {**out, "addresses": addresses, "addresses_from": source, "login": login}


def _find_addresses(conn: Any, name: str, root: ET.Element) -> tuple[list[str], str | None]:
    """Return a running VM's addresses from the first source that knows any, and that source."""
    for source in ("lease", *(["agent"] if readdomain.has_agent(root) else []), "neighbours"):
        if source == "neighbours":
            addresses, source = _neighbours(conn, name, root)
        else:
            addresses = query.addresses(conn, name, source)
        if addresses:
            return addresses, source
    return [], None


def _neighbours(conn: Any, name: str, root: ET.Element) -> tuple[list[str], str]:
    """Return addresses from the kernel's neighbour table, as libvirt's reader may fail."""
    try:
        return guestaccess.addresses(links.neighbours(_on_bridges(root))), "neighbours"
    except VirtError as exc:
        log.debug("the neighbours of this host are not known: %s", exc)
        return query.addresses(conn, name, "arp"), "arp"


def _on_bridges(root: ET.Element) -> list[tuple[str, str]]:
    """Return ``(bridge, MAC)`` of a running VM's NICs; running XML names networks' bridges."""
    pairs = (
        (nic.get("source", {}).get("bridge"), mac) for mac, nic in readdomain.nics(root).items()
    )
    return [(bridge, mac) for bridge, mac in pairs if bridge]


def read_console_tail(name: str, lines: int) -> str:
    """
    Return the last lines of a VM's console log, from its last MiB.

    The guest writes the log, so terminal control sequences are left out.
    """
    path = Path(console_log(name))
    try:
        with open(path, "rb", opener=files.open_by_trusted_links) as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - MIB))
            text = handle.read().decode(errors="replace")
    except OSError as exc:
        raise VirtError(f"no console log of {name!r}: {exc.strerror} ({path})") from exc
    return "\n".join(terminal.printable(line) for line in text.splitlines()[-lines:])
