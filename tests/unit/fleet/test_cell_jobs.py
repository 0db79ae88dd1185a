"""What a cell tells the top of its own jobs: what its own master has stored of them."""

import contextlib
from types import SimpleNamespace

from saltvirt.config import MasterSettings
from saltvirt.fleet import hints, inventory
from saltvirt.fleet.cells import here
from saltvirt.fleet.cloud import Cloud


def test_what_a_minion_has_returned_to_a_job_of_the_runner_is_not_its_answer(opts, monkeypatch):
    """Played: any minion may return something to any job whose id it knows."""
    jid, ours = "20261124202137000000", {"fun": "runner.virt.purge", "return": {"web": "purged"}}
    kept = {"evil1": {"ret": {"fun": "runner.virt.purge", "return": "forged"}}}
    client = SimpleNamespace(get_cache_returns=lambda _jid: kept)
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(client))
    monkeypatch.setattr(here, "_BEGIN_S", 0)
    cloud = Cloud(opts=opts, settings=MasterSettings(), progress=print)

    assert here.job(cloud, jid, 1)["state"] == "lost"
    kept[opts["id"]] = {"ret": ours}
    assert here.job(cloud, jid, 1) == {"state": "over", "answer": {"web": "purged"}}


def test_a_job_that_ends_late_in_a_turn_has_time_to_leave_its_answer(opts, monkeypatch):
    """Salt keeps an answer after the function is over, and after its lock has gone."""
    jid, at = "20261124202137000000", [0.0]
    clock = SimpleNamespace(monotonic=lambda: at[0], sleep=lambda s: at.__setitem__(0, at[0] + s))
    ours = {"ret": {"fun": "runner.virt.purge", "return": {"web": "purged"}}}
    said = lambda _jid: {opts["id"]: ours} if at[0] > 18 else {}  # noqa: E731
    client = SimpleNamespace(get_cache_returns=said)
    monkeypatch.setattr(Cloud, "client", lambda _self: contextlib.nullcontext(client))
    monkeypatch.setattr(here, "time", clock)
    monkeypatch.setattr(here.locks, "is_held", lambda _path: at[0] < 17)
    cloud = Cloud(opts=opts, settings=MasterSettings(), progress=print)

    assert here.job(cloud, jid, 20) == {"state": "over", "answer": {"web": "purged"}}


def test_of_many_names_only_those_that_were_heard_of_are_looked_for_further(cloud, monkeypatch):
    master, looked_for, usual = cloud.master, [], inventory.unheard

    def unheard(cloud_, found, name, *args):
        looked_for.append(name)
        return usual(cloud_, found, name, *args)

    monkeypatch.setattr(inventory, "unheard", unheard)
    monkeypatch.setattr(inventory, "allowed", cloud.hosts.names)
    cloud.hosts.put("hyper1", "web1")
    hints.moved(master.opts, "web2", "hyper3")
    cloud.hosts.silence("hyper3")

    told = here.find(master, [f"web{n}" for n in range(1, 101)])

    assert sorted(looked_for) == ["web1", "web2"]
    assert told["web1"]["hosts"] == {"hyper1": "running"}
    assert told["web2"]["may_have"] == {"hyper3": "does not answer"}
    nowhere = {"hosts": {}, "traces": [], "may_have": {}, "order": None}
    assert all(told[f"web{n}"] == nowhere for n in range(3, 101))
