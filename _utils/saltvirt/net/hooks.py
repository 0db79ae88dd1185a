"""What a hook of /etc/network/interfaces does with addresses and routes: pure functions."""

import ipaddress
import re
from collections.abc import Collection, Iterable

_Seen = Collection[tuple[str, str]]
_ROUTING = re.compile(r"(\S*/)?(ip\s+(-\S+\s+)*(a|addr|address|r|ro|route)|route|ifconfig)\b")
# Routes to nowhere, and what says nothing of one address or route: both are right on any link.
_NOWHERE = {"blackhole", "unreachable", "prohibit", "throw", "reject"}
_HARMLESS = {"flush", "show", "list", "get"}
_VERBS = {"add", "a", "append", "replace", "change", "del", "delete"}
_BETWEEN = {"-net", "-host", "unicast", "to", "dev", "local"}
_NO_TARGET = {"netmask", "broadcast", "gw", "metric", "mss", "window", "irtt", "via", "src"}


def is_moved(part: str, mine: Iterable[str], seen: _Seen) -> bool | None:
    """
    Return whether a hook gives what the bridge has instead; None if nobody can tell.

    mine
        The names of the bridge and its ports.
    seen
        ``[(address or destination, gateway or "")]`` of what is there, or is written.
    """
    if not _ROUTING.match(part):
        return False
    words = [word.strip("\"'") for word in part.split()]
    if _NOWHERE & {*words} or _HARMLESS & {*words[1:4]}:
        return False
    names = {*mine, "$IFACE", "${IFACE}"}
    tool = words[0].rpartition("/")[2]
    if tool == "ifconfig":
        return _of_ifconfig(words[1:], names, seen)
    link = _link(words, is_last=tool == "route")
    if link is not None and link not in names:
        return False
    return _is_seen(words, seen) or None


def _of_ifconfig(words: list[str], names: Collection[str], seen: _Seen) -> bool | None:
    given = [
        word
        for before, word in zip(words, words[1:], strict=False)
        if before not in _NO_TARGET and _plain(word)
    ]
    if not given or words[0].partition(":")[0] not in names or given[0] == "0.0.0.0":
        return False
    return any(_is_one(given[0], dst) for dst, _via in seen) or None


def _link(words: list[str], *, is_last: bool) -> str | None:
    if "dev" in words[:-1]:
        return words[words.index("dev") + 1]
    if is_last and words[-2] not in _NO_TARGET and not _plain(words[-1]):
        return words[-1]
    return None


def _is_seen(words: list[str], seen: _Seen) -> bool:
    rest = _arguments(words)
    if not rest or "table" in rest:
        return False
    hops = [after for word, after in zip(rest, rest[1:], strict=False) if word in ("via", "gw")]
    via = hops[0] if hops else None
    return any(_is_one(rest[0], dst) and via in (None, hop) for dst, hop in seen)


def _arguments(words: list[str]) -> list[str]:
    """Return what a command says behind its verb, without words that say nothing."""
    at = next((n for n, word in enumerate(words) if n and word in _VERBS), len(words))
    return [word for word in words[at + 1 :] if word not in _BETWEEN]


def _plain(text: str) -> str | None:
    """Return an address or a network as one text each, None for what is neither."""
    if text in ("default", "0.0.0.0/0", "::/0"):
        return "default"
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError:
        return None


def _is_one(said: str, known: str) -> bool:
    one, other = _plain(said), _plain(known)
    if one is None or other is None or "/" in said:
        return one == other is not None
    # A netmask may stand elsewhere.
    return one.partition("/")[0] == other.partition("/")[0]
