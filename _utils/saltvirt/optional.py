"""Python modules that the library can do without, found when they are first used."""

import importlib
from importlib.util import find_spec
from typing import Any


class OptionalModule:
    """
    A module that was missing when the library was loaded.

    A state may install it afterwards, in the same job; Salt then loads its modules anew, and the
    library stays as it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)

    def is_there(self) -> bool:
        """Return whether it has been installed meanwhile."""
        importlib.invalidate_caches()
        return find_spec(self._name) is not None


def is_missing(module: object) -> bool:
    """Return whether a module, or what stands for it, cannot be used."""
    return isinstance(module, OptionalModule) and not module.is_there()
