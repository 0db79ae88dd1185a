"""Run steps of a command, each whether or not another one fails."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from saltvirt.core.errors import VirtError
from saltvirt.core.salt import masteruser

_Done = TypeVar("_Done")


class IndependentSteps:
    """
    The failures so far.

    failed
        One phrase for each step, with the reason.
    table
        What the steps' errors show beside their lines.
    """

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self.failed: list[str] = []
        self.table: dict[str, Any] = {}

    def take(self, failure: str, do: Callable[..., _Done], *args: Any) -> _Done | None:
        """
        Return what a step returns, None if it fails.

        failure
            The phrase for a failure, such as ``the list was not written``.
        """
        try:
            return do(*args)
        except OSError as error:
            self.failed.append(f"{failure}: {masteruser.explain_error(error, self._opts)}")
        except (VirtError, ValueError) as error:
            self.failed.append(f"{failure}: {error}")
            self.table |= getattr(error, "table", {})
        return None
