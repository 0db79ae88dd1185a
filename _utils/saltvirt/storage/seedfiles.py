"""Names of seed files, which hold keys."""

from pathlib import Path

from saltvirt.core.seedmethods import METHODS, SeedMethod

_ENDS = tuple(method.file_end for method in METHODS.values() if method.file_end)


def path(images: str, name: str, method: SeedMethod | None) -> str | None:
    """Return the path of a VM's seed in the image folder, None if the method makes no file."""
    if method is None or method.file_end is None:
        return None
    return str(Path(images) / f"{name}{method.file_end}")


def all_paths(images: str, name: str) -> list[str]:
    """Return all paths that a VM's seeds may have."""
    return [str(Path(images) / f"{name}{end}") for end in _ENDS]


def is_seed(file: str | Path) -> bool:
    """Return whether a file is a VM's seed, by its name."""
    return str(file).endswith(_ENDS)
