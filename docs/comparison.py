"""The page of what the tests compare with Salt 3006.25, and what differs: from their rows."""

import sys
from collections.abc import Iterator
from pathlib import Path

from reference import heading


def page(root: Path) -> str:
    """Return the page: a row for each function of the old surface."""
    # What the tests themselves judge by, so that the page cannot say anything else.
    sys.path[:0] = [str(root / folder) for folder in ("tests/compat", "tests/data", "tests/lab")]
    from compatdiffers import DIFFERS
    from compatrest import ELSEWHERE, NEVER
    from compatrows import ROWS

    lines = [
        heading("What is compared with Salt 3006", "="),
        "``make compat`` asks Salt 3006.25's own modules and these, on Salt 3006 and 3008, the",
        "same questions, each with a libvirt of its own, and compares what they return and what",
        "they change. What is not said to differ is the same.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 34 12 54",
        "",
        *_row("Function", "Questions", "What differs"),
    ]
    asked: dict[str, list[str]] = {}
    for one in ROWS:
        asked.setdefault(one.function, []).append(one.name)
    for function, names in sorted(asked.items()):
        reasons = {why for name in names for why in DIFFERS.get(name, {}).values()}
        lines += _row(f"``{function}``", str(len(names)), "; ".join(sorted(reasons)))
    for function, (file, why) in sorted(ELSEWHERE.items()):
        lines += _row(f"``{function}``", "", f"asked in ``{file}``: {why}")
    lines += ["", heading("What is not there", "-"), *_never(NEVER)]
    return "\n".join(lines)


def _never(functions: dict[str, str] | set[str]) -> Iterator[str]:
    for function in sorted(functions):
        why = functions[function] if isinstance(functions, dict) else ""
        yield f"- ``{function}``" + (f": {why}" if why else "")


def _row(*cells: str) -> list[str]:
    first, *others = cells
    return [f"   * - {first}", *(f"     - {cell}".rstrip() for cell in others)]
