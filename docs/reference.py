"""The reference: a page for each Salt module, written from the docstrings of its functions."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Folder, what such modules are, how their functions are called.
KINDS = (
    ("_runners", "Runners", "salt-run {}"),
    ("_modules", "Execution modules", "salt HOST {}"),
    ("_states", "States", "{}"),
    ("_pillar", "External pillars", "{}"),
    ("_engines", "Engines", "{}"),
    ("_clouds", "Drivers of salt-cloud", "{}"),
    ("_grains", "Grains", "{}"),
    ("_output", "Outputters", "{}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file of a Salt module, which may have several."""

    path: Path
    about: str
    functions: tuple[ast.FunctionDef, ...]


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page, the one that leads to all others first."""
    found = {kind: _modules(root / kind) for kind, _title, _call in KINDS}
    yield "index", _index(found)
    for kind, title, call in KINDS:
        for name, sources in found[kind].items():
            yield _page_name(kind, name), _page(name, sources, title, call)


def _page_name(kind: str, name: str) -> str:
    return f"{kind.strip('_')}-{name}"


def _index(found: dict[str, dict[str, list[Source]]]) -> str:
    lines = [heading("Reference", "="), "All that Salt loads of this project.", ""]
    for kind, title, _call in KINDS:
        names = [f"   {_page_name(kind, name)}" for name in found[kind]]
        lines += [".. toctree::", f"   :caption: {title}", "   :maxdepth: 1", "", *names, ""]
    answers = [".. toctree::", "   :caption: Answers", "", "   answers", ""]
    comparison = [".. toctree::", "   :caption: Salt 3006", "", "   comparison", ""]
    return "\n".join([*lines, *answers, *comparison])


def _modules(folder: Path) -> dict[str, list[Source]]:
    """Return ``{name: files}``: a Salt module has the functions of all files that say its name."""
    out: dict[str, list[Source]] = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        source = Source(path=path, about=_docstring(tree), functions=tuple(_public(tree)))
        if source.functions:
            out.setdefault(_virtual_name(tree) or path.stem, []).append(source)
    return dict(sorted(out.items()))


def _virtual_name(tree: ast.Module) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            is_name = node.targets[0].id == "__virtualname__"
            if is_name and isinstance(node.value, ast.Constant):
                return str(node.value.value)
    return None


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def _docstring(node: ast.Module | ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node, clean=False) or "")


def _page(name: str, sources: list[Source], title: str, call: str) -> str:
    lines = [heading(f"{name} ({title.lower().rstrip('s')})", "=")]
    for source in sources:
        first, _blank, rest = source.about.partition("\n")
        if len(sources) > 1:
            lines += [heading(first.rstrip("."), "-"), rest.strip(), ""]
        else:
            lines += [source.about, ""]
        for function in sorted(source.functions, key=lambda one: one.name):
            lines += _entry(f"{name}.{function.name.rstrip('_')}", function, call)
    return "\n".join(lines)


def _entry(name: str, function: ast.FunctionDef, call: str) -> list[str]:
    """Return the lines about one function."""
    # The name of an argument that ends in "_" would be a link.
    about = re.sub(r"(?m)^(\w+)_$", r"\1\\_", _docstring(function))
    text = [f"   {line}".rstrip() for line in about.splitlines()]
    return [
        heading(call.format(name), "~"),
        # Without an entry of their own: a runner and a module may have functions of one name.
        f".. py:function:: {name}({ast.unparse(function.args)})",
        "   :no-index:",
        "",
        *text,
        "",
    ]


def heading(text: str, line: str) -> str:
    """Return a heading of reStructuredText."""
    return f"{text}\n{line * len(text)}\n"
