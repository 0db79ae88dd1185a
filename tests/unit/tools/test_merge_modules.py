"""Small modules are merged with all references to them, or stay if they cannot be merged."""

import merge_modules
import pytest
import rename
import scopes

LARGE = '''
"""Sizes of disks."""

from saltvirt.core import small

_STEP = 1


def total(sizes):
    """Return the sum, in steps of :mod:`saltvirt.core.small`."""
    return small.rounded(sum(sizes)) + _STEP
'''
SMALL = '''
"""Rounding."""

_STEP = 4


def rounded(size):
    """Return a size, rounded up."""
    return -(-size // _STEP) * _STEP
'''
USER = '''
"""Uses both."""

from saltvirt.core import large, small


def shown(sizes, monkeypatch):
    """Return the sizes as text."""
    monkeypatch.setattr(small, "_STEP", 8)
    return str(large.total(sizes)) + str(small.rounded(1)) + str(large.small._STEP)
'''


@pytest.fixture
def merge(tmp_path, monkeypatch):
    """Return a function that merges two modules and returns the new texts of all files."""
    core = tmp_path / "_utils/saltvirt/core"

    def run(plan, **texts):
        core.mkdir(parents=True)
        (tmp_path / "docs").mkdir()
        for name, text in {"large": LARGE, "small": SMALL, "user": USER, **texts}.items():
            (core / f"{name}.py").write_text(text.lstrip())
        (tmp_path / "plan").write_text(plan)
        notes = []
        groups = merge_modules.read_plan(tmp_path / "plan", rename.load(), notes)
        merging = merge_modules.Merging(scopes.Project(), groups)
        notes += merging.notes + merge_modules.write(merging)
        return {path.stem: path.read_text() for path in core.glob("*.py")}, notes

    for module in (merge_modules, rename):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for name in ("tidy", "draw_rooms"):
        monkeypatch.setattr(merge_modules, name, lambda *_: None)
    monkeypatch.setattr(merge_modules, "git", remove)
    return run


def remove(verb, *words):
    """Remove a merged file as git does."""
    assert verb == "rm"
    merge_modules.Path(words[-1]).unlink()


PLAN = "merge core/large.py core/small.py into core/large.py"


def test_two_modules_become_one_and_their_users_follow(merge):
    texts, notes = merge(PLAN)

    assert notes == []
    assert texts.keys() == {"large", "user"}
    assert "return rounded(sum(sizes)) + _STEP" in texts["large"]
    assert "in steps of :mod:`saltvirt.core.large`" in texts["large"]
    assert "return -(-size // _small_STEP) * _small_STEP" in texts["large"]
    assert 'monkeypatch.setattr(large, "_small_STEP", 8)' in texts["user"]
    assert (
        "str(large.total(sizes)) + str(large.rounded(1)) + str(large._small_STEP)" in texts["user"]
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"small": SMALL.replace("rounded", "total")}, "total is in"),
        ({"large": LARGE.replace("(sizes)", "(rounded)")}, "rounded is a local name there"),
        ({"user": USER, "small": SMALL + "\n\nfrom saltvirt.core import user\n"}, "a circle of"),
        ({"small": SMALL + "".join(f"N{n} = {n}\n" for n in range(12))}, "14 public names"),
    ],
)
def test_a_merge_that_would_change_the_code_is_refused(merge, changed, reason):
    texts, notes = merge(PLAN, **changed)

    assert [note for note in notes if reason in note], notes
    assert texts.keys() == {"large", "small", "user"}


def test_a_missing_module_is_named(merge):
    texts, notes = merge("merge core/large.py core/small.py core/gone.py into core/large.py")

    assert ["saltvirt.core.gone is gone" in note for note in notes] == [True]
    assert texts.keys() == {"large", "user"}
