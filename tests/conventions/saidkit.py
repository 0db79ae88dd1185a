"""What the pages quote of our errors and warnings, and the texts of the code, to be compared."""

import ast
import functools
import itertools
import re
from pathlib import Path

import trees
from messages import HEADS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("_utils", "_modules", "_runners", "_states", "_pillar", "_output")
# What is a value where it is said: a number, a host, a VM.
VALUE = re.compile(r"\d+|\b(?:web|db|hyper|evil)\d\b|\b[A-Z]{2,}\b")
MARK = "…"
# A word or what ends one, with the space before it.
WORD = re.compile(r"\s*(?:[;,:.]+(?=\s|$)|\S+?(?=[;,:.]*(?:\s|$)))")


def quoted(text):
    """Yield what a page's tables of errors quote."""
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        inside = bool(cells) and (inside or cells[0] in HEADS)
        if inside:
            yield from re.findall(r"`([^`]+)`", cells[0])


def pieces(quote):
    """Yield the parts of a quote between its ellipses."""
    for part in re.split(r"…|\.\.\.", quote):
        if len(part.strip(" :;,.()'")) > 2:
            yield part.strip()


def is_said(piece, corpus):
    """Return whether the code has a piece word for word, or puts it together of two texts."""
    return _has(piece, corpus) or _is_composed(piece, corpus)


def _is_composed(piece, corpus, depth=2, first="", last=""):
    """
    Return whether the code has a piece in which some words are the value of another text.

    The value has to be a whole text, unless the piece ends, or begins, in the middle of it.
    """
    words = WORD.findall(piece)
    for begin, end in itertools.combinations(range(len(words) + 1), 2):
        frame = "".join([*words[:begin], " " * words[begin].startswith(" "), MARK, *words[end:]])
        if len(words) - (end - begin) > 1 and _has(frame, corpus, first, last):
            at_start, at_end = ("" if begin == 0 else "^"), ("" if end == len(words) else "$")
            value = "".join(words[begin:end]).strip()
            if _has(value, corpus, at_start, at_end):
                return True
            if depth > 1 and _is_composed(value, corpus, depth - 1, at_start, at_end):
                return True
    return False


@functools.cache
def _has(piece, corpus, first="", last=""):
    """Return whether a text of the code has a piece; a value may be a name there."""
    parts = [re.escape(part) for part in VALUE.split(piece)]
    values = [f"(?:{re.escape(value)}|{MARK})" for value in VALUE.findall(piece)] + [""]
    wanted = "".join(part + value for part, value in zip(parts, values, strict=True))
    return re.search(f"{first}{wanted}{last}", corpus, re.MULTILINE) is not None


def _text(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return MARK


@functools.cache
def corpus():
    """Return all texts of the code, one in each line, and the formula as it is written."""
    paths = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
    nodes = [node for path in paths if not path.is_symlink() for node in trees.nodes(path)]
    texts = [_text(node) for node in nodes if isinstance(node, ast.JoinedStr | ast.Constant)]
    formula = [path.read_text() for path in sorted((ROOT / "hypervisor").iterdir())]
    return "\n".join(" ".join(text.split()) for text in [*texts, *formula])
