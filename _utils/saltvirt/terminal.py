"""What guests and hosts write, made fit to be shown on somebody's terminal."""

import re

# ECMA-48: control sequences with their parameters, strings to their end, and the short ones.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
LONGEST = 200


def counted(number: int, what: str) -> str:
    """Return a number of things as people say it: ``1 image``, ``2 images``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


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
