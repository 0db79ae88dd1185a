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


def module_name(path: Path) -> str:
    """Return the name of a file of the library, without the library's own name."""
    return ".".join(path.relative_to(LIBRARY).with_suffix("").parts)


def room(module: str) -> str:
    """Return the room of a module."""
    return module.partition(".")[0]


def side(module: str) -> str:
    """Return whose work a module does: the nearest folder says it, else its room."""
    folders = [part for part in module.split(".")[:-1] if part in SIDES]
    return folders[-1] if folders else ROOMS[room(module)]


def files(folder: str) -> list[Path]:
    """Return the files of a room, without those that only make a folder a package."""
    return [p for p in sorted((LIBRARY / folder).rglob("*.py")) if p.name != "__init__.py"]


def imported_modules(path: Path) -> set[str]:
    """Return the modules of the library that a file imports, without the library's own name."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not f"{node.module}.".startswith("saltvirt."):
            continue
        # Of a folder its files are imported, of a file what is in it.
        folder = LIBRARY.parent / str(node.module).replace(".", "/")
        for alias in node.names:
            is_module = (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
            out.add(f"{node.module}.{alias.name}" if is_module else str(node.module))
    return {name.removeprefix("saltvirt.") for name in out if name != "saltvirt"}


def picture() -> str:
    """Return one line for each room: its files by side, what it is for, and what it imports."""
    lines = [f"{'room':13}{'master host neither':16}"]
    for name in ROOMS:
        paths = files(name)
        sides = [side(module_name(path)) for path in paths]
        counts = [sides.count("master"), sides.count("host")]
        counts.append(len(sides) - sum(counts))
        shown = "  ".join(f"{count:3}" if count else "  -" for count in counts)
        imported = {room(module) for path in paths for module in imported_modules(path)}
        below = " ".join(other for other in ROOMS if other in imported - {name}) or "nothing"
        doc = ast.get_docstring(ast.parse((LIBRARY / name / "__init__.py").read_text())) or ""
        lines.append(f"{name:13}{shown}   {' '.join(doc.split())}")
        lines.append(f"{'':29}-> {below}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(picture())
