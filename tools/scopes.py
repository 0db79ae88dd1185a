"""
Names of Python files by their scopes, and what modules import: for ``tools/merge_modules.py``.

It needs Python 3.12 or later, which knows the places of names in f-strings.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rename
import same_code

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def global_uses(tree: ast.Module) -> Iterator[tuple[ast.Name, list[set[str]]]]:
    """Yield each name that means one of the module, with what the scopes around it bind."""
    yield from _uses(tree, [], set())


def _uses(
    node: ast.AST, scopes: list[set[str]], in_class: set[str]
) -> Iterator[tuple[ast.Name, list[set[str]]]]:
    """Yield the uses below a node; what a class binds is not seen by its methods."""
    if isinstance(node, ast.Name):
        bound = [*scopes, in_class]
        if not any(node.id in names for names in bound):
            yield node, bound
    elif isinstance(node, same_code.Scopes):
        inner = [*scopes, local_names(node)]
        yield from _uses_of_all(_outside(node), scopes, in_class)
        body = node.body if isinstance(node.body, list) else [node.body]
        yield from _uses_of_all(body, inner, set())
    elif isinstance(node, COMPREHENSIONS):
        inner = [*scopes, set(same_code.bindings(node))]
        first = node.generators[0]
        yield from _uses(first.iter, scopes, in_class)
        parts = [part for part in ast.iter_child_nodes(node) if part is not first]
        yield from _uses_of_all([*parts, first.target, *first.ifs], inner, set())
    elif isinstance(node, ast.ClassDef):
        outer = [*node.decorator_list, *node.bases, *node.keywords]
        yield from _uses_of_all(outer, scopes, in_class)
        bound_names = class_names(node)
        for part in node.body:
            yield from _uses_of_all(_without_field_name(part), scopes, bound_names)
    else:
        yield from _uses_of_all(ast.iter_child_nodes(node), scopes, in_class)


def _uses_of_all(
    nodes: Iterable[ast.AST], scopes: list[set[str]], in_class: set[str]
) -> Iterator[tuple[ast.Name, list[set[str]]]]:
    for node in nodes:
        yield from _uses(node, scopes, in_class)


def _outside(node: Any) -> list[ast.AST]:
    """Return the parts of a function that stand in the scope around it."""
    args = node.args
    listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    parts = [*args.defaults, *args.kw_defaults, *(arg.annotation for arg in listed if arg)]
    parts += [*getattr(node, "decorator_list", []), getattr(node, "returns", None)]
    return [part for part in parts if part is not None]


def _without_field_name(node: ast.stmt) -> list[ast.AST]:
    """Return a statement of a class, of a field without a value only its annotation."""
    is_bare = isinstance(node, ast.AnnAssign) and node.value is None
    return [node.annotation] if is_bare else [node]  # type: ignore[attr-defined]


def local_names(node: ast.AST) -> set[str]:
    """Return the names that a function binds itself."""
    names, outer = set(same_code.bindings(node)), set()
    for child in ast.walk(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in child.names}
        elif isinstance(child, ast.Global):
            outer |= set(child.names)
    return names - outer


def class_names(node: ast.ClassDef) -> set[str]:
    """Return the names that a class binds, but those of fields without a value."""
    bare = {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and part.value is None
        if isinstance(part.target, ast.Name)
    }
    return set(same_code.bindings(node)) - bare


def bound_by(node: ast.AST) -> set[str]:
    """Return the names that a statement at the top binds."""
    if isinstance(node, rename.Functions):
        return {node.name}
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Return the node around each node."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def find_circle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Return the nodes of a circle, if there is one."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for other in sorted(graph.get(node, ())):
            circle = visit(other, [*path, node])
            if circle:
                return circle
        done.add(node)
        return None

    for start in sorted(graph):
        circle = visit(start, [])
        if circle:
            return circle
    return None


@dataclass
class Module:
    """A Python file: what it defines and imports."""

    path: Path
    name: str
    source: rename.Source
    # Of a name that is bound at the top: (module, name in it or None for the module itself).
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)

    @property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return self.source.tree


class Project:
    """All files, by path and by module."""

    def __init__(self) -> None:
        root = rename.ROOT
        sources = rename.load()
        self.modules_of_library = {
            rename.module_name(path) for path in sources if (root / "_utils") in path.parents
        }
        self.files = [self._module(path, source) for path, source in sources.items()]
        self.by_name = {file.name: file for file in self.files}

    def _module(self, path: Path, source: rename.Source) -> Module:
        out = Module(path, rename.module_name(path), source)
        for node in source.tree.body:
            self._statement(out, node)
        return out

    def _statement(self, out: Module, node: ast.stmt) -> None:
        if isinstance(node, ast.Try | ast.If | ast.With):
            parts = [*node.body, *getattr(node, "orelse", [])]
            parts += [part for h in getattr(node, "handlers", []) for part in h.body]
            for part in parts:
                self._statement(out, part)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(out, node)
        elif isinstance(node, rename.Functions):
            out.definitions.setdefault(node.name, node)
        else:
            self._assignment(out, node)

    def _import(self, out: Module, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                out.imports[alias.asname or alias.name] = self.origin(node, alias)
            else:
                bound = alias.asname or alias.name.split(".")[0]
                out.imports[bound] = (alias.name if alias.asname else bound, None)

    def _assignment(self, out: Module, node: Any) -> None:
        # What stands for a module that could not be imported is no definition.
        for name in bound_by(node) - out.imports.keys():
            out.definitions[name] = node

    def origin(self, node: ast.ImportFrom, alias: ast.alias) -> tuple[str, str | None]:
        """Return the module and the name that an import means."""
        whole = f"{node.module}.{alias.name}"
        if whole in self.modules_of_library:
            return whole, None
        return str(node.module), alias.name

    def module_of(self, file: Module, node: ast.AST) -> str | None:
        """Return the module that an expression means, such as ``b`` or ``c.b``."""
        if isinstance(node, ast.Name):
            module, name = file.imports.get(node.id, ("", ""))
            return module if name is None else None
        if isinstance(node, ast.Attribute):
            outer = self.module_of(file, node.value)
            if outer in self.by_name:
                module, name = self.by_name[outer].imports.get(node.attr, ("", ""))
                return module if name is None else None
        return None
