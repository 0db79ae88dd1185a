"""Python modules that the library can do without, found when they are first used."""

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class OptionalModule:
    """
    A module that was missing when the library was loaded.

    A state may install it afterwards, in the same job; Salt then loads its modules anew, and the
    library stays as it is. So it is, too, where the minion has imported the library before
    (``preload.py``).
    """

    def __init__(self, name: str, proof: str | None = None) -> None:
        """
        Stand for a module.

        proof
            A module that comes with it, where another file may have its name.
        """
        self._name, self._proof = name, proof or name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def load(self) -> Any:
        """Return the module itself; raise ImportError."""
        if self._module is None:
            importlib.import_module(self._proof)
            self._module = importlib.import_module(self._name)
        return self._module

    def is_there(self) -> bool:
        """Return whether it has been installed meanwhile."""
        importlib.invalidate_caches()
        return find_spec(self._proof) is not None


def is_missing(module: object) -> bool:
    """Return whether a module, or what stands for it, cannot be used."""
    return isinstance(module, OptionalModule) and not module.is_there()


def why_broken(module: object) -> str | None:
    """Return why a module that is there cannot be loaded, or None."""
    if not isinstance(module, OptionalModule):
        return None
    try:
        module.load()
    except ImportError as exc:
        return str(exc)
    return None
