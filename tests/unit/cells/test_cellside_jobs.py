"""What a cell tells the top about its own jobs: the answers that they have stored."""

import contextlib
import os
import time
from types import SimpleNamespace

from saltvirt.cells import cellside
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.core.options.config import MasterSettings

JID = "20261124202137000000"


def test_a_return_of_a_minion_is_not_the_answer_of_a_runners_job(opts, monkeypatch):
    """A minion can return to each job, as a syndic does, and in the name of the master."""
    forged = {"ret": {"fun": "runner.virt.purge", "return": "forged"}}
    client = SimpleNamespace(get_cache_returns=lambda _jid: {"evil1": forged, opts["id"]: forged})
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(client))
    monkeypatch.setattr(cellside, "_BEGIN_S", 0)
    cloud = Cloud(opts=opts, settings=MasterSettings(), progress=print)

    assert cellside.job(cloud, JID, 1)["state"] == "lost"
    cellside.keep_answer(opts, JID, {"web": "purged"})
    assert cellside.job(cloud, JID, 1) == {"state": "over", "answer": {"web": "purged"}}


def test_old_answers_are_forgotten(opts):
    for age_s, jid in ((0, JID), (23 * 3600, f"{JID}_1"), (25 * 3600, f"{JID}_2")):
        cellside.keep_answer(opts, jid, 1)
        os.utime(cellside._answer_path(opts, jid), 2 * (time.time() - age_s,))
    cellside.keep_answer(opts, f"{JID}_3", None)

    answers = [cellside._read_answer(opts, f"{JID}{end}") for end in ("", "_1", "_2", "_3")]
    assert answers == [(1,), (1,), None, (None,)]
    assert cellside._answer_path(opts, JID).stat().st_mode & 0o077 == 0


def test_a_job_that_ends_late_in_a_turn_has_time_to_leave_its_answer(opts, monkeypatch):
    """A job stores its answer after its function has ended and its lock is released."""
    at = [0.0]
    clock = SimpleNamespace(monotonic=lambda: at[0], sleep=lambda s: at.__setitem__(0, at[0] + s))
    answered = lambda *_job: ({"web": "purged"},) if at[0] > 18 else None  # noqa: E731
    monkeypatch.setattr(cellside, "_read_answer", answered)
    monkeypatch.setattr(cellside, "time", clock)
    monkeypatch.setattr(cellside.locks, "is_held", lambda _path: at[0] < 17)
    cloud = Cloud(opts=opts, settings=MasterSettings(), progress=print)

    assert cellside.job(cloud, JID, 20) == {"state": "over", "answer": {"web": "purged"}}


def test_only_names_last_seen_on_a_host_are_searched_there(cloud, monkeypatch):
    master, searched_names, original_locate = cloud.master, [], cellside.locate

    def locate(cloud_, name, purpose, **options):
        searched_names.append(name)
        return original_locate(cloud_, name, purpose, **options)

    monkeypatch.setattr(cellside, "locate", locate)
    monkeypatch.setattr(inventory, "allowed_hosts", cloud.hosts.names)
    cloud.hosts.put("hyper1", "web1")
    lastseen.record_move(master.opts, "web2", "hyper3")
    cloud.hosts.silence("hyper3")

    reports = cellside.find(master, [f"web{n}" for n in range(1, 101)])

    assert sorted(searched_names) == ["web1", "web2"]
    assert reports["web1"]["hosts"] == {"hyper1": "running"}
    assert reports["web2"]["may_have"] == {"hyper3": "does not answer"}
    nowhere = {"hosts": {}, "traces": [], "may_have": {}, "order": None}
    assert all(reports[f"web{n}"] == nowhere for n in range(3, 101))
