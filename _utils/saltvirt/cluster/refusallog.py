"""Log refused requests, within limits: any minion may send any number of them."""

import logging
import time
from collections import OrderedDict

from saltvirt.core import terminal

# Lines of a minion within a minute, in each process of the master; characters of a line; minions.
_MOST, _MINUTE_S, _LONGEST, _MINIONS = 10, 60.0, 1000, 1000


class Refusals:
    """The refusals of one kind of request."""

    def __init__(self, log: logging.Logger, question: str) -> None:
        self._log, self._question = log, question
        # When the current minute of each minion began, and its refusals since.
        self._since: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def note(self, minion_id: str, reason: str, *, now: float | None = None) -> None:
        """
        Log why a minion is refused, in one short line; nothing after ten lines within a minute.

        now
            The time in seconds. Defaults to the clock's.
        """
        now = time.monotonic() if now is None else now
        began, count = self._since.pop(minion_id, (now, 0))
        if now - began >= _MINUTE_S:
            if count > _MOST:
                self._log_refusal(minion_id, f"{count - _MOST} more refusals were not logged")
            began, count = now, 0
        self._since[minion_id] = (began, count + 1)
        while len(self._since) > _MINIONS:
            self._since.popitem(last=False)
        if count < _MOST:
            self._log_refusal(minion_id, reason)

    def _log_refusal(self, minion_id: str, reason: str) -> None:
        self._log.warning(
            "%s for %s: %s",
            self._question,
            terminal.one_line(minion_id, 300),
            # Cut before cleaning: a guest's request may have megabytes.
            terminal.one_line(reason[: 4 * _LONGEST], _LONGEST),
        )
