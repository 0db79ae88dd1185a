"""
Move test files of ``tests/unit`` to the rooms of what they test: ``tools/move_tests.py MAP``.

A map has lines ``OLD NEW``, of paths below ``tests/unit``; ``#`` begins a comment. Imports between
tests, paths in code, strings and pages, and paths that are counted from a file's own follow. What
has moved already is passed over, so that it runs again after others have added tests. Files that
have no place in a room yet are printed.
"""

import re
import subprocess
import sys
from pathlib import Path

import rooms

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "unit"
# Folders beside the rooms, and what the names of their tests begin with.
OTHERS = {
    "bundle": {"modules", "runners", "states", "pillar", "grains", "engines", "clouds", "output"},
    "formula": {"formula"},
    "tools": {"bench", "labkit", "pageoutputs", "swarm"}
    | {path.stem for path in Path(__file__).parent.glob("*.py")},
}
PAGES = ("*.md", "docs/**/*.md", "Makefile", "*.toml", "noxfile.py", "tests/README.md")
CODE = ("tests/**/*.py", "_*/**/*.py", "tools/*.py")


def subjects(folder: str) -> set[str]:
    """Return what the names of tests in a folder may begin with: modules and packages of a room."""
    if folder in OTHERS:
        return OTHERS[folder]
    paths = (rooms.LIBRARY / folder).rglob("*")
    stems = {path.stem for path in paths if path.suffix == ".py" or path.is_dir()}
    return (stems | {folder}) - {"__init__", "__pycache__", *rooms.SIDES}


def find_misplaced() -> list[str]:
    """Return the test files whose names begin with no module or package of their room."""
    out = []
    for path in sorted(TESTS.rglob("test_*.py")):
        folder, name = path.relative_to(TESTS).parts[0], path.stem.removeprefix("test_")
        known = folder in rooms.ROOMS or folder in OTHERS
        words = name.split("_")
        heads = {"_".join(words[:count]) for count in range(1, len(words) + 1)}
        if not known or heads.isdisjoint(subjects(folder)):
            out.append(str(path.relative_to(TESTS)))
    return out


def rewrite(text: str, moves: dict[str, str], own: tuple[str, str] | None) -> str:
    """Return a file's text with the new places; ``own`` is a test's old and new path."""
    text = re.sub(
        r"tests/unit/([\w/]+\.py)",
        lambda match: f"tests/unit/{moves.get(match[1], match[1])}",
        text,
    )
    stems = {Path(old).stem: Path(new).stem for old, new in moves.items() if "conftest" not in old}
    stems = {old: new for old, new in stems.items() if old != new}
    if own:
        text = re.sub(
            r"^(from|import) (test_\w+)\b",
            lambda match: f"{match[1]} {stems.get(match[2], match[2])}",
            text,
            flags=re.MULTILINE,
        )
        # What is imported whole is used by its name.
        for stem in re.findall(r"^import (test_\w+)$", text, re.MULTILINE):
            former = next((old for old, new in stems.items() if new == stem), stem)
            text = re.sub(rf"(?<![\w.]){former}\.(?!py\b)", f"{stem}.", text)
        deeper = own[1].count("/") - own[0].count("/")
        text = re.sub(
            r"(\b__file__\)(?:\.resolve\(\))?\.parents\[)(\d+)\]",
            lambda match: f"{match[1]}{int(match[2]) + deeper}]",
            text,
        )
    elsewhere = {path.name for path in (ROOT / "tests").glob("*/test_*.py")}
    return re.sub(
        r"(?<![\w/])(test_\w+)\.py\b",
        lambda match: match[0] if match[0] in elsewhere else f"{stems.get(match[1], match[1])}.py",
        text,
    )


def main() -> int:
    """Move what the map says."""
    lines = [line.partition("#")[0].split() for line in Path(sys.argv[1]).read_text().splitlines()]
    moves = dict(words for words in lines if words)
    todo = {old: new for old, new in moves.items() if (TESTS / old).exists() and old != new}
    for old, new in todo.items():
        (TESTS / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(TESTS / old), str(TESTS / new)], cwd=ROOT, check=True)
    own = {TESTS / new: (old, new) for old, new in todo.items()}
    changed = []
    for path in sorted({path for pattern in (*CODE, *PAGES) for path in ROOT.glob(pattern)}):
        if not path.is_file() or "_build" in path.parts or path.is_symlink():
            continue
        text = path.read_text()
        is_test = TESTS in path.parents
        at = own.get(path, ("", "") if is_test else None)
        new_text = rewrite(text, moves, at)
        if new_text != text:
            path.write_text(new_text)
            changed += [str(path)] if path.suffix == ".py" else []
    ruff = [str(ROOT / "tests/env"), "ruff"]
    for words in (["check", "-q", "--select", "I", "--fix-only"], ["format", "-q"]):
        subprocess.run([*ruff, *words, *changed], cwd=ROOT, check=bool(changed))
    gone = [f"is gone: {old}" for old, new in moves.items() if not (TESTS / new).exists()]
    misplaced = [f"has no place: {name}" for name in find_misplaced()]
    print("\n".join([*gone, *misplaced, f"{len(todo)} files moved"]))
    return 1 if gone or misplaced else 0


if __name__ == "__main__":
    sys.exit(main())
