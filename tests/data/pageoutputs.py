"""What pages show as the output of commands, which tests compare with real output.

A page marks what a command prints: ``<!-- output: COMMAND -->`` before the block. What differs from
cloud to cloud and from run to run is left out of that: times, addresses, ids, digests, sizes of
machines.
"""

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|output): (?P<words>[^\n]*\S) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# (/\S+)")
# What varies, and the word that stands for it; the first that fits wins.
_VARIES = (
    (r"\b(?:[0-9a-f]{2}:){15,}[0-9a-f]{2}\b", "FINGERPRINT"),
    (r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", "MAC"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?\b", "TIME"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b\*?", "ADDRESS"),
    (r"\b[0-9a-f]{12,}\b", "DIGEST"),
    (r"(?<![\w.])\d+(?:\.\d+)? ?(?:s|min|h|days?|d)\b", "AGE"),
    (r"\b\d+(?:\.\d+)?/\d+(?:\.\d+)?\b", "FREE"),
    (r"\b\d+\.\d+\b", "NUMBER"),
    (r"\b(?:qemu|kvm)\b", "TYPE"),
)
# Progress, of which a page shows nothing: in percent, of a wait, and of a command on several VMs.
_PROGRESS = re.compile(r"^(?:.*\b\d+ % of |.*\b\d+ s so far; |virt: ).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page: its mark with the mark's words, its kind, and its text."""

    mark: str
    words: str
    kind: str
    body: str

    @property
    def file(self):
        """The file that its first line names, without what may follow the name."""
        named = _FILE.match(self.body)
        return named[1].rstrip(";") if named else ""


def blocks(page):
    """Return the blocks of a page of docs/ in their order."""
    return blocks_of((DOCS / page).read_text())


def blocks_of(text):
    """Return the blocks of a part of a page."""
    return [
        Block(found["mark"] or "", found["words"] or "", found["kind"], found["body"])
        for found in BLOCK.finditer(text)
    ]


def outputs(page):
    """Return ``{command: output}``: what a page says that these commands print."""
    return {one.words: one.body for one in blocks(page) if one.mark == "output"}


def constant(text):
    """Return the lines of an output without what varies."""
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text)
    return [" ".join(line.split()) for line in _PROGRESS.sub("", text).strip().splitlines()]


def compare(page, command, printed, is_regenerated=False):
    """Compare what a command printed with its block; write the block anew if that is wanted."""
    shown = outputs(page)[command]
    if is_regenerated and constant(shown) != constant(printed):
        path = DOCS / page
        before = f"<!-- output: {command} -->\n```text\n{shown}```\n"
        clean = _PROGRESS.sub("", printed).strip()
        lines = [line.rstrip() for line in clean.splitlines()]
        after = before.replace(shown, "\n".join([*lines, ""]))
        path.write_text(path.read_text().replace(before, after))
        shown = outputs(page)[command]
    assert constant(shown) == constant(printed), f"{page}: {command}; pytest --regenerate"
