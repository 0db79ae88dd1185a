"""The minions of many new VMs are waited for at once; what the master has stored counts."""

import contextlib
import time
from types import SimpleNamespace

import pytest
from saltvirt.config import MasterSettings
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.many import answering


class Bus:
    """
    Stand for Salt's client, with what comes over its bus.

    says
        Who returns something at the first question, at the second, and so on.
    stored
        What of it the master has itself.
    """

    def __init__(self, *says, stored=()):
        self.asked, self.stored = [], stored
        self._says, self._queue = list(says), []
        self.event = SimpleNamespace(subscribe=lambda _tag: None, get_event=self._get_event)

    def pub(self, targets, fun, _arg, **_options):
        """Send a job, and queue what is returned."""
        self.asked.append((fun, targets))
        jid = str(len(self.asked))
        self._queue = [f"salt/job/{jid}/ret/{one}" for one in (self._says or [[]]).pop(0)]
        return {"jid": jid, "minions": targets}

    def _get_event(self, wait, tag, full):
        if self._queue:
            return {"tag": self._queue.pop(0), "data": {}}
        time.sleep(wait)
        return None

    def get_cache_returns(self, _jid):
        """Return what the master has stored."""
        return dict.fromkeys(self.stored, {"ret": True})


@pytest.fixture
def waited(opts, monkeypatch):
    """Wait for two minions with a bus, half a second at most; return who answered."""
    monkeypatch.setattr(answering, "_STORED_S", 0.05)

    def wait(bus, **options):
        monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(bus))
        master = Cloud(opts={**opts, **options}, settings=MasterSettings(), progress=print)
        until = dict.fromkeys(["web1", "web2"], time.monotonic() + 0.5)
        return set(answering.wait(master, until, every_s=0.1))

    return wait


def test_all_that_are_silent_are_asked_again_by_one_job_each_time(waited):
    bus = Bus(["web2"], ["web1"], stored=["web1", "web2"])

    assert waited(bus) == {"web1", "web2"}
    assert bus.asked == [("test.ping", ["web1", "web2"]), ("test.ping", ["web1"])]


def test_whoever_is_heard_in_another_ones_name_only_does_not_answer(waited):
    assert waited(Bus(["web1", "web2"], stored=["web2", "other"])) == {"web2"}


@pytest.mark.parametrize("option", [{"job_cache": False}, {"ext_job_cache": "redis"}])
def test_without_such_a_job_cache_a_return_of_one_of_many_is_an_answer(waited, option):
    assert waited(Bus(["web1", "stranger"]), **option) == {"web1"}
