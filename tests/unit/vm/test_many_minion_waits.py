"""The minions of many new VMs are waited for at once; what the master has stored counts."""

import contextlib
import itertools
import time
from types import SimpleNamespace

import pytest
from askedpillar import asked
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import unsignedreplies
from saltvirt.core.options.config import MasterSettings
from saltvirt.core.salt import compat
from saltvirt.vm.create.master import minionwait


class Bus:
    """
    Stand for Salt's client, with what comes over its bus.

    says
        Who returns something at the first question, at the second, and so on; ``(to, who)`` of one
        who answers an earlier one.
    stored
        What of it the master has itself.
    """

    def __init__(self, *says, stored=()):
        self.asked, self.stored = [], stored
        self._says, self._queue, self._returned = list(says), [], set()
        self.event = SimpleNamespace(get_event=self._get_event)

    def pub(self, targets, fun, _arg, **_options):
        """Send a job, and queue what is returned."""
        self.asked.append((fun, targets))
        jid = str(len(self.asked))
        for one in (self._says or [[]]).pop(0):
            to, who = one if isinstance(one, tuple) else (jid, one)
            self._returned.add((to, who))
            self._queue.append(f"salt/job/{to}/ret/{who}")
        return {"jid": jid, "minions": targets}

    def _get_event(self, wait, tag, full):
        if self._queue:
            return {"tag": self._queue.pop(0), "data": {}}
        time.sleep(wait)
        return None

    def get_cache_returns(self, jid):
        """Return what the master has stored."""
        there = [who for to, who in self._returned if to == jid and who in self.stored]
        return dict.fromkeys(there, {"ret": True})


@pytest.fixture
def waited(opts, monkeypatch):
    """Wait for two minions with a bus, half a second at most; return who answered."""
    monkeypatch.setattr(unsignedreplies, "STORED_S", 0.05)

    def wait(bus, has_asked=("web1", "web2", "stranger"), **options):
        for name in has_asked:
            asked(opts, name, {"id": name})
        monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(bus))
        master = Cloud(opts={**opts, **options}, settings=MasterSettings(), progress=print)
        until = dict.fromkeys(["web1", "web2"], time.monotonic() + 0.5)
        answered = {}
        minionwait.wait_for_minions(master, until, answered, every_s=0.1)
        return set(answered)

    return wait


def test_all_that_are_silent_are_asked_again_by_one_job_each_time(waited):
    bus = Bus(["web2"], ["web1"], stored=["web1", "web2"])

    assert waited(bus) == {"web1", "web2"}
    assert bus.asked == [("test.ping", ["web1", "web2"]), ("test.ping", ["web1"])]


def test_a_late_answer_to_an_earlier_question_is_one(waited):
    bus = Bus(["web2"], [("1", "web1")], stored=["web1", "web2"])

    assert waited(bus) == {"web1", "web2"}


def test_whoever_is_silent_for_long_is_asked_less_often(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(unsignedreplies.time, "monotonic", lambda: clock[0])
    bus = Bus()
    bus.event.get_event = lambda wait, tag, full: clock.__setitem__(0, clock[0] + wait)
    asking = unsignedreplies.Pings(bus, SimpleNamespace(opts={}), every_s=5)
    at = []
    while clock[0] < 1200:
        before = len(bus.asked)
        asking.answered(["web1"])
        at += [clock[0] - 5] * (len(bus.asked) - before)

    assert at[:4] == [0, 5, 10, 15]
    assert [later - early for early, later in itertools.pairwise(at)][-3:] == [60, 60, 60]


@pytest.mark.slow
def test_whoever_is_heard_in_another_ones_name_only_does_not_answer(waited):
    assert waited(Bus(["web1", "web2"], stored=["web2", "other"])) == {"web2"}


@pytest.mark.slow
@pytest.mark.parametrize("option", [{"job_cache": False}, {"ext_job_cache": "redis"}])
def test_without_such_a_job_cache_a_return_of_one_of_many_is_an_answer(waited, option):
    assert waited(Bus(["web1", "stranger"]), **option) == {"web1"}


@pytest.mark.slow
def test_who_has_not_asked_for_its_pillar_has_not_been_there_whatever_is_stored(waited):
    """Any minion has the master store a return of any other: as what a syndic has heard."""
    both = Bus(["web1", "web2"], stored=["web1", "web2"])

    assert waited(both, has_asked=["web2"]) == {"web2"}
    assert waited(Bus(["web1"]), has_asked=[], job_cache=False) == set()
    # A master that keeps no such data cannot tell.
    assert waited(Bus(["web1"], stored=["web1"]), [], minion_data_cache=False) == set()


def test_what_another_of_that_name_has_asked_for_before_is_no_proof(opts):
    asked(opts, "web1", {"id": "web1"})
    assert compat.Grains(opts).of("web1") == {"id": "web1"}

    minionkeys.accept(opts, "web1", "a key")

    assert compat.Grains(opts).of("web1") is None
