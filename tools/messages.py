"""Make the index of messages: ``tools/messages.py >docs/messages.md``."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
# The first column of a page's table of messages.
HEADS = ("It says", "It says, or it happened", "Message")
# Words of a cell that refer to another row, or to a place of its page.
# The pages with a table of the findings of a command, and the column that says what each is.
FINDINGS = {
    "setup-check.md": ("virt.setup_check", "What must be there"),
    "doctor.md": ("virt.doctor", "What is left over"),
    "security.md": ("virt.audit", "Problem"),
}
REFERRING = re.compile(r"^the same\b|\bsee (?:above|below)\b")
ABOUT = """\
# Index of messages

Search this page for a few words of the message that you have. An ellipsis stands for names and
numbers. The last column leads to the page that has more. Every failure is one
line with a non-zero exit code, and most name the command that helps.

The [findings of the three checks](#findings-of-the-checks) are below.

This page is made of the tables of the other pages: `python3 tools/messages.py >docs/messages.md`.

| Words of it | What it means, or what to do | More |
|---|---|---|
"""
FINDINGS_ABOUT = """
## Findings of the checks

`salt-run virt.setup_check`, `virt.doctor` and `virt.audit` name each finding, and have its cure in
the same line.

| Finding | Of | What it is about |
|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    A row of a page's table of messages.

    quotes
        The first cell, with the words of the message as code.
    meaning
        The second cell; empty if it refers to another place of its page.
    link
        The page and the heading of the table.
    """

    quotes: str
    meaning: str
    link: str

    @property
    def order(self) -> str:
        """What rows are sorted by: the words without marks."""
        return re.sub(r"[^a-z0-9 ]", "", self.quotes.lower()).strip()


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table; none of another line."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def messages(page: Path) -> Iterator[Message]:
    """Yield the messages of a page."""
    title = heading = ""
    inside = False
    for line in page.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
            title = title or heading
        row = cells(line)
        is_head = bool(row) and row[0] in HEADS
        if inside and row and "`" in row[0]:
            meaning = re.sub(r"\]\(#", f"]({page.name}#", row[1])
            yield Message(
                quotes=row[0],
                meaning="" if REFERRING.search(meaning) else meaning,
                link=f"[{title}]({page.name}#{anchor(heading)})",
            )
        inside = is_head or (inside and bool(row))


def findings(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield ``(names, link, meaning)`` of the findings that a page's table lists."""
    command, column = FINDINGS[page.name]
    heading, at = "", 0
    for line in page.read_text().splitlines():
        heading = line.lstrip("# ") if line.startswith("#") else heading
        row = cells(line)
        if row and row[0] == "Check" and column in row:
            at = row.index(column)
        elif at and row and row[0].startswith("`"):
            meaning = re.sub(r"\]\(#", f"]({page.name}#", row[at])
            meaning = "" if REFERRING.search(meaning) else meaning
            yield row[0], f"[`{command}`]({page.name}#{anchor(heading)})", meaning
        at = at if row else 0


def index() -> str:
    """Return the page."""
    pages = [page for page in sorted(DOCS.glob("*.md")) if page.name != "messages.md"]
    rows = sorted((row for page in pages for row in messages(page)), key=lambda row: row.order)
    found = sorted(row for name in FINDINGS for row in findings(DOCS / name))
    return (
        ABOUT
        + "".join(f"| {row.quotes} | {row.meaning} | {row.link} |\n" for row in rows)
        + FINDINGS_ABOUT
        + "".join(f"| {' | '.join(row)} |\n" for row in found)
    )


if __name__ == "__main__":
    print(index(), end="")
