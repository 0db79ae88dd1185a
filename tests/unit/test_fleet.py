"""The master's side that needs no master: replies, reports, progress, keys, the journal."""

import contextlib
import multiprocessing
import time
from pathlib import Path

import pytest
from saltvirt import compat, keypair
from saltvirt.errors import BadArgument, NameTaken
from saltvirt.fleet import deploy, journal, keys, minions, progress, report
from saltvirt.model import Verdict


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
    text = minions._short(error)

    assert text == short or short.endswith(text)


def test_a_reply_is_what_its_exit_code_says():
    good = minions._reply({"id": "h", "return": {"a": 1}, "retcode": 0})
    bad = minions._reply({"id": "h", "return": {"error": "x"}, "retcode": 1})

    assert (good.ok, good.value) == (True, {"a": 1})
    assert (bad.ok, bad.value, bad.missing) == (False, {"error": "x"}, False)
    assert not minions.Reply(minion="h", missing=True).ok


@pytest.mark.parametrize(
    ("stage", "figures", "line"),
    [
        ("Fetching", {"done_bytes": 40, "total_bytes": 100}, "vm: Fetching 40 % of 100B"),
        ("Fetching", {"done_bytes": 2**20, "total_bytes": None}, "vm: Fetching 1.0M"),
        ("Placing", {"detail": "on hyper1"}, "vm: Placing (on hyper1)"),
        ("Starting", {}, "vm: Starting"),
    ],
)
def test_progress_reads_as_one_line(stage, figures, line):
    assert progress.text("vm", stage, figures) == line


__context__ = {}
__opts__ = {"user": "root"}


@report.reported
def face(name, count=1):
    """Stand for a runner function."""
    if count == 0:
        raise BadArgument("count", "0 is out of range")
    return {name: count}


def test_a_runner_that_fails_says_so_in_one_line_and_a_code():
    __context__.clear()

    assert face("a", __pub_user="root") == {"a": 1}
    assert __context__ == {}
    assert face("a", count=0) == {
        "outputter": "virt_plan",
        "data": {"error": "count: 0 is out of range", "retcode": 1},
    }
    assert __context__ == {"retcode": 1}


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), (("a", 1, 2), {}), (("a",), {"cuont": 2})])
def test_wrong_arguments_of_a_runner_are_an_error_not_a_help_page(args, kwargs):
    answer = face(*args, **kwargs)["data"]

    assert answer["retcode"] == 1
    assert answer["error"].startswith("virt.face: ")
    assert "salt-run -d virt.face" in answer["error"]


def test_a_key_is_accepted_for_one_id_and_taken_back(opts):
    public, private = keypair.generate()
    store = compat.KeyStore(opts)

    keys.accept(opts, "vm1", public)

    assert store.read("vm1") == ("accepted", public)
    assert store.read("vm2") == (None, None)
    with pytest.raises(NameTaken, match="'vm1' is accepted"):
        keys.refuse_taken(opts, "vm1")
    keys.discard(opts, "vm1", keypair.generate()[0])
    assert store.read("vm1")[0] == "accepted"
    keys.discard(opts, "vm1", public)
    assert store.read("vm1") == (None, None)
    assert "PRIVATE" in private


def test_a_key_that_waits_under_the_id_of_a_new_vm_does_not_win(opts):
    squatter, ours = keypair.generate()[0], keypair.generate()[0]
    store = compat.KeyStore(opts)
    if store._cache is None:
        (Path(opts["pki_dir"]) / "minions_pre" / "vm1").write_text(squatter)
    else:
        store._cache.store("keys", "vm1", {"pub": squatter, "state": "pending"})
    assert store.read("vm1") == ("pending", squatter)

    keys.refuse_taken(opts, "vm1")
    keys.accept(opts, "vm1", ours)

    assert store.read("vm1") == ("accepted", ours)


