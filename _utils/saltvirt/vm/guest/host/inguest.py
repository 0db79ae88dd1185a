"""Facts from the guest agent, and commands that the agent runs in the guest."""

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, GuestAnswerRefused, LibvirtRefused, VirtError
from saltvirt.core.units import MIB
from saltvirt.libvirt.domains import guestanswers
from saltvirt.libvirt.domains.guestanswers import CommandResult

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
