"""
Modules of the library that are imported when they are first used.

Salt loads all files of a module for one function. Importing what all of them need would cost every
``salt-call`` and ``salt-run`` a quarter of a second.
"""

import builtins
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

_LOCK = threading.Lock()


class _LazyModule:
    """A module of the library that is imported when an attribute of it is first read."""

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
