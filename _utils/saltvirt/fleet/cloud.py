"""The cloud as one command of the master has it: its configuration, and who is told of progress."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.config import MasterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """
    What every step of a command needs.

    opts
        The master's configuration.
    settings
        What of it is ours.
    say
        Shows progress, see :func:`saltvirt.fleet.progress.teller`.
    """

    opts: Mapping[str, Any]
    settings: MasterSettings
    say: Callable[..., None]
