"""Salt sees the signature and the help of each function through all its decorators."""

import ast
import inspect
from pathlib import Path

import asloaded
import pytest
import trees
from salt.utils.args import get_function_argspec

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    path
    for kind in ("_modules", "_states")
    for path in sorted((ROOT / kind).glob("*.py"))
    if path.stem != "__init__"
]


def functions(path):
    """Return the public functions that a file defines."""
    return [
        node
        for node in trees.tree(path).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_salt_sees_the_signatures_of_the_file(path):
    module = asloaded.module(path.relative_to(ROOT))
    module.__states__ = {}
    for function in functions(path):
        loaded, arguments = getattr(module, function.name), function.args
        spec = get_function_argspec(loaded)

        assert spec.args == [argument.arg for argument in arguments.args], function.name
        assert len(spec.defaults or ()) == len(arguments.defaults), function.name
        assert spec.varargs == (arguments.vararg and arguments.vararg.arg), function.name
        assert spec.keywords == (arguments.kwarg and arguments.kwarg.arg), function.name
        assert inspect.getdoc(loaded) == ast.get_docstring(function), function.name
        assert loaded.__name__ == function.name
