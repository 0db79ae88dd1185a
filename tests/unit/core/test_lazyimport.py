"""Salt's files import of the library what they need, and the rest when it is used."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from saltvirt.core.salt.lazyimport import Later

TOP = Path(__file__).resolve().parents[3]
FILES = sorted([*TOP.glob("_modules/*.py"), *TOP.glob("_runners/*.py")])


def _named(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Later":
            yield node.args[0].value


def test_a_module_is_imported_when_it_is_used():
    code = (
        "import sys; from saltvirt.core.salt.lazyimport import Later; units = "
        "Later('saltvirt.core.units');"
        "before = 'saltvirt.core.units' in sys.modules; print(before, units.MIB)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(TOP / "_utils")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["False", "1048576"]


def test_what_a_module_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = Later("saltvirt.core.units").no_such_thing


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_module_that_is_named_is_there(path):
    for name in _named(path):
        assert importlib.util.find_spec(name), name
