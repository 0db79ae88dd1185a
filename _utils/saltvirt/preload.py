"""
A minion keeps this library in its memory, so that the process of each job need not import it anew.

A minion does each job in a process that is forked from it. What it has imported before is there at
once; what it has not, each job imports by itself, 150 files every time. Here the minion imports the
library and lays it aside. A job that imports it is given all of it, if no file has changed since;
otherwise nothing of it, and it imports what is on the disk, as it would without this.

The grain ``virt_hypervisor`` runs this file by itself, not as a part of the library, of which there
may be another release in memory. Sources: importlib's finders and loaders, PEP 451.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "saltvirt"
# What a job on a hypervisor needs comes with these; the others are the master's, or rarely needed.
_WANTED = ("kvm", "ops")
_NOT = ("ops.bridge",)
# Each job takes what is installed of these then; until it uses them it can do without.
_OTHERS = ("libvirt", "pycdlib", "pyroute2")
# To import it takes longer than to write a seed with it; as pure Python it may be kept as it is.
_KEPT = "pycdlib"

_Stamp = dict[str, tuple[int, int, int, int]]


def stamp(top: Path) -> _Stamp:
    """Return what changes whenever a file of the library does, by its path."""
    out: _Stamp = {}
    folders = [str(top)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    stat = entry.stat()
                    times = stat.st_mtime_ns, stat.st_ctime_ns
                    out[entry.path] = (stat.st_ino, stat.st_size, *times)
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return out


class Aside(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The library as it was imported once, for the first who imports it."""

    def __init__(self, top: Path, files: _Stamp, modules: dict[str, ModuleType]) -> None:
        self._top, self._files, self._modules = top, files, modules
        self._package = modules[_PACKAGE]
        self._spec = self._package.__spec__
        self.pid = os.getpid()

    def is_as_on_disk(self) -> bool:
        """Return whether no file has changed since, and it would be found there."""
        try:
            return find_library() == self._top and stamp(self._top) == self._files
        except OSError:
            return False

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Give all of it back, or nothing, to whoever imports the package first."""
        if name != _PACKAGE:
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        if not self.is_as_on_disk():
            return None
        sys.modules.update(
            {
                module_name: module
                for module_name, module in self._modules.items()
                if module_name != _PACKAGE
            }
        )
        return importlib.machinery.ModuleSpec(_PACKAGE, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the package that there is."""
        return self._package

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing, as it has run; what was said of the package stays said."""
        module.__spec__ = self._spec


def find_library() -> Path | None:
    """Return the folder that the library would be imported from now."""
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec(_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def begin() -> bool:
    """
    Have the library in this process's memory, as it is on the disk; return whether it is.

    A process that has imported it for itself, or that was forked from one that has it, is left
    alone.
    """
    finders: list[Any] = list(sys.meta_path)
    old_finders = [finder for finder in finders if type(finder).__name__ == Aside.__name__]
    if any(finder.pid != os.getpid() or finder.is_as_on_disk() for finder in old_finders):
        return True
    if _loaded_names():
        return False
    for finder in old_finders:
        sys.meta_path.remove(finder)
    top = find_library()
    library = _import_library(top) if top else None
    if library:
        sys.meta_path.insert(0, library)
        # What is broken is said by the job that needs it.
        with suppress(Exception):
            importlib.import_module(_KEPT)
    return library is not None


def _import_library(top: Path) -> Aside | None:
    """Return the library; None if a file of it has changed meanwhile."""
    files = stamp(top)
    try:
        with _block_missing():
            for name in _names(top, files):
                importlib.import_module(name)
        modules = {name: sys.modules[name] for name in _loaded_names()}
    finally:
        for name in _loaded_names():
            del sys.modules[name]
    library = Aside(top, files, modules)
    return library if library.is_as_on_disk() else None


def _loaded_names() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]


def _names(top: Path, files: _Stamp) -> list[str]:
    """Return the modules to import."""
    parts = (Path(path).relative_to(top).with_suffix("").parts for path in sorted(files))
    names = (".".join(part for part in path_parts if part != "__init__") for path_parts in parts)
    return [
        f"{_PACKAGE}.{name}"
        for name in names
        if name.partition(".")[0] in _WANTED and not name.startswith(_NOT)
    ]


class _Blocked(importlib.abc.MetaPathFinder):
    """Finds modules, and says that they are not there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def _block_missing() -> Iterator[None]:
    """Have modules look as if they were not installed, if nobody has imported them yet."""
    finder = _Blocked()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
