"""Modules of the library that are imported when they are first used."""

import importlib
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
