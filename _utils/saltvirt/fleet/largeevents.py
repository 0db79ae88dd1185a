"""
What a job has on Salt's event bus of an answer that is too large for it.

Salt looks through such an answer up to six times for what to leave out, and then fires all that
it found too small to leave out, mebibytes of it. Where a person waits for the job nobody else does.
What the master does itself, as for salt-api, a top master or ``--async``, is had from the event.
"""

import multiprocessing
from collections.abc import Mapping, MutableMapping
from typing import Any

import salt.payload

from saltvirt.signed import CUT


class CutEventBus:
    """Salt's event bus, for one job: of its answer, if that is too large, there is only a mark."""

    def __init__(self, event: Any, answer: object) -> None:
        self._event, self._answer = event, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)

    def fire_event(self, data: MutableMapping[str, Any], tag: str) -> Any:
        """Fire an event; what is in ``data`` stays as it is."""
        if data.get("return") is not self._answer:
            return self._event.fire_event(data, tag)
        data["return"] = CUT
        try:
            return self._event.fire_event(data, tag)
        finally:
            data["return"] = self._answer


def cut_large_answer(job: Any, answer: object, opts: Mapping[str, Any]) -> None:
    """
    Have a job that somebody sits before fire no answer that is larger than ``max_event_size``.

    job
        Salt's ``__jid_event__``, None outside a job.
    """
    # Salt has jobs print in the master's children too, where nobody can read it.
    if not (job and job.print_func) or multiprocessing.parent_process() is not None:
        return
    if len(salt.payload.dumps(answer, use_bin_type=True)) > opts["max_event_size"]:
        job.event = CutEventBus(job.event, answer)
