"""
Merge modules of the library, and rewrite all that names them: ``tools/merge_modules.py PLAN``.

A plan has lines; ``#`` begins a comment. Paths of ``merge`` are below ``_utils/saltvirt``:

    merge A.py B.py ... into TARGET.py [: DOCSTRING]
        Without a docstring, the target's own stays, else that of the first.
    global PATH OLD NEW
    local PATH FUNCTION OLD NEW
        Renames before, by ``tools/rename.py``.

Private names that meet get a prefix; of equal definitions one stays. A merge is refused, and
printed, if public names meet, rooms or sides differ, imports would go round, or the file is too
large. What no longer exists is printed, and the rest merged. It begins with a clean work tree, and
needs Python 3.12 or later. ``--renames`` does only the renames; ``tools/same_merged.py``
compares the tree after them with the one after the merges.
"""

import argparse
import ast
import builtins
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rename
import rooms
import scopes
from move_modules import _TEXTS, DOTTED, PATH

ROOT = rename.ROOT
LINES, PUBLIC = 600, 12


def dotted(path: str) -> str:
    """Return the module of a path below the library."""
    return "saltvirt." + path.removesuffix(".py").replace("/", ".")


def file_of(module: str) -> Path:
    """Return the file of a module."""
    return ROOT / "_utils" / (module.replace(".", "/") + ".py")


def _prefixed(file: scopes.Module, name: str, taken: Mapping[str, tuple[Any, object]]) -> str:
    """Return a private name with its module's as a prefix."""
    other = taken[name][0].name
    if not name.startswith("_") or name.startswith("__"):
        raise Refused(f"{name} is in {file.name} and {other}: rename one")
    new_name = f"_{file.name.rpartition('.')[2].strip('_')}{name}"
    if new_name in taken:
        raise Refused(f"{name} and {new_name} are there twice")
    return new_name


class Refused(Exception):
    """A merge that cannot be done."""


@dataclass
class Group:
    """A merge: its modules in the order of the result, and the renames of their names."""

    line: str
    target: str
    members: list[str]
    docstring: str | None
    renames: dict[tuple[str, str], str] = field(default_factory=dict)
    # Definitions that are left out, as an equal one is there.
    doubles: set[tuple[str, str]] = field(default_factory=set)

    @property
    def stem(self) -> str:
        """The name under which the target is imported."""
        return self.target.rpartition(".")[2]

    def name(self, module: str, name: str) -> str:
        """Return the new name of a definition."""
        return self.renames.get((module, name), name)


