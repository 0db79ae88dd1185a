"""
Modules that are imported when they are first used, and those that may be missing.

Salt loads all files of a module for one function. Importing what all of them need would cost every
``salt-call`` and ``salt-run`` a quarter of a second.
"""

import builtins
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

_LOCK = threading.Lock()


class _LazyModule:
    """A stand-in for a module of the library; the first read of an attribute imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


@contextmanager
def lazy_imports() -> Iterator[None]:
    """
    Let the ``from saltvirt.x import y`` of a block name modules, and import none of them yet.

    Editors and mypy follow these statements as all others. ``y`` must be a module, because what is
    in a module is not known before its import; ``tests/conventions/test_imports.py`` checks this.
    Only statements of this thread, and only within the block, are lazy.
    """
    with _LOCK:
        eager_import, thread = builtins.__import__, threading.get_ident()

        def lazy_import(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> Any:
            is_ours = fromlist and name.partition(".")[0] == "saltvirt"
            if not is_ours or threading.get_ident() != thread:
                return eager_import(name, globals, locals, fromlist, level)
            return SimpleNamespace(
                **{module: _LazyModule(f"{name}.{module}") for module in fromlist}
            )

        builtins.__import__ = lazy_import
        try:
            yield
        finally:
            builtins.__import__ = eager_import


class OptionalModule:
    """
    A module that was missing when the library was loaded.

    A state may install it later in the same job: Salt then loads its modules anew, but not the
    library. A library that the minion imported before the job (``preload.py``) stays, too.
    """

    def __init__(self, name: str, proof: str | None = None) -> None:
        """
        Stand in for a module.

        proof
            Another module of the same distribution, for a name that another file may have, too.
        """
        self._name, self._proof = name, proof or name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def load(self) -> Any:
        """Return the module itself; raise ImportError if it is missing."""
        if self._module is None:
            importlib.import_module(self._proof)
            self._module = importlib.import_module(self._name)
        return self._module

    def is_there(self) -> bool:
        """Return whether the module is installed now."""
        importlib.invalidate_caches()
        return find_spec(self._proof) is not None


def is_missing(module: object) -> bool:
    """Return whether a module is a stand-in for one that is still missing."""
    return isinstance(module, OptionalModule) and not module.is_there()


def why_broken(module: object) -> str | None:
    """Return why an installed module cannot be loaded, or None."""
    if not isinstance(module, OptionalModule):
        return None
    try:
        module.load()
    except ImportError as exc:
        return str(exc)
    return None
