"""Python modules that the library can do without, found when they are first used."""

import importlib
from importlib.util import find_spec


class Later:
    """
    A module that was missing when the library was loaded.

    A state may install it afterwards, in the same job; Salt then loads its faces anew, and the
    library stays as it is.
    """

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        return getattr(importlib.import_module(self._name), name)

    def is_there(self):
        """Return whether it has been installed meanwhile."""
        importlib.invalidate_caches()
        return find_spec(self._name) is not None


def is_missing(module):
    """Return whether a module, or what stands for it, cannot be used."""
    return isinstance(module, Later) and not module.is_there()
