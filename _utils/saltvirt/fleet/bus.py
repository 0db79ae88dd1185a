"""
Events of the master's bus, which any minion fires with what tag and content it likes.

A tag with two line breaks in it has Salt take the rest of it for the event's content: that is then
no mapping, or nothing that can be read, of which Salt 3006 makes an error for whoever listens.
"""

from collections.abc import Mapping
from typing import Any

from salt.exceptions import SaltDeserializationError

# Has no tag, which every event of Salt has.
_NONSENSE: Mapping[str, Any] = {"tag": "", "data": {}}


def next_event(bus: Any, wait_s: float, tag: str) -> Mapping[str, Any] | None:
    """
    Return the next event, ``{"tag", "data"}``, or None if none has come.

    One that makes no sense has an empty tag and no data: time may be left to wait for another.

    tag
        What the tags that are wanted begin with.
    """
    try:
        event = bus.get_event(wait=wait_s, tag=tag, full=True)
    except SaltDeserializationError:
        return _NONSENSE
    if event is not None and not isinstance(event["data"], Mapping):
        return _NONSENSE
    found: Mapping[str, Any] | None = event
    return found
