"""Any minion fires events of any tag and content: the runner passes over what makes no sense."""

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
    """Return an event as it is on the bus, after the master has put its time into it."""
    return b"\n\n".join([tag.encode(), salt.payload.dumps(dict(data), use_bin_type=True)])


def no_mapping(tag):
    """Return an event whose tag goes on as msgpack's begin of 128 bytes, in which the data is."""
    inside = len(b"\n\n") + len(salt.payload.dumps(STAMP, use_bin_type=True))
    return packed(f"{tag}\n\n\N{LATIN CAPITAL LETTER A WITH MACRON}{'x' * (128 - inside)}")


def broken(tag):
    """Return one whose tag goes on as nothing that can be read."""
    return packed(f"{tag}\n\nxx")


class Bus:
    """Stand for Salt's client, with events as others have fired them; no real master has them."""

    def __init__(self, *events, later=()):
        # The later ones come when it is asked who is at a job.
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
            found, data = SaltEvent.unpack(self._events.pop(0))
            if found.startswith(tag):
                return {"tag": found, "data": data}
        return None


class Asking(unsignedreplies.Pings):
    """Pings of which it is noted whether they are sent as a minion has just started."""

    def __init__(self, local, cloud, every_s, asked):
        super().__init__(local, cloud, every_s)
        self._asked = asked

    def answered(self, _wanted, *, now=False):
        """Return that nobody has."""
        self._asked.append(now)
        return set()


def master(opts, hosts=()):
    """Return a command of a master."""
    settings = MasterSettings(timeout_s=2, hypervisors=list(hosts))
    return Cloud(opts=opts, settings=settings, progress=lambda *_a, **_k: None, is_reading=True)


@pytest.fixture
def asking(opts, monkeypatch):
    """A function that asks two hosts, the second of which is silent, while events come."""
    for host in ("hyper1", "hyper2"):
        minionkeys.accept(opts, host, keypairs.named(host)[0])
    # Whoever is silent is asked at once whether it is at it.
    monkeypatch.setattr(minions, "_ASK_S", 0)
    monkeypatch.setattr(minions, "_QUIET_S", 0.3)
    said = signed.SignedAnswer(minion="hyper1", about="1", value={})
    answer = {"id": "hyper1", "return": signed.pack(said, keypairs.named("hyper1")[1].encode())}

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
def test_it_disturbs_nobody_who_waits_for_answers(asking, event):
    found, _local = asking(event("salt/job/1/ret/hyper2"))

    assert list(found.answers) == ["hyper1"] and found.unreachable == ["hyper2"]


@pytest.mark.parametrize("id_", [[], {}, {"a": 1}, 1, None, b"\xff"])
def test_nor_does_one_from_a_minion_that_is_called_nothing(asking, id_):
    tags = ("salt/x", "salt/job/1/ret/a", "salt/job/2/ret/a")

    found, local = asking(later=[packed(tag, {"id": id_}) for tag in tags])

    assert list(found.answers) == ["hyper1"] and found.unreachable == ["hyper2"]
    assert "saltutil.find_job" in local.sent


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_it_does_not_say_that_a_minion_has_started(opts, monkeypatch, event):
    local = Bus(*[event("salt/minion/web/start")] * 9)
    asked = []
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(local))
    monkeypatch.setattr(
        minionwait,
        "Pings",
        lambda *words: Asking(*words, asked),
    )

    assert minionwait.wait_for_start(master(opts), "web", wait_s=0.1, every_s=0.05) is None
    assert asked and not any(asked)


@pytest.mark.parametrize("event", [no_mapping, broken])
def test_nor_that_it_has_answered_a_ping(opts, event):
    local = Bus(event("salt/job/1/ret/web"))

    assert unsignedreplies.Pings(local, master(opts), 0.1).answered(["web"]) == set()
