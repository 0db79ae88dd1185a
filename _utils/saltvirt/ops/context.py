"""What a workflow gets from the face that called it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.config import HostSettings


def _silent(_stage: str, **_figures: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The host's settings, Salt's options and functions, how to ask the master and to report."""

    settings: HostSettings
    opts: Mapping[str, Any]
    functions: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[..., Any] = _silent
    ask: Callable[..., Any] | None = None

    def with_progress(self, progress: Callable[..., None]) -> "Context":
        """Return the same context with a way to report progress."""
        return replace(self, progress=progress)