class Merging:
    """All merges of a plan, and what they do to each file."""

    def __init__(self, project: scopes.Project, groups: list[Group]) -> None:
        self.project, self.notes = project, list[str]()
        self.groups: dict[str, Group] = {}
        for group in groups:
            try:
                self._prepare(group)
            except Refused as exc:
                self.notes.append(f"refused: {group.line}: {exc}")
                continue
            self.groups.update(dict.fromkeys(group.members, group))
        self._refuse_circles()

    # What a group does to its own modules.

    def _prepare(self, group: Group) -> None:
        self._refuse_places(group)
        group.members = self._in_order(group)
        files = [self.project.by_name[name] for name in group.members]
        self._rename_colliding(group, files)
        problems = [text for file in files for text in self._problems(group, file)]
        names = {
            group.name(file.name, name)
            for file in files
            for name in file.definitions
            if not name.startswith("_") and name != "log"
        }
        lines = sum(len(file.source.lines) - 8 for file in files) + 8
        if len(names) > PUBLIC:
            problems.append(f"{len(names)} public names: {', '.join(sorted(names))}")
        if lines > LINES:
            problems.append(f"about {lines} lines")
        if problems:
            raise Refused("; ".join(problems))

    def _refuse_places(self, group: Group) -> None:
        names = [name.removeprefix("saltvirt.") for name in (*group.members, group.target)]
        places = {(rooms.room(name), rooms.side(name)) for name in names}
        if len(places) > 1:
            raise Refused(f"they are in several rooms or of several sides: {sorted(places)}")
        if group.target not in group.members and group.target in self.project.by_name:
            raise Refused(f"{group.target} exists")
        if any("offline.worker" in name for name in names):
            raise Refused("files of the worker import each other by bare names")

    def _in_order(self, group: Group) -> list[str]:
        """Return the modules, each behind those of the group that it imports."""
        out: list[str] = []

        def add(name: str, path: tuple[str, ...]) -> None:
            if name in path:
                raise Refused(f"{name} imports itself")
            imported = {module for module, _ in self.project.by_name[name].imports.values()}
            for other in group.members:
                if other in imported:
                    add(other, (*path, name))
            if name not in out:
                out.append(name)

        for name in group.members:
            add(name, ())
        return out

    def _rename_colliding(self, group: Group, files: list[scopes.Module]) -> None:
        taken = self._imported(group, files)
        for file in sorted(files, key=lambda file: file.name != group.target):
            for name, node in file.definitions.items():
                if name not in taken:
                    taken[name] = (file, node)
                elif self._is_double(group, file, node, *taken[name]):
                    # The first stays, as what stands between them may need it.
                    both = [file.name, taken[name][0].name]
                    group.doubles.add((max(both, key=group.members.index), name))
                else:
                    new_name = _prefixed(file, name, taken)
                    group.renames[file.name, name] = new_name
                    taken[new_name] = (file, node)

    def _imported(
        self, group: Group, files: list[scopes.Module]
    ) -> dict[str, tuple[scopes.Module, object]]:
        """Return what the files import: one name must mean the same in all of them."""
        out: dict[str, tuple[scopes.Module, object]] = {}
        for file in files:
            for bound, origin in file.imports.items():
                if origin[0] in group.members:
                    continue
                _file, other_origin = out.setdefault(bound, (file, origin))
                if other_origin != origin:
                    raise Refused(f"{bound} is imported from {origin[0]} and {other_origin}")
        return out

    def _is_double(
        self,
        group: Group,
        file: scopes.Module,
        node: ast.stmt,
        other_file: scopes.Module,
        other: object,
    ) -> bool:
        """Return whether two definitions are equal, and mean the same by all names."""
        if not isinstance(other, ast.AST) or ast.dump(node) != ast.dump(other):
            return False
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        own = (names & file.definitions.keys()) - scopes.bound_by(node)
        if any(
            (file.name, name) not in group.doubles or group.renames.get((file.name, name))
            for name in own
        ):
            return False
        return all(file.imports.get(n) == other_file.imports.get(n) for n in names)

    def _problems(self, group: Group, file: scopes.Module) -> Iterator[str]:
        """Yield what cannot be done in a module of the group."""
        others = [self.project.by_name[name] for name in group.members if name != file.name]
        theirs = {group.name(o.name, name) for o in others for name in o.definitions}
        theirs |= {bound for o in others for bound in o.imports}
        parents = scopes.parents_of(file.tree)
        for name, bound_around in scopes.global_uses(file.tree):
            at = f"{file.path.name}:{name.lineno}"
            if name.id not in file.definitions and name.id not in file.imports:
                if name.id in theirs and hasattr(builtins, name.id):
                    yield f"{at}: {name.id} is a builtin, and a name of another"
                continue
            module, symbol = file.imports.get(name.id, ("", ""))
            if module in group.members and symbol is None:
                if not isinstance(parents[name], ast.Attribute):
                    yield f"{at}: the module {name.id} itself is used"
                    continue
                symbol = parents[name].attr  # type: ignore[attr-defined]
            new = group.name(module, str(symbol)) if module in group.members else name.id
            new = group.renames.get((file.name, name.id), new)
            if new != name.id and any(new in names for names in bound_around):
                yield f"{at}: {new} is a local name there"

    def _refuse_circles(self) -> None:
        while True:
            graph: dict[str, set[str]] = defaultdict(set)
            for file in self.project.files:
                if file.name in self.project.modules_of_library:
                    own = self.module(file.name)
                    graph[own] |= {self.module(m) for m, _ in file.imports.values()} - {own}
            circle = scopes.find_circle(graph)
            group = next((g for g in self.groups.values() if g.target in (circle or ())), None)
            if circle is None or group is None:
                return
            self.notes.append(f"refused: {group.line}: a circle of imports: {' '.join(circle)}")
            self.groups = {name: g for name, g in self.groups.items() if g is not group}

    def module(self, name: str) -> str:
        """Return the new name of a module."""
        return self.groups[name].target if name in self.groups else name

    def text(self, text: str) -> str:
        """Return a text with the new names and paths."""
        if text.strip("\"'") and dotted(text.strip("\"'").replace(".", "/")) in self.groups:
            bare = text.strip("\"'")
            if "." in bare:
                new = self.module(f"saltvirt.{bare}").removeprefix("saltvirt.")
                return text.replace(bare, new)
        text = DOTTED.sub(lambda match: self._dotted(match[0]), text)
        return PATH.sub(lambda match: match[1] + self._path(match[2]), text)

    def _dotted(self, name: str) -> str:
        parts = name.split(".")
        for count in range(len(parts), 1, -1):
            head = ".".join(parts[:count])
            if head in self.groups:
                group, rest = self.groups[head], parts[count:]
                if rest:
                    rest[0] = group.name(head, rest[0])
                return ".".join([group.target, *rest])
        return name

    def _path(self, path: str) -> str:
        module = dotted(path)
        return self.module(module).removeprefix("saltvirt.").replace(".", "/") + ".py"


