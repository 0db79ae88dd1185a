"""<distances> of NUMA cells, which libvirt keeps both ways."""

from collections.abc import Mapping
from typing import Any

Rows = tuple[dict[str, str], ...]
_OWN = "10"


def remove_links(cells: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """
    Return a call's cells without the distances to cells that lose theirs in the call.

    libvirt would fill in again what the call removes.

    cells
        All cells.
    changes
        The call's changes of cells.
    """
    changed_cells = {
        str(number): cell_changes
        for number, cell_changes in dict(changes or {}).items()
        if isinstance(cell_changes, dict)
    }
    numbers_with_distances = {
        number for number, cell_changes in changed_cells.items() if "distances" in cell_changes
    }
    cut_numbers = {
        number for number in numbers_with_distances if not changed_cells[number]["distances"]
    }
    return {
        number: cell
        if number in numbers_with_distances or not isinstance(cell, dict)
        else _cut_distances(cell, number, cut_numbers)
        for number, cell in cells.items()
    }


def _cut_distances(cell: Mapping[str, Any], number: str, cut_numbers: set[str]) -> dict[str, Any]:
    remaining_distances = {
        to: far for to, far in (cell.get("distances") or {}).items() if to not in cut_numbers
    }
    # A distance to itself alone counts as none.
    return {
        **cell,
        "distances": remaining_distances if set(remaining_distances) != {number} else {},
    }


def complete_links(rows_by_cell: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return ``{cell: distances}`` with those that libvirt fills in: back, and to itself."""
    rows = [
        (near, row["id"], row["value"])
        for near, cell_rows in rows_by_cell.items()
        for row in cell_rows
    ]
    values_by_link: dict[tuple[str, str], str] = {}
    for near, far, value in rows:
        values_by_link |= {(near, near): _OWN, (far, far): _OWN, (far, near): value}
    values_by_link |= {(near, far): value for near, far, value in rows}
    sorted_links = sorted(values_by_link.items(), key=lambda item: int(item[0][1]))
    return {
        cell: tuple(
            {"id": far, "value": value} for (near, far), value in sorted_links if near == cell
        )
        for cell in rows_by_cell
    }
