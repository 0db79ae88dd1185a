"""Minions can fire events with any tag and content: the runner skips nonsense."""

import contextlib

import keypairs
import pytest
import salt.payload
from salt.utils.event import SaltEvent
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import eventbus, minions, unsignedreplies
from saltvirt.core.crypto import signed
from saltvirt.core.options.config import MasterSettings
from saltvirt.vm.create.master import minionwait

STAMP = {"_stamp": "2026-11-25T21:06:56.581679+00:00"}


def packed(tag, data=STAMP):
    """Return an event as it is on the bus, with the time stamp of the master."""
    return b"\n\n".join([tag.encode(), salt.payload.dumps(dict(data), use_bin_type=True)])


def no_mapping(tag):
    """Return an event with a tag that ends with msgpack's header of 128 bytes of text."""
    inside = len(b"\n\n") + len(salt.payload.dumps(STAMP, use_bin_type=True))
    return packed(f"{tag}\n\n\N{LATIN CAPITAL LETTER A WITH MACRON}{'x' * (128 - inside)}")


def broken(tag):
    """Return an event with a tag that ends with invalid msgpack."""
    return packed(f"{tag}\n\nxx")


class Bus:
    """Stand for Salt's client, with events that a real master would not have at will."""

    def __init__(self, *events, later=()):
        # The later ones come when the master sends saltutil.find_job.
        self.event, self._events, self._later = self, list(events), list(later)
        self.sent = []

    def pub(self, targets, fun, *_args, **_options):
        """Send a job."""
        self.sent.append(fun)
        if fun == "saltutil.find_job":
            self._events += self._later
        return {"jid": str(len(self.sent)), "minions": targets}

    def get_cache_returns(self, _jid):
        """Return what the master has stored, which is nothing."""
        return {}

    def get_event(self, wait, tag, full):
        """Return the next event, read as Salt does it."""
        assert wait > 0 and full
        while self._events:
            event_tag, data = SaltEvent.unpack(self._events.pop(0))
            if event_tag.startswith(tag):
                return {"tag": event_tag, "data": data}
        return None


class RecordingPings(unsignedreplies.Pings):
    """Pings that record whether a minion's start triggered them."""

    def __init__(self, local, cloud, every_s, now_flags):
        super().__init__(local, cloud, every_s)
        self._now_flags = now_flags

    def answered(self, _minions, *, now=False):
        """Return that no minion has answered."""
        self._now_flags.append(now)
        return set()


def master(opts, hosts=()):
    """Return a command of a master."""
    settings = MasterSettings(timeout_s=2, hypervisors=list(hosts))
    return Cloud(opts=opts, settings=settings, progress=lambda *_a, **_k: None, is_reading=True)


@pytest.fixture
def asking(opts, monkeypatch):
    """A function that asks two hosts while events come; the second host is silent."""
    for host in ("hyper1", "hyper2"):
        minionkeys.accept(opts, host, keypairs.named(host)[0])
    # The master asks a silent host at once whether it works on the job.
    monkeypatch.setattr(minions, "_ASK_S", 0)
    monkeypatch.setattr(minions, "_QUIET_S", 0.3)
    signed_answer = signed.SignedAnswer(minion="hyper1", about="1", value={})
    answer = {
        "id": "hyper1",
        "return": signed.pack(signed_answer, keypairs.named("hyper1")[1].encode()),
    }

    def asked(*events, later=()):
        local = Bus(*events, packed("salt/job/1/ret/hyper1", answer), later=later)
        monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(local))
        hosts = ["hyper1", "hyper2"]
        return inventory.survey(master(opts, hosts), hosts, "virt.vm_state"), local

    return asked


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_an_event_that_makes_no_sense_has_no_tag(event):
    local = Bus(event("salt/job/1/ret/hyper1"), packed("salt/job/2"))

    assert eventbus.next_event(local, 1, "salt/") == {"tag": "", "data": {}}
    assert eventbus.next_event(local, 1, "salt/") == {"tag": "salt/job/2", "data": STAMP}
    assert eventbus.next_event(local, 1, "salt/") is None


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_such_an_event_does_not_disturb_a_wait_for_answers(asking, event):
    survey, _local = asking(event("salt/job/1/ret/hyper2"))

    assert list(survey.answers) == ["hyper1"] and survey.unreachable == ["hyper2"]


@pytest.mark.parametrize("id_", [[], {}, {"a": 1}, 1, None, b"\xff"])
def test_an_event_with_a_wrong_minion_id_does_not_disturb_a_wait_for_answers(asking, id_):
    tags = ("salt/x", "salt/job/1/ret/a", "salt/job/2/ret/a")

    survey, local = asking(later=[packed(tag, {"id": id_}) for tag in tags])

    assert list(survey.answers) == ["hyper1"] and survey.unreachable == ["hyper2"]
    assert "saltutil.find_job" in local.sent


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_such_an_event_does_not_count_as_the_start_of_a_minion(opts, monkeypatch, event):
    local = Bus(*[event("salt/minion/web/start")] * 9)
    now_flags = []
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(local))
    monkeypatch.setattr(
        minionwait,
        "Pings",
        lambda *words: RecordingPings(*words, now_flags),
    )

    assert minionwait.wait_for_start(master(opts), "web", wait_s=0.1, every_s=0.05) is None
    assert now_flags and not any(now_flags)


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_such_an_event_does_not_count_as_an_answer_to_a_ping(opts, event):
    local = Bus(event("salt/job/1/ret/web"))

    assert unsignedreplies.Pings(local, master(opts), 0.1).answered(["web"]) == set()
