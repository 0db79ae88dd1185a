"""An old Python or Salt is told so in one line by whatever of ours it loads."""

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
# Where this machine has them: SLES runs Salt on 3.6, RHEL 8 and 9 have 3.6 and 3.9.
OLD = [
    pytest.param(found[0], id=version)
    for version in ("3.6", "3.8", "3.9")
    if (found := sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")))
]
LOAD = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path)
    except ImportError as exc:
        print(exc)
"""


def loaded(python, paths):
    """Return what a Python says to loading files, each by itself, with the library to be found."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "_utils"), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [str(python), "-c", LOAD, *map(str, paths)]
    done = subprocess.run(argv, env=environment, stdout=-1, stderr=-1, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("python", OLD)
def test_whatever_is_loaded_on_an_old_python_says_what_it_needs(python):
    # There is no Salt, and 3.6 has no data classes: who imports these first says that instead.
    version = ".".join(python.parents[1].name.split(".")[:2])
    first = re.compile(r"^import (salt|dataclasses)", re.M)
    paths = [p for p in FACES if not first.search(p.read_text().split("\nfrom saltvirt", 1)[0])]

    said = loaded(python, paths)

    assert set(said) == {
        f"Salt Virt needs Python 3.10 or newer, and the Salt here runs on {version}: "
        "install Salt's own packages, 3006 or newer"
    }
    assert len(said) == len(paths) > 20


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


def test_an_old_salt_is_told_so():
    assert minimums.why_not((3, 10), 3005) == "Salt Virt needs Salt 3006 or newer, here is 3005"
