"""Parse the stanzas of /etc/network/interfaces line by line, without loss."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_ALONE = ("auto", "source", "source-directory", "no-auto-down", "no-scripts", "rename")
# A backslash at the end of the file would continue the next line after an edit.
_END = "\\ \t\r\n"


@dataclass(slots=True)
class Entry:
    """A logical line; it may span several lines of the file."""

    words: list[str]
    lines: list[str]


@dataclass(slots=True)
class Block:
    """A stanza, or comments and empty lines between stanzas (then ``words`` is empty)."""

    words: list[str]
    entries: list[Entry] = field(default_factory=list)

    def is_iface(self, name: str, family: str | None = None) -> bool:
        """Return whether the block is the stanza of an interface."""
        return self.words[:2] == ["iface", name] and family in (None, *self.words[2:3])

    def options(self) -> list[Entry]:
        """Return the entries below the stanza's first line."""
        return self.entries[1:]


def entries(text: str) -> Iterator[Entry]:
    """Yield the :class:`Entry` of each logical line."""
    lines = text.rstrip(_END).split("\n")
    while lines:
        entry_lines = [lines.pop(0)]
        if entry_lines[0].lstrip().startswith("#"):
            yield Entry([], entry_lines)
            continue
        while entry_lines[-1].endswith("\\") and lines:
            entry_lines.append(lines.pop(0))
        yield Entry(" ".join(line.removesuffix("\\") for line in entry_lines).split(), entry_lines)


def _is_head(words: list[str]) -> bool:
    return bool(words) and (
        words[0] in (*_ALONE, "iface", "mapping") or words[0].startswith("allow-")
    )


def blocks(text: str) -> list[Block]:
    """Return the :class:`Block` of each stanza, and of the text between stanzas."""
    out = [Block([])]
    for entry in entries(text):
        if _is_head(entry.words):
            out.append(Block(entry.words, [entry]))
        elif entry.words or out[-1].words[:1] in (["iface"], ["mapping"]) or not out[-1].words:
            out[-1].entries.append(entry)
        else:
            out.append(Block([], [entry]))
    return [part for block in out for part in _without_tail(block)]


def _without_tail(block: Block) -> list[Block]:
    """Return a stanza, and the comments between its last option and the next stanza."""
    end = len(block.entries)
    while block.words and end and not block.entries[end - 1].words:
        end -= 1
    tail = block.entries[end:]
    return [Block(block.words, block.entries[:end]), *([Block([], tail)] if tail else [])]


def text_of(parts: Iterable[Block]) -> str:
    """Return the text of blocks."""
    lines = [line for block in parts for entry in block.entries for line in entry.lines]
    return "\n".join(lines).rstrip(_END) + "\n"
