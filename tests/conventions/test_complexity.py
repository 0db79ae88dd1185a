"""Functions stay simple: comprehensions, conditions and boolean operators count, as radon does."""

from pathlib import Path

import trees
from radon.complexity import cc_visit_ast

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "_modules",
    "_runners",
    "_states",
    "_pillar",
    "_output",
    "_grains",
    "_engines",
    "_clouds",
    "_utils",
)
SOURCES = [
    *(p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py")) if not p.is_symlink()),
    *sorted((ROOT / "tests").rglob("*.py")),
]
MOST = 12


def too_complex(path):
    """Yield the functions and methods of a file that are above the measure."""
    for block in cc_visit_ast(trees.tree(path), no_assert=True):
        if block.letter != "C" and block.complexity > MOST:
            yield str(path.relative_to(ROOT)), block.fullname


def test_no_function_is_too_complex():
    assert [one for path in SOURCES for one in too_complex(path)] == []
