"""Modules that are imported when they are first used, and those that may be missing."""

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Later:
    """
    A module of the library that is imported on first use.

    Salt loads all of our files for one function. Importing what all of them need would cost every
    ``salt-call`` and ``salt-run`` a quarter of a second.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


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
