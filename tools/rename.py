"""
Rename names without changing what the code does: ``tools/rename.py PLAN ...``.

A plan is a text file with a rename a line; ``#`` begins a comment:

    local PATH FUNCTION OLD NEW [FIRST-LAST]
        A local name or parameter of a function (``name``, ``Class.name``, ``outer.inner``), in all
        scopes inside it or on these lines only. Keyword arguments of its callers follow.
    global PATH OLD NEW
        A function, class or constant of a module. All files that import the module follow.

Paths are those of files. It needs Python 3.12 or later, which knows the places of names in
f-strings. A rename that would meet a name that is there already is refused, and
printed; the others are done.
"""

import argparse
import ast
import builtins
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("_utils", "_modules", "_runners", "_states", "_pillar", "_engines", "_clouds")
FOLDERS += ("_grains", "_output", "tests", "tools", "docs")
Functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Refused(Exception):
    """A rename that cannot be done."""


class Source:
    """A Python file, whose names are replaced by their places."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.lines = [line.encode() for line in self.text.splitlines(keepends=True)]
        self.edits: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def replace(self, line: int, column: int, old: str, new: str) -> None:
        """Note that a name is replaced; line from 1, column in bytes."""
        at = self.lines[line - 1][column : column + len(old.encode())]
        if at != old.encode():
            raise Refused(f"{self.path}:{line}: {at!r} is not {old}")
        self.edits[(line, column)] = (old.encode(), new.encode())

    def write(self) -> None:
        """Write the file with all replacements, and read it anew."""
        for (line, column), (old, new) in sorted(self.edits.items(), reverse=True):
            text = self.lines[line - 1]
            self.lines[line - 1] = text[:column] + new + text[column + len(old) :]
        if self.edits:
            text = b"".join(self.lines).decode()
            ast.parse(text)
            self.path.write_text(text)
        self.__init__(self.path)  # type: ignore[misc]


def function(source: Source, qualname: str) -> ast.AST:
    """Return the node of a function or class by its qualified name."""
    node: ast.AST = source.tree
    for name in qualname.split("."):
        children = [
            child for child in _inside(node) if isinstance(child, Functions) and child.name == name
        ]
        if not children:
            raise Refused(f"{source.path}: there is no {qualname}")
        node = children[-1]
    return node


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Functions | ast.Lambda):
            yield from _inside(child)


def places(source: Source, node: ast.AST, name: str) -> Iterator[tuple[int, int]]:
    """Yield line and column of each occurrence of a name in a scope."""
    for child in ast.walk(node):
        if (isinstance(child, ast.Name) and child.id == name) or (
            isinstance(child, ast.arg) and child.arg == name
        ):
            yield child.lineno, child.col_offset
        elif isinstance(child, ast.ExceptHandler) and child.name == name:
            line = source.lines[child.lineno - 1]
            yield child.lineno, line.index(b" as " + name.encode()) + 4
        elif isinstance(child, ast.MatchAs | ast.MatchStar) and child.name == name:
            line = child.end_lineno or child.lineno
            yield line, (child.end_col_offset or 0) - len(name.encode())
        elif isinstance(child, ast.Nonlocal | ast.Global) and name in child.names:
            raise Refused(f"{source.path}:{child.lineno}: {name} is nonlocal")
        elif isinstance(child, Functions) and child.name == name and child is not node:
            raise Refused(f"{source.path}:{child.lineno}: {name} is a function")


def used(node: ast.AST) -> set[str]:
    """Return all names that occur in a scope."""
    out = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            out.add(child.id)
        elif isinstance(child, ast.arg):
            out.add(child.arg)
        elif isinstance(child, Functions | ast.ExceptHandler | ast.MatchAs) and child.name:
            out.add(child.name)
    return out


def parameters(node: ast.AST) -> set[str]:
    """Return the parameters of a function itself."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    args = node.args
    return {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]}


