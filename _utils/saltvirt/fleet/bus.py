"""
Events of the master's bus, which any minion fires with what tag and content it likes.

A tag with two line breaks in it has Salt take the rest of it for the event's content: that is then
no mapping, or nothing that can be read, of which Salt 3006 makes an error for whoever listens.
"""

import time
from collections.abc import Mapping
from typing import Any

from salt.exceptions import SaltDeserializationError

# Has no tag, which every event of Salt has.
_UNREADABLE_EVENT: Mapping[str, Any] = {"tag": "", "data": {}}


def next_event(bus: Any, wait_s: float, tag: str) -> Mapping[str, Any] | None:
    """
    Return the next event, ``{"tag", "data"}``, or None if none has come.

    One that makes no sense has an empty tag and no data: time may be left to wait for another.

    tag
        What the tags that are wanted begin with. All others are passed over for good.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            # Salt is not told the tag: by the clock on the wall it counts what is left after an
            # event that has another one, and waits for an hour where that is set back by one.
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
