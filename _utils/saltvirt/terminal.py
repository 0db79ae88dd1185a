"""What guests, hosts and cells write, made fit to be shown on somebody's terminal."""

import json
import re
from collections.abc import Iterable
from typing import Any

# ECMA-48: control sequences with their parameters, strings to their end, and the short ones.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
# What stands in JSON for letters that may not be shown, as others of them do not stand there.
_ESCAPED = re.compile(r'\\[^"/]')
LONGEST = 200
# Levels of lists and mappings within each other; what hosts really say has less than 12.
_MAX_DEPTH = 64


def counted(number: int, what: str) -> str:
    """Return a number of things as people say it: ``1 image``, ``2 images``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def some(things: Iterable[str], most: int = 10, sign: str = ", ") -> str:
    """Return the first few of some things, as there may be a thousand, and how many more."""
    listed = list(things)
    more = len(listed) - most
    return sign.join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def printable(line: str) -> str:
    """Return a line without what would steer a terminal."""
    return "".join(one for one in _SEQUENCES.sub("", line) if one.isprintable() or one == "\t")


def tail(text: str, lines: int) -> list[str]:
    """Return the last lines of a text that are not empty, each fit to be shown and not too long."""
    shown = (printable(line).rstrip() for line in text.splitlines())
    return [_short(line) for line in [line for line in shown if line][-lines:]]


def lines(text: str, most: int) -> list[str]:
    """Return the last lines of a text, empty ones too, each fit to be shown and not too long."""
    return [_short(printable(line).rstrip()) for line in text.splitlines()[-most:]]


def _short(line: str, longest: int = LONGEST) -> str:
    return line if len(line) <= longest else f"{line[:longest]} …"


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return a text as one line, fit to be shown and not too long."""
    return _short(printable(" ".join(text.split())), longest)


def clean(value: Any, depth: int = 0) -> Any:
    """
    Return an answer, plain data, whose texts have nothing that a terminal would obey.

    A text within an answer is one line: with more, it would look like what others have said in the
    table that it is shown in. An answer that is a text keeps its lines. Raises ValueError if it is
    nested too deep.

    depth
        How deep the answer is in what is given. Defaults to 0; -1 for what has the answer in it.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        text = value if depth <= 0 else value.replace("\n", " ")
        return _shown(text, "\n\t")
    if not isinstance(value, dict | list):
        return value
    # Whatever is done with it later takes more of the stack than this.
    if depth == _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        # A name is one line: with more, it would look like what others have said.
        return {_shown(name, ""): clean(one, depth + 1) for name, one in value.items()}
    return [clean(one, depth + 1) for one in value]


def read(text: str, depth: int = 0) -> Any:
    """
    Return what a text of JSON says, as :func:`clean` does, of which most have nothing to clean.

    depth
        As of :func:`clean`.
    """
    value = json.loads(text)
    if not text.isprintable() or _ESCAPED.search(text):
        return clean(value, depth)
    _check_depth(value, depth)
    return value


def most_values(text: str) -> int:
    """
    Return how many values a text of JSON has at most.

    An empty list takes two letters there, and thirty times as much in memory.
    """
    return sum(map(text.count, ",[{")) + 1


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    while level := [one for one in level if type(one) in (dict, list)]:
        if depth == _MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
        depth += 1
        level = [it for one in level for it in (one.values() if type(one) is dict else one)]


def _shown(text: str, beside: str) -> str:
    """Return a text with something else in place of all that is not shown, but for some letters."""
    if text.isprintable():
        return text
    other = "\N{REPLACEMENT CHARACTER}"
    return "".join(one if one in beside or one.isprintable() else other for one in text)
