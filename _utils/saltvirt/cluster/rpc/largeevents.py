"""
Keep a job's answer off Salt's event bus if the answer is too large.

Salt searches such an answer up to six times for values to cut, then fires the rest, which may be
mebibytes. A command at a terminal prints the answer itself and needs no event. Jobs that the master
runs itself (for salt-api, a top master or ``--async``) need the event, and keep it.
"""

import multiprocessing
from collections.abc import Mapping, MutableMapping
from typing import Any

import salt.payload

from saltvirt.core.crypto.signed import CUT


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
