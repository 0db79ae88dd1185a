"""The master's side that needs no master: replies, reports, progress, keys."""

import contextlib
import time
from pathlib import Path

import fleetkit
import keypairs
import pytest
import tightclouds
import told
from salt.utils.crypt import pem_finger
from saltvirt.cluster import minionkeys, progress
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.cluster.rpc import replies as hearing
from saltvirt.core.crypto import keypair, signed
from saltvirt.core.errors import BadArgument, NameTaken
from saltvirt.core.model import Evaluation
from saltvirt.core.options.config import MasterSettings
from saltvirt.core.salt import compat
from saltvirt.vm.create.master import hostbuild


@pytest.mark.parametrize(
    ("error", "short"),
    [
        ("Error running 'virt.init': no room", "no room"),
        ("ERROR: Error running 'virt.purge': no VM", "ERROR: Error running 'virt.purge': no VM"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "KeyError: 'a'"),
        ("'virt.x' is not available.", "'virt.x' is not available."),
        ("", ""),
    ],
)
def test_a_minions_error_loses_salts_wrapping(error, short):
    text = hearing.shorten_error(error)

    assert text == short or short.endswith(text)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (minions.Reply(minion="h1", value=0), ""),
        (minions.Reply(minion="h1", is_missing=True), "does not answer"),
        (minions.Reply(minion="h1", is_missing=True, error="not signed"), "not signed"),
        (minions.Reply(minion="h1", error="no room"), "no room"),
    ],
)
def test_a_reply_without_an_answer_has_a_reason(reply, reason):
    assert reply.reason == reason


def test_a_hosts_error_keeps_its_class_and_a_missing_function_its_remedy():
    def replied(**fields):
        answer = signed.SignedAnswer(minion="h 1", about="1", fun="virt.x", retcode=1, **fields)
        return hearing.reply_from_answer(answer)

    assert replied(why="no room", kind="ReservationRefused").kind == "ReservationRefused"
    assert replied(value={"error": "no room", "kind": "ReservationRefused"}).kind
    assert replied(value={"error": "no room", "kind": ["odd"]}).kind == ""
    missing_function = replied(why="'virt.x' is not available.", kind="FunctionMissing")
    assert missing_function.error.endswith(
        "older version of Salt Virt; run: salt 'h 1' saltutil.sync_all"
    )


def test_the_exit_code_decides_whether_a_reply_is_an_error():
    good_reply = hearing.reply_from_answer(
        signed.SignedAnswer(minion="h", about="1", value={"a": 1})
    )
    bad = hearing.reply_from_answer(
        signed.SignedAnswer(minion="h", about="1", value={"error": "x"}, retcode=1)
    )

    assert (good_reply.ok, good_reply.value) == (True, {"a": 1})
    assert (bad.ok, bad.value, bad.is_missing) == (False, {"error": "x"}, False)
    assert not minions.Reply(minion="h", is_missing=True).ok


@pytest.mark.parametrize(
    ("stage", "figures", "line"),
    [
        ("Fetching", {"done_bytes": 40, "total_bytes": 100}, "vm: Fetching 40 % of 100B"),
        ("Fetching", {"done_bytes": 2**20, "total_bytes": None}, "vm: Fetching 1.0M"),
        ("Placing", {"detail": "on hyper1"}, "vm: Placing (on hyper1)"),
        (
            "web1: Moving",
            {"percent": 15, "rate_bytes_s": 2**20, "remaining_bytes": 2**21},
            "vm: web1: Moving 15 %, 1.0M/s, 2.0M to go",
        ),
        (
            "Moving",
            {"percent": 15, "disk_bytes": 7, "remaining_bytes": 2**21, "rate_bytes_s": 2**20},
            "vm: Moving its disks 15 %, 1.0M/s, 2.0M to go",
        ),
        (
            "Moving",
            {"percent": 15, "disk_bytes": 7, "memory_bytes": 7, "remaining_bytes": 2**21},
            "vm: Moving its memory 15 %, 2.0M to go",
        ),
        (
            "Moving",
            {"percent": 80, "rate_bytes_s": 2**20, "remaining_bytes": 2**21, "passes": 3},
            "vm: Moving 1.0M/s, 2.0M to go in pass 3 over its memory",
        ),
        ("Starting", {}, "vm: Starting"),
    ],
)
def test_progress_reads_as_one_line(stage, figures, line):
    assert progress.text("vm", stage, figures) == line


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (150, "2 min"), (7300, "2 h"), (200000, "2 days")],
)
def test_a_time_is_shown_in_words(seconds, words):
    assert progress.format_s(seconds) == words


