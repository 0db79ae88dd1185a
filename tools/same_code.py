"""
Compare two trees of Python files but for names, docstrings and comments: ``OLD NEW``.

A commit that only renames must compare equal. Local names may differ if each scope renames them
consistently; functions, classes and keyword arguments may differ if a definition was renamed
likewise. ``--moved`` names a file of lines ``OLD-MODULE NEW-MODULE`` for modules that have moved.
``--texts`` passes over the content of all strings, for a commit that rewrites messages.
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Lines and columns, comments of types, and the kind of a string.
SKIPPED = {"lineno", "col_offset", "end_lineno", "end_col_offset", "type_comment", "kind", "ctx"}


class Scope(dict[str, set[str]]):
    """The new names of each name that a scope binds, and which of them are bound as well."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__({name: set() for name in names})
        self.bound: set[str] = set()

    def unbound(self) -> Iterator[tuple[str, str]]:
        """Yield ``(old, new)`` of new names that are only read: another thing is read then."""
        for old, names in self.items():
            yield from ((old, new) for new in names - self.bound)


class Comparison:
    """What two trees differ in."""

    def __init__(self, moved: Mapping[str, str], has_texts: bool) -> None:
        self.moved = moved
        self.has_texts = has_texts
        self.differences: list[str] = []
        self.defined: set[tuple[str, str]] = set()
        self.used: list[tuple[str, str, str]] = []

    def module(self, name: str) -> str:
        """Return the new name of a module, or of a name in one."""
        if name in self.moved:
            return self.moved[name]
        parent, _, last = name.rpartition(".")
        return f"{self.moved[parent]}.{last}" if parent in self.moved else name

    def files(self, old: Path, new: Path, where: str) -> None:
        """Compare two files."""
        trees = []
        for path in (old, new):
            try:
                trees.append(without_docstrings(ast.parse(path.read_text())))
            except SyntaxError as exc:
                self.differences.append(f"{path}: {exc}")
                return
        before, after = (split_imports(tree) for tree in trees)
        self._imports(before, after, where)
        self._walk(trees[0], trees[1], where, [])

    def _imports(self, before: set[str], after: set[str], where: str) -> None:
        expected = {self.module(name) for name in before}
        for name in sorted(expected ^ after):
            side = "gone" if name in expected else "new"
            parent, _, last = name.rpartition(".")
            pairs = {new for old, new in self.defined if old == last}
            if side == "gone" and any(f"{parent}.{pair}" in after for pair in pairs):
                continue
            self.used.append((f"{where}: import", side, name))

    def _walk(self, old: Any, new: Any, where: str, scopes: list[Scope]) -> None:
        if type(old) is not type(new):
            self.differences.append(f"{where}: {show(old)} became {show(new)}")
        elif isinstance(old, ast.AST):
            self._nodes(old, new, where, scopes)
        elif isinstance(old, list):
            if len(old) != len(new):
                self.differences.append(f"{where}: {len(old)} parts became {len(new)}")
            for part_old, part_new in zip(old, new, strict=False):
                self._walk(part_old, part_new, where, scopes)
        elif old != new:
            self.differences.append(f"{where}: {old!r} became {new!r}")

    def _nodes(self, old: Any, new: Any, where: str, scopes: list[Scope]) -> None:
        at = f"{where.partition(':')[0]}:{getattr(new, 'lineno', 0)}"
        if isinstance(old, ast.Name):
            self._name(old, new, at, scopes)
            return
        if isinstance(old, ast.Constant) and isinstance(old.value, str):
            self._text(old.value, str(new.value), at)
            return
        inner = scopes
        if isinstance(old, (*Scopes, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            inner = [*scopes, Scope(bindings(old))]
        for field, value in ast.iter_fields(old):
            if field == "name" and isinstance(value, str):
                self._define(value, new.name, scopes)
            elif field not in SKIPPED:
                self._field(old, field, value, getattr(new, field), at, inner)
        for name, other in inner[-1].unbound() if inner is not scopes else ():
            self.differences.append(f"{at}: {name} became {other}, which nothing binds there")

    def _text(self, old: str, new: str, at: str) -> None:
        if old != new and not self.has_texts:
            self.used.append((at, old, new))

    def _define(self, old: str, new: str, scopes: list[Scope]) -> None:
        if scopes and old in scopes[-1]:
            scopes[-1][old].add(new)
            scopes[-1].bound.add(new)
        self.defined.add((old, new))

    def _field(
        self, node: ast.AST, field: str, old: Any, new: Any, at: str, scopes: list[Any]
    ) -> None:
        if isinstance(node, ast.arg) and field == "arg":
            self._define(old, new, scopes)
        elif field in ("attr", "arg") and isinstance(old, str) and isinstance(new, str):
            if old != new:
                self.used.append((at, old, new))
        else:
            self._walk(old, new, at, scopes)

    def _name(self, node: ast.Name, other: ast.Name, at: str, scopes: list[Scope]) -> None:
        old, new = node.id, other.id
        for scope in reversed(scopes):
            if old in scope:
                scope[old].add(new)
                if isinstance(node.ctx, ast.Store):
                    scope.bound.add(new)
                if not scopes_agree(scope, old, new):
                    self.differences.append(f"{at}: {old} and another name both became {new}")
                return
        if old != new:
            self.used.append((at, old, new))
        if not scopes:
            self.defined.add((old, new))

    def end(self) -> list[str]:
        """Return all differences, when all files are compared."""
        pairs = self.defined | {
            (old.rpartition(".")[2], new.rpartition(".")[2]) for old, new in self.moved.items()
        }
        for at, old, new in self.used:
            if at.endswith(": import"):
                last = new.rpartition(".")[2]
                if any(last in (a, b) and a != b for a, b in pairs):
                    continue
                self.differences.append(f"{at} {old}: {new}")
            elif (old, new) not in pairs and self.module(old) != new:
                self.differences.append(f"{at}: {old!r} became {new!r}")
        return self.differences


def scopes_agree(scope: Mapping[str, set[str]], old: str, new: str) -> bool:
    """Return whether no other name of a scope has the same new name."""
    return not any(new in names for name, names in scope.items() if name != old)


def bindings(node: ast.AST) -> Iterator[str]:
    """Yield the names that a scope binds itself, without those of scopes inside it."""
    if isinstance(node, Scopes):
        args = node.args
        listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        yield from (arg.arg for arg in listed if arg)
    todo = list(ast.iter_child_nodes(node))
    while todo:
        child = todo.pop()
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        if isinstance(child, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and child.name:
            yield child.name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Lambda):
            continue
        elif not isinstance(child, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            todo += ast.iter_child_nodes(child)


def without_docstrings(tree: ast.Module) -> ast.Module:
    """Return a syntax tree without its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return tree


def split_imports(tree: ast.Module) -> set[str]:
    """Take the imports out of a module's body; return the full names of what they import."""
    out = set()
    rest = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            out |= {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            rest.append(node)
    tree.body = rest
    return out


def show(node: Any) -> str:
    """Return a node as one short line."""
    return (ast.unparse(node) if isinstance(node, ast.AST) else repr(node))[:80]


def python_files(root: Path) -> dict[str, Path]:
    """Return all Python files of a tree by their paths in it."""
    found = (path for path in root.rglob("*.py") if not path.is_symlink())
    return {str(path.relative_to(root)): path for path in found}


def main() -> int:
    """Print how two trees differ; return 1 if they do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--moved", type=Path)
    parser.add_argument("--texts", action="store_true", help="pass over the content of strings")
    options = parser.parse_args()
    lines = options.moved.read_text().splitlines() if options.moved else []
    comparison = Comparison(dict(line.split() for line in lines if line), options.texts)
    paths = {old.replace(".", "/"): new.replace(".", "/") for old, new in comparison.moved.items()}
    before, after = python_files(options.old), python_files(options.new)
    for name, path in sorted(before.items()):
        stem = name.removesuffix(".py")
        other = paths.get(stem, stem) + ".py"
        if other not in after:
            comparison.differences.append(f"{name}: is gone")
            continue
        comparison.files(path, after.pop(other), other)
    comparison.differences += [f"{name}: is new" for name in sorted(after)]
    print("\n".join(comparison.end()))
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
