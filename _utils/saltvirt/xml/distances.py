"""<distances> of NUMA cells, which libvirt has both ways."""

from collections.abc import Mapping
from typing import Any

Rows = tuple[dict[str, str], ...]
_OWN = "10"


def unlinked(cells: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """
    Return a call's cells without the distances to those from which it takes theirs.

    libvirt would fill in again what the call has removed.

    cells
        All of them.
    given
        What the call says of them.
    """
    asked = {str(number): one for number, one in dict(given or {}).items() if isinstance(one, dict)}
    named = {number for number, one in asked.items() if "distances" in one}
    cut = {number for number in named if not asked[number]["distances"]}
    return {
        number: cell
        if number in named or not isinstance(cell, dict)
        else _without(cell, number, cut)
        for number, cell in cells.items()
    }


def _without(cell: Mapping[str, Any], own: str, cut: set[str]) -> dict[str, Any]:
    left = {to: far for to, far in (cell.get("distances") or {}).items() if to not in cut}
    # To itself alone it is none.
    return {**cell, "distances": left if set(left) != {own} else {}}


def linked(said: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return ``{cell: its distances}`` with what libvirt fills in: back, and to itself."""
    rows = [(near, row["id"], row["value"]) for near, found in said.items() for row in found]
    known: dict[tuple[str, str], str] = {}
    for near, far, value in rows:
        known |= {(near, near): _OWN, (far, far): _OWN, (far, near): value}
    known |= {(near, far): value for near, far, value in rows}
    by_cell = sorted(known.items(), key=lambda one: int(one[0][1]))
    return {
        cell: tuple({"id": far, "value": value} for (near, far), value in by_cell if near == cell)
        for cell in said
    }
