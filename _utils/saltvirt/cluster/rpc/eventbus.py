"""Read Salt's event bus, on which any minion fires any event; keep a job's large answer off it."""

import multiprocessing
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import salt.payload
from salt.exceptions import SaltDeserializationError

from saltvirt.core.crypto.signed import CUT

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


class CutEventBus:
    """Salt's event bus for one job, with a mark in place of the job's answer."""

    def __init__(self, event: Any, answer: object) -> None:
        self._event, self._answer = event, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)

    def fire_event(self, data: MutableMapping[str, Any], tag: str) -> Any:
        """Fire an event; leave ``data`` as it was."""
        if data.get("return") is not self._answer:
            return self._event.fire_event(data, tag)
        data["return"] = CUT
        try:
            return self._event.fire_event(data, tag)
        finally:
            data["return"] = self._answer


def cut_large_answer(job: Any, answer: object, opts: Mapping[str, Any]) -> None:
    """
    Have a job at a terminal fire no answer larger than ``max_event_size``.

    job
        Salt's ``__jid_event__``, None outside a job.
    """
    # Jobs in the master's child processes print, too, where no operator reads it.
    if not (job and job.print_func) or multiprocessing.parent_process() is not None:
        return
    if len(salt.payload.dumps(answer, use_bin_type=True)) > opts["max_event_size"]:
        job.event = CutEventBus(job.event, answer)
