"""A command that waits for an event does not wait longer when the clock is set back."""

import time
from types import SimpleNamespace

import salt.payload
from salt.utils.event import SaltEvent
from saltvirt.cluster.rpc import eventbus, unsignedreplies


class Subscriber:
    """Stand for Salt's socket; each event that is read sets the clock back by an hour."""

    def __init__(self, *tags):
        self._tags, self.waited_s, self.by_s = list(tags), [], 0.0

    def recv(self, timeout):
        """Return the next event, None when there is none."""
        self.waited_s.append(timeout)
        if not self._tags:
            return None
        self.by_s -= 3600.0
        return b"\n\n".join([self._tags.pop(0).encode(), salt.payload.dumps({})])

    read = recv


def listening(monkeypatch, *tags):
    """Return Salt's own listener on such a socket."""
    subscriber, real_time = Subscriber(*tags), time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + subscriber.by_s)
    event = SaltEvent.__new__(SaltEvent)
    event.opts = {"event_match_type": "startswith"}
    event.subscriber, event.cpub, event._run_io_loop_sync = subscriber, True, True
    event.io_loop = SimpleNamespace(make_current=lambda: None)  # only 3006 has it
    event.pending_tags, event.pending_events, event.raise_errors = [], [], False
    return event


def test_an_unrelated_event_does_not_extend_the_wait(monkeypatch):
    event = listening(monkeypatch, "salt/other/1", "salt/other/2")

    assert eventbus.next_event(event, 5, "salt/job/") is None

    assert len(event.subscriber.waited_s) == 3 and max(event.subscriber.waited_s) <= 5


def test_answers_to_pings_before_a_minions_start_event_count(monkeypatch):
    local = SimpleNamespace(
        event=listening(monkeypatch, "salt/job/1/ret/web", "salt/minion/web/start"),
        pub=lambda *_words, **_options: {"jid": "1", "minions": ["web"]},
    )
    asking = unsignedreplies.Pings(local, SimpleNamespace(opts={"job_cache": False}), every_s=5)
    asking._sent.append("1")

    assert asking.has_started("web")
    assert asking._answered == {"web"}
    assert not asking.has_started("web")
