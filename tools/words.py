"""
Count vague names, riddle words, renamed imports, long sentences: ``tools/words.py [-v] PATH ...``.

A vague name is a parameter or an assigned name that is a pronoun or the like (``one``, ``found``):
it does not say what it holds. A riddle word is a pronoun that stands as subject or object in a
docstring, a comment or a page (``nobody``, ``whoever``). A long sentence is one of a page with more
than 30 words; blocks of code and tables do not count, and code in a sentence is one word.
``-v`` lists each occurrence.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

VAGUE = frozenset(
    "one ones found said says saying why there here known this that these those what who whose it "
    "other others given done left had has was told asked heard seen taken took mine theirs ours "
    "own rest some every each both thing things which whole got gone kept made held again beside "
    "alone all_of such same meant lost wanted so then thus".split()
)
RIDDLE = re.compile(
    r"\b(nobody|somebody|anybody|everybody|someone|anyone|everyone|whoever|whomever|whom|whose|"
    r"whatever|whichever|(?:is|are|was|were|be|been) (?:said|told)|says so|said so|so says)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
LONGEST = 30
# Kinds of occurrences, and how they are counted.
KINDS = {"name": "vague", "import": "renamed", "riddle": "riddles", "long": "long"}
NO_PROSE = re.compile(
    r"^---\n.*?^---$|^ *```.*?^ *```$|^ *~~~.*?^ *~~~$|^:::.*?^:::$|<!--.*?-->|^ *\|.*?$|^#.*?$",
    re.MULTILINE | re.DOTALL,
)
# A blank line, the next item of a list, or the end of a quotation ends a sentence, too.
BREAK = re.compile(r"\n(?=\s*\n)|\n(?=\s*(?:[-*+]|\d+\.|>)\s)")
# Names that begin a sentence in lower case.
END = re.compile(
    r"(?<=[.!?])[)\"'*_]*\s+(?=[^a-z]|libvirt|guestmount|certtool|firewalld|cloud-init)"
)


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield ``(name, line)`` of all parameters and assigned names of a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def is_vague(name: str) -> bool:
    """Return whether a name is a pronoun or the like."""
    return name.strip("_") in VAGUE


def prose(text: str) -> Iterator[tuple[str, int]]:
    """Yield ``(text, line)`` of all docstrings and comments of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring, node.body[0].lineno
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#! "), token.start[0]


def renamed(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """
    Yield ``(import, line)`` of all imports under another name (``ET`` is the usual one).

    Where the file defines a function of that name, as runners do, the import needs another name.
    """
    defined = {n.name for n in ast.iter_child_nodes(tree) if isinstance(n, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.asname not in (None, alias.name, "ET") and alias.name not in defined:
                    yield f"{alias.name} as {alias.asname}", node.lineno


def sentences(text: str) -> Iterator[tuple[str, int]]:
    """Yield ``(sentence, line)`` of a page's prose; code in a sentence is one word."""
    bare = NO_PROSE.sub(lambda found: "\n" * found[0].count("\n"), text)
    bare = re.sub(r"`[^`]+`", lambda found: "CODE" + "\n" * found[0].count("\n"), bare)
    bare = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", bare)
    at = 0
    for end in [*BREAK.finditer(bare), None]:
        stop = end.start() if end else len(bare)
        begin = at
        for sentence in END.split(bare[at:stop]):
            found = bare.index(sentence, begin)
            begin = found + len(sentence)
            if sentence.strip():
                leading = len(sentence) - len(sentence.lstrip())
                yield " ".join(sentence.split()), 1 + bare.count("\n", 0, found + leading)
        at = stop


def is_long(sentence: str) -> bool:
    """Return whether a sentence has more words than readers keep in mind."""
    return len([word for word in sentence.split() if re.search(r"\w", word)]) > LONGEST


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield all Python files and pages of folders, and files as they are."""
    for path in paths:
        if path.is_dir():
            yield from sorted(
                p for p in path.rglob("*") if p.suffix in (".py", ".md") and p.is_file()
            )
        else:
            yield path


def long_sentences(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield ``("long", line, sentence)`` of a page."""
    for sentence, line in sentences(text):
        if is_long(sentence):
            yield "long", line, sentence


def of_code(text: str, counts: Counter[str]) -> Iterator[tuple[str, int, str]]:
    """Yield ``(kind, line, name)`` of a file's vague names and renamed imports; count all names."""
    tree = ast.parse(text)
    for name, line in names(tree):
        counts["names"] += 1
        if is_vague(name):
            yield "name", line, name
    for shown, line in renamed(tree):
        yield "import", line, shown


def riddles(text: str, first: int) -> Iterator[tuple[str, int, str]]:
    """Yield ``("riddle", line, words around it)`` of a text that begins at a line."""
    for match in RIDDLE.finditer(text):
        shown = text[max(0, match.start() - 30) : match.end() + 30]
        line = first + text.count("\n", 0, match.start())
        yield "riddle", line, f"...{' '.join(shown.split())}..."


def count(paths: list[Path]) -> tuple[Counter[str], list[str]]:
    """
    Count all files.

    Returns the counts (``names``, ``vague``, ``words``, ``riddles``, ``renamed``, ``long``), and a
    line for each occurrence.
    """
    counts: Counter[str] = Counter()
    lines = []
    for path in files(paths):
        text = path.read_text()
        if path.suffix == ".md":
            texts, occurrences = [(text, 1)], long_sentences(text)
        else:
            texts, occurrences = list(prose(text)), of_code(text, counts)
        for part, line in texts:
            counts["words"] += len(WORD.findall(part))
            occurrences = chain(occurrences, riddles(part, line))
        for kind, line, shown in occurrences:
            counts[KINDS[kind]] += 1
            lines.append(f"{path}:{line}: {kind} {shown}")
    return counts, lines


def report(counts: Counter[str]) -> str:
    """Return the counts as one line."""
    vague = 100 * counts["vague"] / max(counts["names"], 1)
    riddles = 1000 * counts["riddles"] / max(counts["words"], 1)
    return (
        f"{counts['vague']} of {counts['names']} names are vague ({vague:.1f} %), "
        f"{counts['riddles']} riddle words in {counts['words']} ({riddles:.2f} per 1,000), "
        f"{counts['renamed']} renamed imports, {counts['long']} long sentences"
    )


def main() -> None:
    """Print the counts of the files and folders that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-v", "--verbose", action="store_true", help="list each occurrence")
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args()
    counts, lines = count(options.paths)
    if options.verbose:
        print("\n".join(lines))
    print(report(counts))


if __name__ == "__main__":
    main()
