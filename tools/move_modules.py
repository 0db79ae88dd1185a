"""
Move modules of the library, and rewrite all that names them: ``tools/move_modules.py MAP``.

A map has lines ``saltvirt.OLD saltvirt.NEW``. Imports, uses of an imported module's name, dotted
names and paths in strings, comments and pages follow. Where a file has the new name already, its
import keeps the old one (``import new as old``), and that is printed. Needs Python 3.12 or later,
which knows the places of names in f-strings. ``tools/same_code.py --moved MAP`` compares the trees.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import rename

ROOT = rename.ROOT
LIBRARY = ROOT / "_utils" / "saltvirt"
DOTTED = re.compile(r"\bsaltvirt(?:\.[A-Za-z_][A-Za-z0-9_]*)+")
PATH = re.compile(r"(?<![\w./-])((?:_utils/)?(?:saltvirt/)?)((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)\b")


class Moves:
    """Where each module and package goes."""

    def __init__(self, lines: list[str]) -> None:
        self.modules = dict(line.split() for line in lines if line.strip())
        self.packages = self._packages()
        self.paths = {_path(old): _path(new) for old, new in self.modules.items()}

    def _packages(self) -> dict[str, str]:
        parents = defaultdict(set)
        for old, new in self.modules.items():
            parents[old.rpartition(".")[0]].add(new.rpartition(".")[0])
        return {
            old: min(new)
            for old, new in parents.items()
            if len(new) == 1 and "." in old and self._is_emptied(old)
        }

    def _is_emptied(self, package: str) -> bool:
        """Return whether the map moves all modules of a package, so that the package moves."""
        folder = LIBRARY.parent / package.replace(".", "/")
        paths = (path.relative_to(LIBRARY.parent).with_suffix("") for path in folder.rglob("*.py"))
        return all(
            ".".join(path.parts) in self.modules for path in paths if path.name != "__init__"
        )

    def dotted(self, name: str) -> str:
        """Return the new name of a module, or of something in one."""
        parts = name.split(".")
        for count in range(len(parts), 1, -1):
            head = ".".join(parts[:count])
            for table in (self.modules, self.packages):
                if head in table and (table is self.modules or count == len(parts)):
                    return ".".join([table[head], *parts[count:]])
        return name

    def text(self, text: str) -> str:
        """Return a text with the new names and paths."""
        text = DOTTED.sub(lambda match: self.dotted(match[0]), text)
        return PATH.sub(lambda match: match[1] + self.paths.get(match[2], match[2]), text)


def _path(module: str) -> str:
    return module.removeprefix("saltvirt.").replace(".", "/") + ".py"


class Rewriting:
    """The edits of one Python file."""

    def __init__(self, path: Path, moves: Moves) -> None:
        self.path, self.moves = path, moves
        self.source = rename.Source(path)
        self.edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
        self.kept: list[str] = []
        self.renamed: dict[str, str] = {}

    def run(self) -> None:
        """Rewrite the file."""
        names = rename.used(self.source.tree) | set(self._bound())
        skipped = []
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "saltvirt":
                self._import(node, names)
                skipped.append((node.lineno, node.end_lineno or node.lineno))
        for token in tokenize.generate_tokens(io.StringIO(self.source.text).readline):
            is_inside = any(first <= token.start[0] <= last for first, last in skipped)
            if token.type in _TEXTS and not is_inside:
                self._text(token)
        self._write()

    def _bound(self) -> Iterator[str]:
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from (alias.asname or alias.name for alias in node.names)

    def _import(self, node: ast.ImportFrom, names: set[str]) -> None:
        grouped = defaultdict(list)
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            if module in self.moves.modules:
                parent, _, stem = self.moves.modules[module].rpartition(".")
                grouped[parent].append(self._alias(alias, stem, names))
            else:
                shown = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                grouped[self.moves.dotted(str(node.module))].append(shown)
        indent = " " * node.col_offset
        lines = [f"from {module} import {', '.join(texts)}" for module, texts in grouped.items()]
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        self.edits.append((start, end, f"\n{indent}".join(lines)))  # type: ignore[arg-type]

    def _alias(self, alias: ast.alias, stem: str, names: set[str]) -> str:
        if alias.asname == stem:
            return stem
        bound = alias.asname or alias.name
        if stem == bound:
            return stem
        if stem in names and alias.asname:
            return f"{stem} as {alias.asname}"
        if stem in names:
            self.kept.append(f"{self.path.relative_to(ROOT)}: {stem} as {alias.name}")
            return f"{stem} as {alias.name}"
        names.add(stem)
        self.renamed[bound] = stem
        rename.rename_uses(self.source, self.source.tree, bound, stem)
        return stem

    def _text(self, token: tokenize.TokenInfo) -> None:
        text = self.moves.text(token.string)
        if text != token.string and "{" in token.string and token.type != tokenize.STRING:
            self.kept.append(f"{self.path}:{token.start[0]}: rewrite by hand: {token.string}")
        elif text != token.string:
            first, last = (
                (line, len(self.source.lines[line - 1].decode()[:column].encode()))
                for line, column in (token.start, token.end)
            )
            self.edits.append((first, last, text))

    def _write(self) -> None:
        for (line, column), (old, new) in self.source.edits.items():
            self.edits.append(((line, column), (line, column + len(old)), new.decode()))
        starts = [0]
        for line in self.source.lines:
            starts.append(starts[-1] + len(line))
        data = self.source.text.encode()
        for start, end, text in sorted(self.edits, reverse=True):
            first, last = (starts[line - 1] + column for line, column in (start, end))
            data = data[:first] + text.encode() + data[last:]
        ast.parse(data)
        self.path.write_bytes(data)


def follow(path: Path, renamed: Mapping[str, Mapping[str, str]]) -> None:
    """
    Rename, in a file that was rewritten, what it reaches through a module that imports it.

    renamed
        ``{module: {old name of an import: new name}}``.
    """
    source = rename.Source(path)
    imports = [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]
    bound = {a.asname or a.name: f"{node.module}.{a.name}" for node in imports for a in node.names}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = renamed.get(bound.get(node.value.id, ""), {})
            if node.attr in names:
                column = (node.end_col_offset or 0) - len(node.attr.encode())
                source.replace(node.end_lineno or 0, column, node.attr, names[node.attr])
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            module, name = node.args[:2]
            names = renamed.get(bound.get(getattr(module, "id", ""), ""), {})
            if isinstance(name, ast.Constant) and name.value in names:
                old = str(name.value)
                source.replace(name.lineno, name.col_offset + 1, old, names[old])
    source.write()


_TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}


def move_files(moves: Mapping[str, str]) -> None:
    """Move all files by git, in two steps, as a file may go where a folder of its name was."""
    for number, old in enumerate(moves):
        _git("mv", _file(old), f"_utils/moving-{number}.py")
    for number, new in enumerate(moves.values()):
        target = ROOT / _file(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        _git("mv", f"_utils/moving-{number}.py", str(target))


def _file(module: str) -> str:
    return f"_utils/{module.replace('.', '/')}.py"


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def main() -> int:
    """Move what the map says."""
    moves = Moves(Path(sys.argv[1]).read_text().splitlines())
    renamed = {}
    paths = list(rename.load())
    for path in paths:
        rewriting = Rewriting(path, moves)
        rewriting.run()
        renamed[moves.dotted(rename.module_name(path))] = rewriting.renamed
        for line in rewriting.kept:
            print(line)
    for path in paths:
        follow(path, renamed)
    for pattern in ("docs/*.md", "*.md", "*.toml", "hypervisor/**/*", "tests/**/*.md"):
        for page in ROOT.glob(pattern):
            if page.is_file():
                text = page.read_text()
                if (new := moves.text(text)) != text:
                    page.write_text(new)
    move_files(moves.modules)
    return 0


if __name__ == "__main__":
    sys.exit(main())