class Rewriting:
    """The edits of one Python file."""

    def __init__(self, file: scopes.Module, merging: Merging) -> None:
        self.file, self.merging, self.project = file, merging, merging.project
        self.group = merging.groups.get(file.name)
        self.notes: list[str] = []
        self.edits: dict[tuple[int, int], tuple[tuple[int, int], str]] = {}
        # New names of what is imported at the top; None if it is of the group itself.
        self.bound: dict[str, str | None] = {}
        self.global_names = {name for name, _bound in scopes.global_uses(file.tree)}
        self._choose_names()

    def _choose_names(self) -> None:
        scopes_by_name: dict[str, list[set[str]]] = defaultdict(list)
        for name, bound_around in scopes.global_uses(self.file.tree):
            scopes_by_name[name.id] += bound_around
        stays = (set(self.file.imports) - self._moving()) | set(self.file.definitions)
        for name in self.group.members if self.group else ():
            other = self.project.by_name[name]
            stays |= {self.group.name(name, d) for d in other.definitions}
            stays |= {b for b, (m, _) in other.imports.items() if m not in self.merging.groups}
        taken: dict[str, tuple[str, str | None]] = {}
        for bound in sorted(self._moving()):
            module, symbol = self.file.imports[bound]
            group = self.merging.groups[module]
            if group is self.group:
                self.bound[bound] = None
                continue
            new = group.stem if symbol is None else group.name(module, symbol)
            old = module.rpartition(".")[2] if symbol is None else symbol
            origin = (group.target, symbol and new)
            is_clash = new in stays or any(new in names for names in scopes_by_name[bound])
            is_clash = is_clash or taken.get(new, origin) != origin
            new_bound = bound if is_clash or bound != old else new
            if is_clash and bound == old and bound != new:
                where = self.file.path.relative_to(ROOT)
                self.notes.append(f"renamed import: {where}: {new} as {bound}")
            self.bound[bound] = new_bound
            taken[new_bound] = origin

    def _moving(self) -> set[str]:
        groups = self.merging.groups
        return {b for b, (module, _name) in self.file.imports.items() if module in groups}

    def attribute(self, module: str, name: str) -> str | None:
        """Return the new name of something in a module; None if it is the module itself then."""
        groups = self.merging.groups
        file = self.project.by_name.get(module)
        if file is None:
            return name
        if name in file.definitions:
            return groups[module].name(module, name) if module in groups else name
        if name in file.imports:
            return self.merging.rewritings[module].bound.get(name, name)  # type: ignore[attr-defined]
        return name

    def run(self) -> str:
        """Return the new text."""
        parents = scopes.parents_of(self.file.tree)
        self.nested = {
            node
            for function in ast.walk(self.file.tree)
            if isinstance(function, rename.Functions)
            for node in ast.walk(function)
        }
        self._imports()
        for name, _bound in scopes.global_uses(self.file.tree):
            self._name(name, parents)
        for node in ast.walk(self.file.tree):
            if isinstance(node, ast.Attribute):
                self._attribute(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, rename.Functions) and node in self.file.tree.body and self.group:
                self._definition(node)
        self._texts()
        return self._text()

    def _edit(self, line: int, column: int, end: tuple[int, int], text: str) -> None:
        self.edits[(line, column)] = (end, text)

    def _replace(self, node: ast.AST, text: str) -> None:
        self._edit(node.lineno, node.col_offset, (node.end_lineno, node.end_col_offset), text)  # type: ignore[attr-defined]

    def _imports(self) -> None:
        for node in ast.walk(self.file.tree):
            if isinstance(node, ast.ImportFrom):
                self._import(node)

    def _import(self, node: ast.ImportFrom) -> None:
        origins = [(alias, *self.project.origin(node, alias)) for alias in node.names]
        if not any(module in self.merging.groups for _alias, module, _name in origins):
            return
        grouped: dict[str, list[str]] = defaultdict(list)
        is_top = node not in self.nested
        for alias, module, symbol in origins:
            group = self.merging.groups.get(module)
            bound = alias.asname or alias.name
            if group is None:
                shown = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                grouped[str(node.module)].append(shown)
                continue
            if group is self.group:
                continue
            parent, _, stem = group.target.rpartition(".")
            origin, new = (
                (parent, stem)
                if symbol is None
                else (
                    group.target,
                    group.name(module, symbol),
                )
            )
            now = self.bound.get(bound, bound) if is_top else bound
            text = new if now == new else f"{new} as {now}"
            if text not in grouped[origin]:
                grouped[origin].append(text)
            if not is_top and now != new:
                self.notes.append(
                    f"renamed import: {self.file.path.relative_to(ROOT)}:{node.lineno}: {text}"
                )
        indent = "\n" + " " * node.col_offset
        lines = [f"from {module} import {', '.join(names)}" for module, names in grouped.items()]
        self._replace(node, indent.join(lines))

    def _name(self, name: ast.Name, parents: Mapping[ast.AST, ast.AST]) -> None:
        new = self.bound.get(name.id, "")
        if new is None:
            module, symbol = self.file.imports[name.id]
            parent = parents[name]
            if symbol is not None:
                assert self.group
                self._replace(name, self.group.name(module, symbol))
            elif isinstance(parent, ast.Attribute):
                text = self.attribute(module, parent.attr)
                if text is None:
                    self.notes.append(f"by hand: {self._at(parent)}: {ast.unparse(parent)}")
                self._replace(parent, text or parent.attr)
        elif new and new != name.id:
            self._replace(name, new)
        elif self.group and (self.file.name, name.id) in self.group.renames:
            self._replace(name, self.group.renames[self.file.name, name.id])

    def _at(self, node: ast.AST) -> str:
        return f"{self.file.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"

    def _attribute(self, node: ast.Attribute) -> None:
        module = self._module_of(node.value)
        if module is None or (self.group and self.merging.groups.get(module) is self.group):
            return
        new = self.attribute(module, node.attr)
        end = (node.end_lineno or 0, node.end_col_offset or 0)
        if new is None:
            # ``c.b`` of two modules that are one now: what stands before the dot is enough.
            value = node.value
            start = (value.end_lineno or 0, value.end_col_offset or 0)
            self._edit(*start, end, "")
        elif new != node.attr:
            self._edit(end[0], end[1] - len(node.attr.encode()), end, new)

    def _module_of(self, node: ast.AST) -> str | None:
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return self.project.module_of(self.file, node) if root in self.global_names else None

    def _call(self, node: ast.Call) -> None:
        if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
            return
        module, name = self._module_of(node.args[0]), node.args[1].value
        if module is None or not isinstance(name, str) or not name.isidentifier():
            return
        new = self.attribute(module, name)
        if new is None:
            self.notes.append(f"by hand: {self._at(node)}: {ast.unparse(node)[:90]}")
        elif new != name:
            self._replace(node.args[1], f'"{new}"')

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        assert self.group
        new = self.group.renames.get((self.file.name, node.name))
        if new:
            line = self.file.source.lines[node.lineno - 1]
            word = b"class " if isinstance(node, ast.ClassDef) else b"def "
            column = line.index(word) + len(word)
            end = (node.lineno, column + len(node.name.encode()))
            self._edit(node.lineno, column, end, new)

    def _texts(self) -> None:
        spans = [
            (node.lineno, node.end_lineno or 0)
            for node in ast.walk(self.file.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        for token in tokenize.generate_tokens(io.StringIO(self.file.source.text).readline):
            if token.type not in _TEXTS or any(a <= token.start[0] <= b for a, b in spans):
                continue
            text = self.merging.text(token.string)
            if text == token.string:
                continue
            if "{" in token.string and token.type != tokenize.STRING:
                self.notes.append(f"by hand: {self.file.path}:{token.start[0]}: {token.string}")
                continue
            start, end = (
                (line, len(self.file.source.lines[line - 1].decode()[:column].encode()))
                for line, column in (token.start, token.end)
            )
            if start not in self.edits:
                self._edit(*start, end, text)

    def _text(self) -> str:
        starts = [0]
        for line in self.file.source.lines:
            starts.append(starts[-1] + len(line))
        data = self.file.source.text.encode()
        last_start = len(data) + 1
        spans = []
        for (line, column), (end, text) in self.edits.items():
            spans.append((starts[line - 1] + column, starts[end[0] - 1] + end[1], text))
        # An edit of a whole expression covers those inside it.
        spans.sort(key=lambda span: (span[0], -span[1]))
        kept: list[tuple[int, int, str]] = []
        for span in spans:
            if kept and span[0] < kept[-1][1]:
                continue
            kept.append(span)
        for first, last, text in reversed(kept):
            assert last <= last_start
            data = data[:first] + text.encode() + data[last:]
            last_start = first
        return data.decode()


def header_and_body(text: str, doubles: Iterable[str]) -> tuple[str | None, str, str]:
    """Return a module's docstring, its imports, and the rest without the doubles."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    docstring = ast.get_docstring(tree, clean=False)
    removed: set[int] = set()
    header: list[str] = []
    left_out = set(doubles)
    for node in tree.body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        span = range(first - 1, node.end_lineno or 0)
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.Try | ast.If):
            parts = [*node.body, *getattr(node, "orelse", [])]
            is_import = any(isinstance(part, ast.Import | ast.ImportFrom) for part in parts)
        if is_import:
            header += [lines[number] for number in span]
            removed |= set(span)
        elif node is tree.body[0] and docstring is not None:
            removed |= set(span)
        elif scopes.bound_by(node) and scopes.bound_by(node) <= left_out:
            removed |= set(span)
            above = first - 2
            while above >= 0 and lines[above].startswith("#"):
                removed.add(above)
                above -= 1
    body = "".join(line for number, line in enumerate(lines) if number not in removed)
    return docstring, "".join(header), body.strip("\n") + "\n"


def join(group: Group, texts: Mapping[str, str]) -> str:
    """Return the text of the merged module."""
    docstrings, headers, bodies = {}, [], []
    for name in group.members:
        doubles = [old for module, old in group.doubles if module == name]
        docstrings[name], header, body = header_and_body(texts[name], doubles)
        headers.append(header)
        bodies.append(body)
    docstring = group.docstring or docstrings.get(group.target) or next(iter(docstrings.values()))
    return f'"""{docstring}"""\n\n{"".join(headers)}\n\n' + "\n\n".join(bodies)


def read_plan(path: Path, sources: dict[Path, rename.Source], notes: list[str]) -> list[Group]:
    """Return the merges of a plan, after its renames."""
    merges = []
    for number, line in enumerate(map(str.strip, path.read_text().splitlines()), 1):
        at = f"{path.name}:{number}: {line}"
        match = re.fullmatch(r"merge (.+?) into (\S+?\.py)(?: *: (.+))?", line)
        if match:
            merges.append((at, match))
        elif line and not line.startswith("#"):
            notes += do_rename(sources, line.partition("#")[0].split(), at)
    groups = []
    for at, match in merges:
        names = [dotted(word) for word in match[1].split()]
        present = [name for name in names if file_of(name).exists()]
        gone = sorted(set(names) - set(present))
        notes += [f"no longer applies: {at}: {name} is gone" for name in gone]
        target = dotted(match[2])
        if len(present) > 1 or (present and present != [target]):
            groups.append(Group(at, target, present, match[3]))
    return groups


def do_rename(sources: dict[Path, rename.Source], words: list[str], at: str) -> list[str]:
    """Do a line for ``tools/rename.py``; return what cannot be done."""
    try:
        rename.DOING[words[0]](sources, words[1:])
    except (rename.Refused, KeyError, ValueError, TypeError) as exc:
        for source in sources.values():
            source.edits.clear()
        old, new = words[-2:]
        path = rename.ROOT / words[1]
        known = rename.used(sources[path].tree) if path in sources else set()
        is_done = old not in known and new in known
        return [] if is_done or not sources else [f"no longer applies: {at}: {exc!r}"]
    for source in [s for s in sources.values() if s.edits]:
        source.write()
    return []


PAGES = ("docs/**/*.md", "*.md", "*.toml", "hypervisor/**/*", "tests/**/*.md", "changelog/*.md")


def write(merging: Merging) -> list[str]:
    """Write all files; return what is left to do by hand."""
    project = merging.project
    rewritings = {file.name: Rewriting(file, merging) for file in project.files}
    merging.rewritings = rewritings  # type: ignore[attr-defined]
    texts = {file.path: rewritings[file.name].run() for file in project.files}
    notes = [note for rewriting in rewritings.values() for note in rewriting.notes]
    by_name = {file.name: texts[file.path] for file in project.files}
    changed = []
    for file in project.files:
        if file.name not in merging.groups and texts[file.path] != file.source.text:
            ast.parse(texts[file.path])
            file.path.write_text(texts[file.path])
            changed.append(str(file.path))
    for group in {id(group): group for group in merging.groups.values()}.values():
        text = join(group, by_name)
        largest = max(group.members, key=lambda name: len(by_name[name]))
        target = file_of(group.target)
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in group.members:
            if name == largest or name == group.target:
                continue
            git("rm", "-q", "-f", str(file_of(name)))
        if group.target in group.members and largest != group.target:
            git("rm", "-q", "-f", str(file_of(largest)))
        elif largest != group.target:
            git("mv", str(file_of(largest)), str(target))
        ast.parse(text)
        target.write_text(text)
        changed.append(str(target))
    notes += write_pages(merging)
    tidy(changed)
    return notes


def write_pages(merging: Merging) -> list[str]:
    """Rewrite the pages; return bare names of files to look at."""
    draw_rooms()
    notes = []
    gone = {
        f"{name.rpartition('.')[2]}.py": name
        for name, group in merging.groups.items()
        if name != group.target
    }
    left = {path.name for path in (ROOT / "_utils" / "saltvirt").rglob("*.py")}
    for page in sorted({page for pattern in PAGES for page in ROOT.glob(pattern)}):
        if not page.is_file() or "_build" in page.parts or page.suffix in (".png", ".gz"):
            continue
        text = page.read_text()
        new = merging.text(text)
        if new != text:
            new = re.sub(r"(`[^`\n]+\.py`)(?:,\s+\1)+", r"\1", new)
            page.write_text(new)
        for number, line in enumerate(new.splitlines(), 1):
            for name in re.findall(r"`([a-z0-9_]+\.py)`", line):
                if name in gone and name not in left:
                    notes.append(f"by hand: {page.relative_to(ROOT)}:{number}: {name} was merged")
    return notes


def draw_rooms() -> None:
    """Draw the rooms anew, as they have fewer files."""
    page = ROOT / "docs/architecture.md"
    text = page.read_text()
    begin = text.index("```text\nroom ")
    end = text.index("```", begin + 3)
    page.write_text(f"{text[:begin]}```text\n{rooms.picture()}\n{text[end:]}")


def git(*words: str) -> None:
    """Run git."""
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def tidy(paths: list[str]) -> None:
    """Sort the imports and format the files."""
    ruff = [str(ROOT / "tests/env"), "ruff"]
    for words in (["check", "-q", "--select", "I,F401,F811", "--fix-only"], ["format", "-q"]):
        subprocess.run([*ruff, *words, *paths], cwd=ROOT, check=True)


def main() -> int:
    """Merge what the plan says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--renames", action="store_true", help="do only the renames of the plan")
    options = parser.parse_args()
    notes: list[str] = []
    groups = read_plan(options.plan, rename.load(), notes)
    done = 0
    if not options.renames:
        merging = Merging(scopes.Project(), groups)
        notes += merging.notes + write(merging)
        done = len({id(group) for group in merging.groups.values()})
        print(f"{done} of {len(groups)} merges, {len(merging.groups)} modules")
    print("\n".join(notes))
    return 1 if notes else 0


if __name__ == "__main__":
    sys.exit(main())
