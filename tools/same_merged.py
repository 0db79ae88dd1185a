"""
Compare a tree before merges with one after them: ``tools/same_merged.py PLAN OLD NEW``.

``OLD`` is the tree after the renames of the plan (``tools/merge_modules.py --renames PLAN``). Each
statement of the old modules must be in the new one, with the same full names of all modules,
functions, classes and constants that it refers to. Nothing is printed if that is so.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

import merge_modules
import rename
import same_code
import scopes


class FullNames(ast.NodeTransformer):
    """Write the names of a file's modules and definitions in full, as they are after merges."""

    def __init__(
        self, project: scopes.Project, file: scopes.Module, merging: "merge_modules.Merging | None"
    ) -> None:
        self.project, self.file, self.merging = project, file, merging
        self.tree = same_code.without_docstrings(ast.parse(file.source.text))
        self.global_names = {name for name, _scopes in scopes.global_uses(self.tree)}
        self.top = set(self.tree.body)

    def full(self, module: str, name: str | None = None) -> str:
        """Return the new full name of a module, or of a name in it."""
        group = self.merging.groups.get(module) if self.merging else None
        target = group.target if group else module
        if name is None:
            return target
        return f"{target}.{group.name(module, name) if group else name}"

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Write a name of the module, or an import, in full."""
        if node in self.global_names:
            if node.id in self.file.imports:
                node.id = self.full(*self.file.imports[node.id])
            elif node.id in self.file.definitions:
                node.id = self.full(self.file.name, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Write what is reached through a module in full."""
        root: ast.AST = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if root in self.global_names:
            module = self.project.module_of(self.file, node.value)
            inner = self.project.module_of(self.file, node)
            if inner is not None:
                return ast.Name(self.full(inner), node.ctx)
            if module is not None:
                return ast.Name(self.full(module, node.attr), node.ctx)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Write imports inside functions in full."""
        names = [self.full(*self.project.origin(node, alias)) for alias in node.names]
        return ast.Expr(ast.Tuple([ast.Name(name) for name in sorted(names)]))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Write new names and paths in texts."""
        if isinstance(node.value, str) and self.merging:
            node.value = self.merging.text(node.value)
        return node

    def statements(self) -> set[str]:
        """Return all statements but imports."""
        out = set()
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, rename.Functions):
                node.name = self.full(self.file.name, node.name)
            out.add(ast.unparse(self.visit(node)))
        return out


def main() -> int:
    """Print how two trees differ; return 1 if they do."""
    plan, old, new = (Path(word).resolve() for word in sys.argv[1:])
    rename.ROOT = merge_modules.ROOT = old
    before = scopes.Project()
    merging = merge_modules.Merging(before, merge_modules.read_plan(plan, {}, []))
    rename.ROOT = merge_modules.ROOT = new
    after = scopes.Project()
    statements: dict[str, set[str]] = defaultdict(set)
    for file in before.files:
        statements[merging.module(file.name)] |= FullNames(before, file, merging).statements()
    differences = []
    for name, expected in statements.items():
        file_after = after.by_name.get(name)
        found = FullNames(after, file_after, None).statements() if file_after else set()
        differences += [f"{name}: gone: {text}" for text in sorted(expected - found)]
        differences += [f"{name}: new: {text}" for text in sorted(found - expected)]
    print("\n".join(differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
