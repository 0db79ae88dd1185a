"""Judge the addresses and routes in hooks of /etc/network/interfaces: pure functions."""

import ipaddress
import re
from collections.abc import Collection, Iterable

_PresentRoutes = Collection[tuple[str, str]]
_ROUTING = re.compile(r"(\S*/)?(ip\s+(-\S+\s+)*(a|addr|address|r|ro|route)|route|ifconfig)\b")
# Routes to nowhere, and commands without an address or route, are right on any link.
_NOWHERE = {"blackhole", "unreachable", "prohibit", "throw", "reject"}
_HARMLESS = {"flush", "show", "list", "get"}
_VERBS = {"add", "a", "append", "replace", "change", "del", "delete"}
_BETWEEN = {"-net", "-host", "unicast", "to", "dev", "local"}
_NO_TARGET = {"netmask", "broadcast", "gw", "metric", "mss", "window", "irtt", "via", "src"}


def is_moved(part: str, link_names: Iterable[str], present_routes: _PresentRoutes) -> bool | None:
    """
    Return whether a hook sets an address or route that moves to the bridge; None if unclear.

    link_names
        The names of the bridge and its ports.
    present_routes
        ``[(address or destination, gateway or "")]`` that exist or will be written.
    """
    if not _ROUTING.match(part):
        return False
    words = [word.strip("\"'") for word in part.split()]
    if _NOWHERE & {*words} or _HARMLESS & {*words[1:4]}:
        return False
    names = {*link_names, "$IFACE", "${IFACE}"}
    tool = words[0].rpartition("/")[2]
    if tool == "ifconfig":
        return _is_ifconfig_moved(words[1:], names, present_routes)
    link = _link(words, is_last=tool == "route")
    if link is not None and link not in names:
        return False
    return _is_present(words, present_routes) or None


def _is_ifconfig_moved(
    words: list[str], names: Collection[str], present_routes: _PresentRoutes
) -> bool | None:
    addresses = [
        word
        for previous_word, word in zip(words, words[1:], strict=False)
        if previous_word not in _NO_TARGET and _plain(word)
    ]
    if not addresses or words[0].partition(":")[0] not in names or addresses[0] == "0.0.0.0":
        return False
    return any(_is_same_destination(addresses[0], dst) for dst, _via in present_routes) or None


def _link(words: list[str], *, is_last: bool) -> str | None:
    if "dev" in words[:-1]:
        return words[words.index("dev") + 1]
    if is_last and words[-2] not in _NO_TARGET and not _plain(words[-1]):
        return words[-1]
    return None


def _is_present(words: list[str], present_routes: _PresentRoutes) -> bool:
    arguments = _arguments(words)
    if not arguments or "table" in arguments:
        return False
    hops = [
        next_word
        for word, next_word in zip(arguments, arguments[1:], strict=False)
        if word in ("via", "gw")
    ]
    gateway = hops[0] if hops else None
    return any(
        _is_same_destination(arguments[0], dst) and gateway in (None, hop)
        for dst, hop in present_routes
    )


def _arguments(words: list[str]) -> list[str]:
    """Return the arguments after a command's verb, without filler words."""
    at = next((n for n, word in enumerate(words) if n and word in _VERBS), len(words))
    return [word for word in words[at + 1 :] if word not in _BETWEEN]


def _plain(text: str) -> str | None:
    """Return an address or a network in its usual form, None for other texts."""
    if text in ("default", "0.0.0.0/0", "::/0"):
        return "default"
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError:
        return None


def _is_same_destination(text: str, present_text: str) -> bool:
    address, present_address = _plain(text), _plain(present_text)
    if address is None or present_address is None or "/" in text:
        return address == present_address is not None
    # The prefix may be given apart, as a netmask.
    return address.partition("/")[0] == present_address.partition("/")[0]
