"""
Read events of the master's bus, where any minion fires any tag with any content.

Salt takes the text after two line breaks in a tag for the event's content. Such content is no
mapping, or unreadable; Salt 3006 raises an error for the latter.
"""

import time
from collections.abc import Mapping
from typing import Any

from salt.exceptions import SaltDeserializationError

# Every event of Salt has a tag, so an empty one marks this event.
_UNREADABLE_EVENT: Mapping[str, Any] = {"tag": "", "data": {}}


def next_event(bus: Any, wait_s: float, tag: str) -> Mapping[str, Any] | None:
    """
    Return the next event, ``{"tag", "data"}``, or None after ``wait_s``.

    An unreadable event has an empty tag and no data, and may come before the time is up.

    tag
        Prefix of the wanted tags. Events with other tags are lost.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            # No tag for Salt: after an event with another tag Salt computes the remaining time by
            # the wall clock, and waits an hour longer if that clock is set back by an hour.
            event = bus.get_event(wait=wait_s, tag="", full=True)
        except SaltDeserializationError:
            return _UNREADABLE_EVENT
        if event is not None and not isinstance(event["data"], Mapping):
            return _UNREADABLE_EVENT
        valid_event: Mapping[str, Any] | None = event
        if valid_event is None or valid_event["tag"].startswith(tag):
            return valid_event
        wait_s = deadline - time.monotonic()
        if wait_s <= 0:
            return None