def rename_local(sources: dict[Path, Source], words: list[str]) -> None:
    """Do a line ``local``."""
    path, qualname, old, new, *span = words
    source = sources[ROOT / path]
    node = function(source, qualname)
    first, last = 0, 10**9
    if span:
        first, _, last_text = (int(x) if x.isdigit() else x for x in span[0].partition("-"))
        last = int(last_text or first)
    found = [(line, column) for line, column in places(source, node, old) if first <= line <= last]
    if not found:
        raise Refused(f"{path}: {qualname} has no {old}")
    _refuse_taken(source, node, old, new, first, last, bool(span))
    is_parameter = old in parameters(node)
    is_public = not qualname.rpartition(".")[2].startswith("_")
    if is_parameter and is_public and path.startswith(("_modules", "_runners", "_states")):
        raise Refused(f"{path}: {old} is an argument of a public function")
    for line, column in found:
        source.replace(line, column, old, new)
    if is_parameter:
        _rename_keywords(sources, node, old, new)
    elif isinstance(node, ast.ClassDef):
        raise Refused(f"{path}: {old} is a field of {qualname}: rename it by hand")


def _refuse_taken(
    source: Source, node: ast.AST, old: str, new: str, first: int, last: int, is_part: bool
) -> None:
    scope = node
    if is_part:
        # A comprehension on these lines that binds the name; else it is one of the function.
        inner = [
            child
            for child in ast.walk(node)
            if isinstance(child, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
            and child.lineno <= first
            and (child.end_lineno or 0) >= last
            and _binds(child, old)
        ]
        scope = inner[-1] if inner else node
    if new in used(scope):
        raise Refused(f"{source.path.name}: {new} is used there already (for {old})")
    if hasattr(builtins, new) or not new.isidentifier():
        raise Refused(f"{source.path.name}: {new} is a builtin's name, or none")


def _rename_keywords(sources: dict[Path, Source], node: ast.AST, old: str, new: str) -> None:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for source in sources.values():
        if old not in source.text or node.name not in source.text:
            continue
        calls = [child for child in ast.walk(source.tree) if isinstance(child, ast.Call)]
        for keyword in (k for call in calls if _called(call) == node.name for k in call.keywords):
            if keyword.arg == old:
                source.replace(keyword.lineno, keyword.col_offset, old, new)


def _called(call: ast.Call) -> str | None:
    """Return the name of the function that a call means, also of ``partial(function, ...)``."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "partial" and call.args:
        func = call.args[0]
    return func.id if isinstance(func, ast.Name) else getattr(func, "attr", None)


def module_name(path: Path) -> str:
    """Return the name under which a library file is imported; a Salt module's stem otherwise."""
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "_utils":
        relative = relative.relative_to("_utils")
    return ".".join(relative.with_suffix("").parts).removesuffix(".__init__")


def rename_global(sources: dict[Path, Source], words: list[str]) -> None:
    """Do a line ``global``."""
    path, old, new = words
    own = sources[ROOT / path]
    module = module_name(ROOT / path)
    if new in used(own.tree) or hasattr(builtins, new):
        raise Refused(f"{path}: {new} is used there already (for {old})")
    _rename_definition(own, old, new)
    for source in sources.values():
        if source is not own and old in source.text:
            _rename_imported(source, module, old, new)


def _rename_definition(source: Source, old: str, new: str) -> None:
    done = 0
    for node in source.tree.body:
        if isinstance(node, Functions) and node.name == old:
            line = source.lines[node.lineno - 1]
            word = b"class " if isinstance(node, ast.ClassDef) else b"def "
            source.replace(node.lineno, line.index(word) + len(word), old, new)
            done += 1
    rename_uses(source, source.tree, old, new)
    if not done and not source.edits:
        raise Refused(f"{source.path}: there is no {old}")


def rename_uses(source: Source, node: ast.AST, old: str, new: str) -> None:
    """Rename a name of the module where no scope has one of its own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if _binds(child, old):
                for part in [*getattr(child, "decorator_list", []), *child.args.defaults]:
                    _rename_use(source, part, old, new)
                continue
            if new in used(child):
                raise Refused(f"{source.path}:{child.lineno}: {new} is used there already")
        for part in _without_field(node, child):
            _rename_use(source, part, old, new)


def _without_field(node: ast.AST, child: ast.AST) -> list[ast.AST]:
    """Return what can use a name of the module: of a class's field what stands behind its name."""
    if isinstance(child, ast.AnnAssign | ast.Assign) and isinstance(node, ast.ClassDef):
        parts = (getattr(child, "annotation", None), child.value)
        return [part for part in parts if part is not None]
    return [child]


def _rename_use(source: Source, child: ast.AST, old: str, new: str) -> None:
    if isinstance(child, ast.Name) and child.id == old:
        source.replace(child.lineno, child.col_offset, old, new)
    rename_uses(source, child, old, new)


def _binds(node: ast.AST, name: str) -> bool:
    for child in ast.walk(node):
        if isinstance(child, Functions) and child.name == name and child is not node:
            return True
        if isinstance(child, ast.arg) and child.arg == name:
            return True
        if isinstance(child, ast.Name) and child.id == name and isinstance(child.ctx, ast.Store):
            return True
    return False


def _rename_imported(source: Source, module: str, old: str, new: str) -> None:
    bound = _bound(source, module, old, new)
    stem = module.rpartition(".")[2]
    nodes = [child for child in ast.walk(source.tree) if isinstance(child, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in nodes for alias in node.names}

    def is_module(node: ast.AST) -> bool:
        """Return whether this is the module, or the one that another module imports."""
        if isinstance(node, ast.Attribute):
            return node.attr == stem and getattr(node.value, "id", None) in imported
        return isinstance(node, ast.Name) and node.id in bound

    for child in ast.walk(source.tree):
        if isinstance(child, ast.Attribute) and child.attr == old and is_module(child.value):
            line = child.end_lineno or child.lineno
            source.replace(line, (child.end_col_offset or 0) - len(old.encode()), old, new)
        elif isinstance(child, ast.Call) and len(child.args) >= 2:
            first, second = child.args[:2]
            is_named = isinstance(second, ast.Constant) and second.value == old
            if is_named and is_module(first):
                source.replace(second.lineno, second.col_offset + 1, old, new)
        elif isinstance(child, ast.Constant) and child.value == f"{module}.{old}":
            start = child.col_offset + 1 + len(module.encode()) + 1
            source.replace(child.lineno, start, old, new)


def _bound(source: Source, module: str, old: str, new: str) -> set[str]:
    """Return the names of a module in a file; rename what is imported out of it."""
    parent, _, stem = module.rpartition(".")
    out = set()
    for child in ast.walk(source.tree):
        if isinstance(child, ast.ImportFrom) and child.module == parent:
            out |= {alias.asname or stem for alias in child.names if alias.name == stem}
        elif isinstance(child, ast.ImportFrom) and child.module == module:
            for alias in (alias for alias in child.names if alias.name == old):
                _rename_alias(source, alias, old, new)
    return out


def _rename_alias(source: Source, alias: ast.alias, old: str, new: str) -> None:
    source.replace(alias.lineno, alias.col_offset, old, new)
    if alias.asname is None:
        if new in used(source.tree):
            raise Refused(f"{source.path}: {new} is used there already")
        rename_uses(source, source.tree, old, new)


DOING = {"local": rename_local, "global": rename_global}


def load() -> dict[Path, Source]:
    """Read all Python files of the project."""
    out = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_symlink() or "_build" in path.parts or "__pycache__" in path.parts:
                continue
            out[path] = Source(path)
    return out


def main() -> int:
    """Do the plans that the command line names; return 1 if a rename was refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("plans", nargs="+", type=Path)
    options = parser.parse_args()
    sources = load()
    counts: dict[str, int] = defaultdict(int)
    for plan in options.plans:
        for number, line in enumerate(plan.read_text().splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            try:
                DOING[words[0]](sources, words[1:])
            except (Refused, KeyError, ValueError, TypeError) as exc:
                counts["refused"] += 1
                print(f"{plan}:{number}: {line}: {exc}")
                for source in sources.values():
                    source.edits.clear()
                continue
            counts["done"] += 1
            for source in [s for s in sources.values() if s.edits]:
                source.write()
    print(f"{counts['done']} renames done, {counts['refused']} refused")
    return 1 if counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
