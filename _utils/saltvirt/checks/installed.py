"""Find what competes with this project's modules in the Python of a minion or a master."""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

# The group of entry points by which packages bring Salt modules, and the name of our package.
_GROUP, _PACKAGE = "salt.loader", "saltvirt"
# On PyPI this is not the present project, but Salt's former virt module.
_RIVAL = "saltext-virt"
_MODULES = ("modules/virt.py", "runners/virt.py", "states/virt.py")


def find_copies(opts: Mapping[str, Any]) -> list[str]:
    """Return the folders where this process finds the library: synced, and installed."""
    places = [Path(opts["extension_modules"]) / "utils", *map(Path, sys.path)]
    library_folders = (
        folder / _PACKAGE for folder in places if (folder / _PACKAGE / "__init__.py").is_file()
    )
    return sorted({str(folder.resolve()) for folder in library_folders})


def find_foreign_virt() -> list[str]:
    """Return the distributions in this Python that bring Salt another module ``virt``."""
    return sorted({name for name in map(_foreign_name, distributions()) if name})


def _foreign_name(distribution: Distribution) -> str | None:
    name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"] or "")).lower()
    packages = set(_loaded_packages(distribution))
    if _PACKAGE in packages or not name:
        return None
    files = distribution.files if packages else None
    has_virt = any(file.as_posix().endswith(_MODULES) for file in files or ())
    return name if has_virt or name == _RIVAL else None


def _loaded_packages(distribution: Distribution) -> Iterator[str]:
    """Yield the packages that a distribution registers with Salt's loader."""
    for entry_point in distribution.entry_points:
        if entry_point.group == _GROUP:
            yield entry_point.value.partition(":")[0].partition(".")[0]
