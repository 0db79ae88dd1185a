"""Each file of the project refuses an old Python or Salt in one line."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from saltvirt.core.salt import minimums

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("_modules", "_runners", "_states", "_pillar")
FACES = [p for kind in KINDS for p in sorted((ROOT / kind).glob("*.py")) if p.stem != "__init__"]
# Old versions that this machine has: SLES runs Salt on 3.6, RHEL 8 and 9 have 3.6 and 3.9.
OLD = [
    pytest.param(interpreters[0], id=version)
    for version in ("3.6", "3.8", "3.9")
    if (interpreters := sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))
]
LOAD = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path)
    except ImportError as exc:
        print(exc)
"""


def output_of_loading(python, paths):
    """Return a Python's output for files that it loads one by one, with the library in its path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "_utils"), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [str(python), "-c", LOAD, *map(str, paths)]
    process = subprocess.run(argv, env=environment, stdout=-1, stderr=-1, check=False)
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode().splitlines()


@pytest.mark.parametrize("python", OLD)
def test_each_file_names_the_required_python_on_an_old_one(python):
    # There is no Salt, and 3.6 has no dataclasses: an early import of one would fail instead.
    version = ".".join(python.parents[1].name.split(".")[:2])
    first = re.compile(r"^import (salt|dataclasses)", re.M)
    paths = [p for p in FACES if not first.search(p.read_text().split("\nfrom saltvirt", 1)[0])]

    messages = output_of_loading(python, paths)

    assert set(messages) == {
        f"Salt Virt needs Python 3.10 or newer, and the Salt here runs on {version}: "
        "install Salt's own packages, 3006 or newer"
    }
    assert len(messages) == len(paths) > 20


@pytest.mark.parametrize("path", FACES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_an_old_python_can_read_a_module_up_to_the_librarys_refusal(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    first = next(
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saltvirt")
    )
    kinds = (ast.Import, ast.ImportFrom, ast.Expr)
    assert all(isinstance(node, kinds) for node in tree.body[: tree.body.index(first)])


def test_this_python_and_this_salt_are_enough():
    assert minimums.why_not(sys.version_info, 3006) is None
    assert minimums.why_not((3, 10, 0), None) is None
    assert minimums.why_not((4, 0, 0), 3008) is None


def test_an_old_salt_is_refused():
    assert minimums.why_not((3, 10), 3005) == "Salt Virt needs Salt 3006 or newer, here is 3005"
