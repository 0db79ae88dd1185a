"""Draw the rooms of the library for ``docs/architecture.md``: ``tools/rooms.py`` prints them."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "_utils" / "saltvirt"
# From the top: a room imports only rooms that stand below it. A room's files do the work of the
# master, of a host, or ("pure") know neither; a folder named master, host or shared says otherwise.
ROOMS = {
    "entry": "master",
    "checks": "pure",
    "cells": "master",
    "migration": "pure",
    "vm": "pure",
    "seeding": "host",
    "storage": "host",
    "network": "host",
    "libvirt": "host",
    "certificates": "pure",
    "cluster": "master",
    "ca": "pure",
    "placement": "pure",
    "xml": "pure",
    "core": "pure",
}
SIDES = ("master", "host", "shared")


def side(module: str) -> str:
    """Return whose work a module does: the nearest folder says it, else its room."""
    folders = [part for part in module.split(".")[:-1] if part in SIDES]
    return folders[-1] if folders else ROOMS[module.partition(".")[0]]


def files(room: str) -> list[Path]:
    """Return the files of a room, without those that only make a folder a package."""
    return [p for p in sorted((LIBRARY / room).rglob("*.py")) if p.name != "__init__.py"]


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a file imports."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("saltvirt"):
            names = str(node.module).split(".")[1:2] or [alias.name for alias in node.names]
            out.update(name for name in names if name in ROOMS)
    return out


def picture() -> str:
    """Return one line for each room: its files by side, what it is for, and what it imports."""
    lines = []
    for room in ROOMS:
        modules = [".".join(p.relative_to(LIBRARY).with_suffix("").parts) for p in files(room)]
        counts = {name: sum(side(m) == name for m in modules) for name in ("master", "host")}
        rest = len(modules) - sum(counts.values())
        shown = [f"{count:3}" if count else "  -" for count in (*counts.values(), rest)]
        imports = sorted(
            set().union(*map(imported_rooms, files(room))) - {room}, key=list(ROOMS).index
        )
        doc = ast.get_docstring(ast.parse((LIBRARY / room / "__init__.py").read_text())) or ""
        lines.append(f"{room:13}{'  '.join(shown)}   {' '.join(doc.split())}")
        lines.append(f"{'':13}{'':16}-> {' '.join(r for r in ROOMS if r in imports) or 'nothing'}")
    head = f"{'room':13}{'master host neither':16}"
    return "\n".join([head, *lines])


if __name__ == "__main__":
    print(picture())