def die_holding(opts, public):
    """Deploy half-way, then end without a word."""
    import os

    with journal.opened(opts, "vm1") as entry:
        entry.note({"name": "vm1", "public_key": public, "host": "hyper2"})
        keys.accept(opts, "vm1", public)
        os._exit(9)


def test_the_key_of_a_deployment_that_was_killed_is_taken_back_by_the_next(opts):
    public = keypair.generate()[0]
    process = multiprocessing.get_context("fork").Process(target=die_holding, args=(opts, public))
    process.start()
    process.join()
    assert compat.KeyStore(opts).read("vm1")[0] == "accepted"

    with journal.opened(opts, "vm1") as entry:
        entry.take_back(opts, {"hyper1"})
        assert compat.KeyStore(opts).read("vm1") == (None, None)


def test_the_key_of_a_vm_that_may_live_on_a_silent_host_stays(opts):
    public = keypair.generate()[0]
    process = multiprocessing.get_context("fork").Process(target=die_holding, args=(opts, public))
    process.start()
    process.join()

    for _again in range(2):
        with (
            journal.opened(opts, "vm1") as entry,
            pytest.raises(NameTaken, match="may be on hyper2, which does not answer"),
        ):
            entry.take_back(opts, {"hyper2"})
    assert compat.KeyStore(opts).read("vm1") == ("accepted", public)
    with journal.opened(opts, "vm1") as entry:
        entry.take_back(opts, set())
    assert compat.KeyStore(opts).read("vm1") == (None, None)


def test_two_deployments_of_one_name_do_not_go_together(opts):
    with (
        journal.opened(opts, "vm1"),
        pytest.raises(NameTaken, match="by another salt-run"),
        journal.opened(opts, "vm1"),
    ):
        pass


def test_the_table_of_a_deployment_says_why_not():
    table = deploy.table([Verdict(host="a", score=0.5), Verdict(host="b", reasons=("full",))])

    assert table == {
        "a": {"fits": True, "score": 0.5, "reasons": []},
        "b": {"fits": False, "score": 0.0, "reasons": ["full"]},
    }


@pytest.mark.parametrize(
    ("given", "seeded"),
    [
        ({"image": "salt://a"}, True),
        ({"image": "salt://a", "seed": False}, False),
        ({"disks": {"system": {"image": "salt://a"}}}, True),
        ({"disks": [{"name": "data", "size": 1, "overlay_image": True}]}, False),
        ({}, False),
    ],
)
def test_a_key_is_made_only_for_a_guest_that_is_seeded(given, seeded):
    assert deploy._is_seeded(given) is seeded


class LateMaster:
    """Stand for Salt's client: a return that is late cannot be had of a real minion at will."""

    def __init__(self, said_s):
        self.event, self._said_at = self, time.monotonic() + said_s

    def subscribe(self, tag):
        """Take in what is wanted."""

    def pub(self, targets, fun, arg, **_options):
        """Send a job to all its targets."""
        return {"jid": "1", "minions": targets}

    def get_event(self, wait, tag, full):
        """Return the answer once it is said."""
        time.sleep(min(wait, 0.05))
        if time.monotonic() < self._said_at:
            return None
        data = {"id": "hyper1", "return": "built", "retcode": 0, "success": True}
        return {"tag": "salt/job/1/ret/hyper1", "data": data}


@pytest.mark.parametrize(
    ("find_job", "is_heard"),
    [
        ({"hyper1": minions.Reply(minion="hyper1", value={})}, True),
        ({"hyper1": minions.Reply(minion="hyper1", missing=True)}, False),
    ],
    ids=["ended", "silent"],
)
def test_the_answer_of_a_job_that_has_ended_is_waited_for(monkeypatch, find_job, is_heard):
    late = LateMaster(said_s=2)
    monkeypatch.setattr(minions, "client", lambda opts: contextlib.nullcontext(late))
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: find_job)

    reply = minions.order({}, "hyper1", "virt.init", [], {}, timeout_s=0.1, limit_s=60, watch=None)

    assert (reply.missing, reply.value) == ((False, "built") if is_heard else (True, None))
