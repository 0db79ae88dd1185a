"""
Answers of a guest's agent, which the guest controls: checked, bounded, plain.

A text can be displayed: it has no control characters, and is cut. A number is an integer of 64
bits. A missing value, or one of another type, is None; lists are cut. Paths and names are for
display alone.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.core import terminal
from saltvirt.core.errors import GuestAnswerRefused

_LONGEST, _MOST = 1024, 256
_OS = {
    "id": "id",
    "name": "name",
    "pretty_name": "pretty-name",
    "version": "version",
    "version_id": "version-id",
    "variant": "variant",
    "machine": "machine",
    "kernel_release": "kernel-release",
    "kernel_version": "kernel-version",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """
    The result of a command in a guest.

    exit_code, signal
        At least one of them is None; both, if the agent reports neither.
    is_cut
        Whether there was more output.
    """

    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    is_cut: bool


def parse_return(command: str, text: str) -> Any:
    """Return the value that a command of the agent returned; raise if the text is malformed."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        raise GuestAnswerRefused(command, "is not JSON") from None
    if not isinstance(reply, dict) or "return" not in reply:
        raise GuestAnswerRefused(command, "has no 'return'")
    return reply["return"]


def cut_text(text: str, longest: int = _LONGEST) -> str:
    """Return a text, cut, with its control characters as escapes."""
    escaped_text = terminal.escape(text[:longest])
    return escaped_text if len(text) <= longest else f"{escaped_text} …"


def _text(value: object) -> str | None:
    return cut_text(value) if isinstance(value, str) else None


def _number(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and -(2**63) <= value < 2**63 else None  # type: ignore[operator,return-value]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_each(value: object, read: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
    items = value if isinstance(value, list) else []
    return [read(item) for item in items[:_MOST] if isinstance(item, dict)]


def commands(value: object) -> dict[str, bool]:
    """Return ``{name: whether it is enabled}`` from ``guest-info``."""
    supported_commands = _mapping(value).get("supported_commands")
    rows = supported_commands if isinstance(supported_commands, list) else []
    return {
        row["name"]: row.get("enabled") is True
        for row in rows[:_MOST]
        if isinstance(row, dict) and isinstance(row.get("name"), str)
    }


def version(value: object) -> str | None:
    """Return the agent's version from ``guest-info``."""
    return _text(_mapping(value).get("version"))


def system(value: object) -> dict[str, str | None]:
    """Return the operating system from ``guest-get-osinfo``."""
    os_info = _mapping(value)
    return {name: _text(os_info.get(key)) for name, key in _OS.items()}


def host_name(value: object) -> str | None:
    """Return the host name from ``guest-get-host-name``."""
    return _text(_mapping(value).get("host-name"))


def time_zone(value: object) -> dict[str, Any]:
    """Return the time zone from ``guest-get-timezone``: ``{name, offset_s}``."""
    reply = _mapping(value)
    return {"name": _text(reply.get("zone")), "offset_s": _number(reply.get("offset"))}


def users(value: object) -> list[dict[str, Any]]:
    """Return the users from ``guest-get-users``: ``[{name, domain, login_s}]``."""

    def read(user: Mapping[str, Any]) -> dict[str, Any]:
        login = user.get("login-time")
        is_time = isinstance(login, int | float) and abs(login) < 2**53
        return {
            "name": _text(user.get("user")),
            "domain": _text(user.get("domain")),
            "login_s": int(login) if is_time else None,  # type: ignore[arg-type]
        }

    return _read_each(value, read)


def file_systems(value: object) -> list[dict[str, Any]]:
    """Return the file systems from ``guest-get-fsinfo``."""
    return _read_each(
        value,
        lambda file_system: {
            "name": _text(file_system.get("name")),
            "mountpoint": _text(file_system.get("mountpoint")),
            "type": _text(file_system.get("type")),
            "total_bytes": _number(file_system.get("total-bytes")),
            "used_bytes": _number(file_system.get("used-bytes")),
        },
    )


def interfaces(value: object) -> list[dict[str, Any]]:
    """Return the interfaces from ``guest-network-get-interfaces``."""
    return _read_each(
        value,
        lambda interface: {
            "name": _text(interface.get("name")),
            "mac": _text(interface.get("hardware-address")),
            "addresses": _read_each(
                interface.get("ip-addresses"),
                lambda address: {
                    "address": _text(address.get("ip-address")),
                    "prefix": _number(address.get("prefix")),
                },
            ),
        },
    )


def process(value: object) -> int:
    """Return the id of the process that ``guest-exec`` started."""
    pid = _number(_mapping(value).get("pid"))
    if pid is None:
        raise GuestAnswerRefused("guest-exec", "has no number of a process")
    return pid


def parse_exec_status(value: object, most_bytes: int) -> CommandResult | None:
    """
    Return the result from ``guest-exec-status``; None while the command runs.

    most_bytes
        The limit of stdout, and of stderr; the rest is cut.
    """
    status = _mapping(value)
    if status.get("exited") is not True:
        return None
    out, err = (_output(status.get(key), most_bytes) for key in ("out-data", "err-data"))
    cut_flags = (out[1], err[1], status.get("out-truncated"), status.get("err-truncated"))
    return CommandResult(
        exit_code=_number(status.get("exitcode")),
        signal=_number(status.get("signal")),
        stdout=out[0],
        stderr=err[0],
        is_cut=any(flag is True for flag in cut_flags),
    )


def _output(value: object, most_bytes: int) -> tuple[str, bool]:
    """Return a command's output as text, and whether it was cut."""
    if value is None:
        return "", False
    try:
        if not isinstance(value, str):
            raise TypeError
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise GuestAnswerRefused("guest-exec-status", "has an output that is not base64") from None
    text = data[:most_bytes].decode("utf-8", errors="backslashreplace")
    return terminal.escape(text, "\n\t"), len(data) > most_bytes
