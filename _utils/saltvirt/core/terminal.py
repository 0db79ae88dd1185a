"""
Escape texts of guests, hosts, cells, images and keys for terminals and logs.

:func:`escape` turns each character that a terminal would obey, hide or reorder into the form that
Python writes in a string: ``\\x1b``, ``\\u202e``. The outputters must not import this library, and
have a copy in ``_output/virt_text.py``.
"""

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

# ECMA-48: control sequences with their parameters, strings to their end, and the short ones.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
# Escapes of JSON that may stand for characters that must not be shown.
_ESCAPED = re.compile(r'\\[^"/]')
# Letters and marks without a visible form, though Unicode counts them as printable: fillers, the
# Braille blank, variation selectors and the grapheme joiner.
_BLANKS = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffc"
    r"\U0001d159\U00016fe4\U000e0100-\U000e01ef"
)
_BLANK = re.compile(f"[{_BLANKS}]")
# With so many marks, letters of the languages that have them stay within their line.
_MAX_MARKS = 4
LONGEST = 200
# The limit for the line of an error: an error about several hosts has many reasons.
LONGEST_MESSAGE = 8000
# The limit of nested lists and mappings; the answers of hosts have less than 12 levels.
_MAX_DEPTH = 64


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 image``, ``2 images``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def join_some(texts: Iterable[str], most: int = 10, sign: str = ", ") -> str:
    """Return the first few of possibly a thousand texts, and how many more there are."""
    items = list(texts)
    excess = len(items) - most
    return sign.join(items[:most]) + (f" and {excess:,} more" if excess > 0 else "")


def escape(text: str, kept_chars: str = "") -> str:
    """
    Return a text with all that a terminal would obey, hide or reorder made visible.

    Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls,
    zero-width and blank characters, surrogates, private and unassigned characters, and marks piled
    on one letter become what Python writes for them, such as ``\\n``, ``\\x1b`` and ``\\u202e``.

    kept_chars
        Characters that stay as they are, such as a line break. Defaults to none.
    """
    if text.isascii() and text.isprintable():
        return text
    out, marks = [], _MAX_MARKS
    for char in text:
        is_mark = not char.isascii() and unicodedata.category(char)[0] == "M"
        # A mark at the beginning would sit on the text before.
        marks = marks + 1 if is_mark else 0
        is_plain = char.isprintable() and marks <= _MAX_MARKS and not _BLANK.match(char)
        out.append(char if is_plain or char in kept_chars else _code(char))
    return "".join(out)


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode()


def is_plain_id(text: str) -> bool:
    """
    Return whether an id or a name is safe in a suggested command.

    It consists of ASCII letters, digits and ``._@:+-``, begins with a letter, a digit or ``_``, and
    is not longer than a file name: no shell, glob or option misreads it, and no two look alike.
    """
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._@:+-]{0,254}", text) is not None


def printable(line: str) -> str:
    """
    Return a line of a console without control sequences and invisible characters.

    A console may have colours and cursor moves; names and reasons may not, see :func:`escape`.
    """
    text = _SEQUENCES.sub("", line)
    return "".join(char for char in text if char == "\t" or escape(f"a{char}") == f"a{char}")


def tail(text: str, lines: int) -> list[str]:
    """Return the last lines of a text that are not empty, each printable and cut."""
    printable_lines = (printable(line).rstrip() for line in text.splitlines())
    return [_short(line) for line in [line for line in printable_lines if line][-lines:]]


def lines(text: str, most: int) -> list[str]:
    """Return the last lines of a text, also empty ones, each printable and cut."""
    return [_short(printable(line).rstrip()) for line in text.splitlines()[-most:]]


def _short(line: str, longest: int = LONGEST) -> str:
    return line if len(line) <= longest else f"{line[:longest]} …"


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return a text as one printable line, cut."""
    return _short(escape(" ".join(text.split())), longest)


def message(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """Return the text of an error, a log or a step of progress as one printable line."""
    # Cut to a little more than is shown: escaping a longer text takes time.
    parts = re.split("[\r\n]+", str(text)[: 2 * longest])
    return _short(escape(" ".join(part.strip(" \t") for part in parts).strip()), longest)


class _Visible(logging.Handler):
    """Escapes the arguments of log records of this library; writes nothing itself."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Change the record before Salt's handlers write it."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(self._shown, record.args))
        return True

    @staticmethod
    def _shown(value: object) -> object:
        return message(value) if isinstance(value, str | BaseException) else value


def guard_log(name: str = "saltvirt") -> None:
    """Make each log record of this library one printable line."""
    library = logging.getLogger(name)
    library.handlers = [_Visible()]


guard_log()


def clean(value: Any, depth: int = 0, kept_chars: str = "\t") -> Any:
    """
    Return an answer, plain data, with its texts and keys escaped.

    A text within an answer becomes one line: with more, it could imitate other rows of the table
    that shows it. An answer that is a text keeps its lines. Raises ValueError if it is nested too
    deep.

    depth
        The depth at which the value is in the answer. Defaults to 0; -1 for a value that contains
        the answer.
    kept_chars
        Characters that texts within it keep. Defaults to a tab.
    """
    if isinstance(value, str):
        if value.isascii() and value.isprintable():
            return value
        lines_kept = depth <= 0
        return escape(
            value if lines_kept else value.replace("\n", " "), kept_chars + "\n\t" * lines_kept
        )
    if not isinstance(value, dict | list | tuple):
        return value
    # Later work on the value takes more of the stack than this.
    if depth == _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        values = [clean(item, depth + 1, kept_chars) for item in value.values()]
        return dict(zip(_visible_keys(value), values, strict=True))
    return [clean(item, depth + 1, kept_chars) for item in value]


def _visible_keys(value: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of a mapping, escaped; different keys stay different."""
    out: dict[Any, None] = {}
    for key in value:
        name = visible_key = escape(key) if isinstance(key, str) else key
        number = 1
        while name in out or (name != key and name in value):
            number += 1
            name = f"{visible_key} ({number})"
        out[name] = None
    return list(out)


def read(text: str, depth: int = 0) -> Any:
    """
    Return the value of a JSON text, cleaned as by :func:`clean`; most need no cleaning.

    depth
        As for :func:`clean`.
    """
    value = json.loads(text)
    if not (text.isascii() and text.isprintable()) or _ESCAPED.search(text):
        return clean(value, depth)
    _check_depth(value, depth)
    return value


def most_values(text: str) -> int:
    """
    Return the highest possible number of values in a JSON text.

    An empty list takes two characters there, and thirty times as much in memory.
    """
    return sum(map(text.count, ",[{")) + 1


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    while level := [item for item in level if type(item) in (dict, list)]:
        if depth == _MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels")
        depth += 1
        level = [
            child for item in level for child in (item.values() if type(item) is dict else item)
        ]
