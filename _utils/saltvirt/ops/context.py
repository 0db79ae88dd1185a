"""What a workflow gets from the face that called it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from saltvirt.config import HostSettings


def _silent(_stage, **_figures):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The host's settings, Salt's options and functions, how to ask the master and to report."""

    settings: HostSettings
    opts: Mapping
    functions: Mapping = field(default_factory=dict)
    say: Callable = _silent
    ask: Callable | None = None

    def reporting(self, say):
        """Return the same context with a way to report progress."""
        return replace(self, say=say)
