"""What a cell tells the top of its own jobs: what its own master has stored of them."""

import contextlib
from types import SimpleNamespace

from saltvirt.config import MasterSettings
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
