"""Functions stay simple: comprehensions, conditions and boolean operators count, as radon does."""

from pathlib import Path

import pytest
from radon.complexity import cc_visit

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("_modules", "_runners", "_states", "_pillar", "_output", "_grains", "_utils", "pki")
SOURCES = [
    *(p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py")) if not p.is_symlink()),
    *sorted((ROOT / "tests").rglob("*.py")),
]
MOST = 12


def too_complex(path):
    """Return the functions and methods of a file that are above the measure."""
    blocks = cc_visit(path.read_text(), no_assert=True)
    return [one.fullname for one in blocks if one.letter != "C" and one.complexity > MOST]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_function_is_too_complex(path):
    assert too_complex(path) == []
