"""
Keep this library in a minion's memory, so that the process of each job need not import it.

A minion forks a process for each job. Modules that the minion has imported are there at once;
otherwise each job imports 150 files by itself. Here the minion imports what the master's questions
and the steps of moves need, which are most jobs, and sets it aside. A job that imports the library
gets all of it, if no file has changed since; otherwise the job imports the files on the disk, as it
would without this. Other jobs, such as ``virt.init``, import some 50 files more by themselves:
having all of them here would double what an idle minion costs.

The grain ``virt_hypervisor`` runs this file by itself, not as a part of the library, as another
release may be in memory. Sources: importlib's finders and loaders, PEP 451.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = "saltvirt"
# The imports of ``_modules/virt_answers.py`` and ``virt_answers_moves.py``, which a test compares.
MODULES = (
    "saltvirt.core.arguments",
    "saltvirt.core.errors",
    "saltvirt.core.journal.movefacts",
    "saltvirt.core.options.optionguard",
    "saltvirt.core.protocol.moveprotocol",
    "saltvirt.core.salt.answering",
    "saltvirt.core.salt.lazyimport",
    "saltvirt.core.vmfilter",
    "saltvirt.core.wire",
    "saltvirt.entry.host.hostmodule",
    "saltvirt.libvirt.domains.query",
    "saltvirt.migration.host.arrival",
    "saltvirt.migration.host.arrivalchecks",
    "saltvirt.migration.host.departure",
    "saltvirt.migration.host.incomingfiles",
    "saltvirt.migration.host.movestate",
    "saltvirt.migration.host.peer",
    "saltvirt.migration.host.sending",
    "saltvirt.placement.answers",
    "saltvirt.placement.brief",
    "saltvirt.storage.fileusers",
    "saltvirt.storage.lostdisks",
    "saltvirt.vm.purge.host.removed",
    "saltvirt.vm.show.host.inspect",
    "saltvirt.vm.show.host.listing",
    "saltvirt.vm.show.host.offering",
)
# Not preloaded: each job imports the version that is installed then, when it first uses them.
_OTHERS = ("libvirt", "libvirtmod", "libvirtmod_qemu", "pycdlib", "pyroute2")

_Stamp = dict[str, tuple[int, int, int, int]]


def stamp(top: Path) -> _Stamp:
    """Return the inode, size and times of each file of the library, by its path."""
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
    """The preloaded library, for the first import of it."""

    def __init__(self, top: Path, files: _Stamp, modules: dict[str, ModuleType]) -> None:
        self._top, self._files, self._modules = top, files, modules
        self._package = modules[_PACKAGE]
        self._spec = self._package.__spec__
        self.pid = os.getpid()

    def is_as_on_disk(self) -> bool:
        """Return whether the library on the disk is in the same place, and unchanged."""
        try:
            return find_library() == self._top and stamp(self._top) == self._files
        except OSError:
            return False

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return all of the library, or nothing, for the first import of the package."""
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
        """Return the preloaded package."""
        return self._package

    def exec_module(self, module: ModuleType) -> None:
        """Restore the package's own spec; its code has run already."""
        module.__spec__ = self._spec


def find_library() -> Path | None:
    """Return the folder from which the library would be imported now."""
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec(_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def begin(modules: Iterable[str] = MODULES) -> bool:
    """
    Preload modules of the library from the disk into this process; return whether they are loaded.

    Leave a process alone that has imported the library for itself, or was forked from one that has
    it.
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
    library = _import_library(top, modules) if top else None
    if library:
        sys.meta_path.insert(0, library)
    return library is not None


def _import_library(top: Path, modules: Iterable[str]) -> Aside | None:
    """Return the library with these modules; None if a file has changed during the import."""
    files = stamp(top)
    try:
        with _block_missing(), _without_collections():
            for name in modules:
                importlib.import_module(name)
        loaded = {name: sys.modules[name] for name in _loaded_names()}
    finally:
        for name in _loaded_names():
            del sys.modules[name]
    library = Aside(top, files, loaded)
    return library if library.is_as_on_disk() else None


def _loaded_names() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]


class _Blocked(importlib.abc.MetaPathFinder):
    """A finder that reports some modules as not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: imports make many objects that stay, and hardly any garbage."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


@contextmanager
def _block_missing() -> Iterator[None]:
    """Make modules look as if they were not installed, unless they are imported already."""
    finder = _Blocked()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