@pytest.mark.parametrize(
    ("listed", "message"),
    [("L@h1,h2", "lists h2, .*: accept it .salt-key -a h2."), ("L@h3,h2", "lists h2, h3, ")],
)
def test_a_list_of_minions_names_the_one_without_an_accepted_key(opts, listed, message):
    minionkeys.accept(opts, "h1", keypair.generate()[0])
    settings = MasterSettings(hypervisors=["h1", "h2", "h3"])
    cloud = Cloud(opts=opts, settings=settings, progress=lambda *_args, **_figures: None)

    with pytest.raises(BadArgument, match=f"where: '{listed}' {message}"):
        inventory.narrow(cloud, inventory.all_hosts(cloud), listed)


def test_a_key_is_accepted_for_one_id_and_taken_back(opts):
    public, private = keypair.generate()
    store = compat.KeyStore(opts)

    minionkeys.accept(opts, "vm1", public)

    assert store.read("vm1") == ("accepted", public)
    assert store.read("vm2") == (None, None)
    with pytest.raises(NameTaken, match="'vm1' is accepted"):
        minionkeys.refuse_taken(opts, "vm1")
    minionkeys.discard(opts, "vm1", keypair.generate()[0])
    assert store.read("vm1")[0] == "accepted"
    minionkeys.discard(opts, "vm1", public)
    assert store.read("vm1") == (None, None)
    assert "PRIVATE" in private


def test_a_key_that_waits_under_the_id_of_a_new_vm_does_not_win(opts):
    squatters_key, own_key = keypair.generate()[0], keypair.generate()[0]
    store = compat.KeyStore(opts)
    if store._cache is None:
        (Path(opts["pki_dir"]) / "minions_pre" / "vm1").write_text(squatters_key)
    else:
        store._cache.store("keys", "vm1", {"pub": squatters_key, "state": "pending"})
    assert store.read("vm1") == ("pending", squatters_key)

    minionkeys.refuse_taken(opts, "vm1")
    minionkeys.accept(opts, "vm1", own_key)

    assert store.read("vm1") == ("accepted", own_key)


def test_a_fingerprint_is_the_one_that_the_host_shows_of_its_own_key(opts, tmp_path):
    public = keypair.generate()[0]
    key_file = tmp_path / "minion.pub"
    key_file.write_text(public)
    store = compat.KeyStore(opts)
    minionkeys.accept(opts, "hyper1", f"\n{public}\n")

    assert store.fingerprint("hyper1") == pem_finger(str(key_file), sum_type=opts["hash_type"])
    assert store.fingerprint("hyper2") is None


def test_only_keys_that_are_accepted_are_minions(opts):
    store = compat.KeyStore(opts)
    minionkeys.accept(opts, "hyper2", keypair.generate()[0])
    minionkeys.accept(opts, "hyper1", keypair.generate()[0])
    (Path(opts["pki_dir"]) / "minions_pre" / "hyper3").write_text("a key that waits")
    (Path(opts["pki_dir"]) / "minions_rejected" / "hyper4").write_text("a key that was rejected")

    assert store.accepted() == ["hyper1", "hyper2"]


def test_the_table_of_a_deployment_has_the_reasons_of_hosts():
    table = hostbuild.table(
        [Evaluation(host="a", score=0.5), Evaluation(host="b", reasons=("full",))]
    )

    assert table == {
        "a": {"fits": True, "score": 0.5, "reasons": []},
        "b": {"fits": False, "score": 0.0, "reasons": ["full"]},
    }


@pytest.mark.parametrize(
    ("arguments", "profile", "is_seeded"),
    [
        ({"image": "salt://a"}, {}, True),
        ({"image": "salt://a", "seed": False}, {}, False),
        ({"disks": {"system": {"image": "salt://a"}}}, {}, True),
        ({"disks": [{"name": "data", "size": 1, "overlay_image": True}]}, {}, False),
        ({}, {}, False),
        ({"disk": "web"}, {"web": {"size_mib": 1, "has_image": True}}, True),
        ({"disk": "web", "seed": False}, {"web": {"size_mib": 1, "has_image": True}}, False),
        ({}, {"default": {"size_mib": 1, "has_image": True}}, True),
        ({"disk": None}, {"default": {"size_mib": 1, "has_image": True}}, False),
        ({"disk": "web"}, {"web": {"size_mib": 1}}, False),
        ({"disk": "none"}, {}, False),
    ],
)
def test_a_key_is_made_only_for_a_guest_that_is_seeded(arguments, profile, is_seeded):
    info = told.but(tightclouds.host(1), profiles={"disk": profile})

    assert fleetkit.request(**arguments).is_seeded(info) is is_seeded


