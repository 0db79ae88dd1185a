"""What the agent in a guest says of it, and commands that it runs there."""

import base64
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from saltvirt import arguments, guestanswers
from saltvirt.errors import BadArgument, GuestAnswerRefused, LibvirtRefused, VirtError
from saltvirt.guestanswers import Ended
from saltvirt.units import MIB

# How it is asked for, and how its answer is read, by the name that it has in ours.
_PARTS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "hostname": ("guest-get-host-name", guestanswers.host_name),
    "os": ("guest-get-osinfo", guestanswers.system),
    "timezone": ("guest-get-timezone", guestanswers.time_zone),
    "users": ("guest-get-users", guestanswers.users),
    "filesystems": ("guest-get-fsinfo", guestanswers.file_systems),
    "interfaces": ("guest-network-get-interfaces", guestanswers.interfaces),
}
_SHORTEST_S, _LONGEST_S = 0.05, 1.0
# What goes to libvirt, and comes from it, is one text of at most 4 MiB.
_MOST_INPUT, _MOST_OUTPUT = MIB, 2 * MIB
_MOST_WORDS, _MOST_ARGUMENTS = 1024, 128 * 1024


class Asks(Protocol):
    """What :class:`saltvirt.kvm.guestagent.Agent` does."""

    def ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        """Return what a command of the agent returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command for a guest: its path there and its arguments, and how long it may take."""

    words: tuple[str, ...]
    stdin: str | None = None
    limit_s: int = 60
    output_bytes: int = 65536


def command(words: Sequence[Any], stdin: Any, timeout_s: Any, output_bytes: Any) -> Command:
    """Return the command that a call means; every value is looked at here."""
    if len(words) == 1 and isinstance(words[0], list | tuple):
        words = words[0]
    if not words:
        raise BadArgument("command", "is missing: a program of the guest, and its arguments")
    made = tuple(_word(one) for one in words)
    if len(made) > _MOST_WORDS or sum(map(len, made)) > _MOST_ARGUMENTS:
        raise BadArgument(
            "command", f"at most {_MOST_WORDS} arguments of {_MOST_ARGUMENTS} characters in all"
        )
    if stdin is not None and (not isinstance(stdin, str) or len(stdin.encode()) > _MOST_INPUT):
        raise BadArgument("stdin", f"is not a text of at most {_MOST_INPUT} bytes")
    return Command(
        words=made,
        stdin=stdin,
        limit_s=arguments.whole("timeout_s", timeout_s, most=3600),
        output_bytes=arguments.whole("output_bytes", output_bytes, most=_MOST_OUTPUT),
    )


def _word(value: Any) -> str:
    # What YAML reads as True or null was another word.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadArgument("command", f"{value!r} is not text; quote it, also for YAML")
    text = str(value)
    if "\0" in text:
        raise BadArgument("command", "has a character 0, which no argument can have")
    return text


def info(agent: Asks) -> dict[str, Any]:
    """
    Return what a guest says of itself, each part None where it says nothing, with why.

    Returns ``{agent, hostname, os, timezone, users, filesystems, interfaces, unavailable}``.
    """
    first = agent.ask("guest-info")
    known = guestanswers.commands(first)
    out: dict[str, Any] = {"agent": guestanswers.version(first), **dict.fromkeys(_PARTS)}
    unavailable = {}
    for part, (asked, read) in _PARTS.items():
        if not known.get(asked):
            how = "has switched off" if asked in known else "does not know"
            unavailable[part] = f"the agent {how} {asked}"
            continue
        try:
            out[part] = read(agent.ask(asked))
        except (LibvirtRefused, GuestAnswerRefused) as exc:
            unavailable[part] = str(exc)
    return {**out, "unavailable": unavailable}


def run(agent: Asks, wanted: Command) -> Ended:
    """Run a command in a guest and return what has become of it; it has no shell around it."""
    path, *rest = wanted.words
    given: dict[str, Any] = {"path": path, "arg": rest, "capture-output": True}
    if wanted.stdin is not None:
        given["input-data"] = base64.b64encode(wanted.stdin.encode()).decode()
    pid = guestanswers.process(agent.ask("guest-exec", given))
    until, pause = time.monotonic() + wanted.limit_s, _SHORTEST_S
    while True:
        said = agent.ask("guest-exec-status", {"pid": pid})
        found = guestanswers.ended(said, wanted.output_bytes)
        if found is not None:
            return found
        if time.monotonic() >= until:
            raise VirtError(
                f"the command has not ended within {wanted.limit_s} s (timeout_s); it goes on in "
                f"the guest as process {pid}, as its agent cannot end it"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)