@pytest.fixture
def impatient(opts):
    """A master that does not wait for minions."""
    settings = MasterSettings(timeout_s=0.1, hypervisors="hyper1 h")
    minionkeys.accept(opts, "hyper1", keypairs.named("hyper1")[0])
    return Cloud(opts=opts, settings=settings, progress=lambda *_a, **_k: None)


class LateMaster:
    """Stand for Salt's client: no real minion returns late at will."""

    def __init__(self, delay_s=60):
        self.event, self._answers_at, self.sent = self, time.monotonic() + delay_s, []

    def pub(self, targets, fun, arg, **_options):
        """Send a job to all its targets."""
        self.sent.append(fun)
        return {"jid": "1", "minions": targets}

    def get_event(self, wait, tag, full):
        """Return the answer after the delay."""
        time.sleep(min(wait, 0.05))
        if time.monotonic() < self._answers_at:
            return None
        answer = signed.SignedAnswer(minion="hyper1", about="1", fun="virt.init", value="built")
        packed = signed.pack(answer, keypairs.named("hyper1")[1].encode())
        data = {"id": "hyper1", "return": packed, "retcode": 0, "success": True}
        return {"tag": "salt/job/1/ret/hyper1", "data": data}


@pytest.mark.parametrize(
    ("find_job", "is_heard"),
    [
        ({"hyper1": minions.Reply(minion="hyper1", value={})}, True),
        ({"hyper1": minions.Reply(minion="hyper1", is_missing=True)}, False),
    ],
    ids=["ended", "silent"],
)
@pytest.mark.slow
def test_the_answer_of_a_job_that_has_ended_is_waited_for(
    monkeypatch, impatient, find_job, is_heard
):
    late_master = LateMaster(delay_s=2)
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(late_master))
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: find_job)

    reply = minions.order(impatient, "hyper1", "virt.init", [], {}, limit_s=60)

    assert (reply.is_missing, reply.value) == ((False, "built") if is_heard else (True, None))


AT_IT = {"jid": "1"}


@pytest.mark.parametrize(
    ("find_job", "is_late", "words"),
    [
        ({"value": AT_IT}, True, "hyper1 still ran virt.init after 0.2 s, the limit"),
        ({"is_missing": True}, False, "hyper1 does not answer; see: salt hyper1 test.ping"),
        ({"value": {}}, False, "hyper1 has ended virt.init, but its answer did not come"),
        ({"value": "yes"}, False, "hyper1 has ended virt.init, but its answer did not come"),
        ({"value": {"jid": "2"}}, False, "hyper1 has ended virt.init, but its answer did not come"),
    ],
    ids=["our limit", "silent", "lost", "nonsense", "another job"],
)
@pytest.mark.slow
def test_a_timeout_names_the_limit_that_was_reached(
    monkeypatch, impatient, find_job, is_late, words
):
    master = LateMaster()
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(master))
    monkeypatch.setattr(minions, "_RETURN_S", 0.1)
    replies = {"hyper1": minions.Reply(minion="hyper1", **find_job)}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)

    reply = minions.order(impatient, "hyper1", "virt.init", [], {}, limit_s=0.2)

    assert (reply.is_missing, reply.is_late) == (True, is_late)
    assert words in reply.error
    assert "saltutil.term_job" in master.sent or not is_late


@pytest.mark.parametrize(("limit_s", "is_named"), [(None, True), (60, False)])
def test_our_limit_is_named_by_its_option(monkeypatch, impatient, limit_s, is_named):
    late_master = minions.Reply(
        minion="h", is_missing=True, is_late=True, error="h was still at it"
    )
    monkeypatch.setattr(minions, "order", lambda *_args, **_options: late_master)

    with pytest.raises(hostcommands.HostUnresponsive, match="h was still at it") as caught:
        hostcommands.act(impatient, "h", "virt.start", "web", limit_s=limit_s)

    assert ("virt:deploy_timeout_s" in str(caught.value)) is is_named
