"""A host that says it is the source of a move of others, whose master has lost its own record."""

import playedhosts
import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import files
from saltvirt.core.journal import records
from saltvirt.migration.master import migrate, recovery, settle


class Killed(BaseException):
    """Nobody catches it: the runner is gone, as it is when it is killed."""


@pytest.fixture(params=["shutdown", "running"])
def state(request):
    """How the VM was."""
    return request.param


@pytest.fixture(params=[("h2", "virt.migrate"), ("h3", "virt.migrate_step arrive")])
def lying(opts, monkeypatch, request, state):
    """Web has come from h2 to h3, by a runner that was killed then; h1 says that it sends it."""
    made = playedhosts.clouds(monkeypatch)(3)
    made.put("web", "h2", autostart=True, state=state)
    for host in made.hosts:
        minionkeys.accept(opts, host, "a key")

    def kill():
        raise Killed

    made.after[request.param] = kill
    master = Cloud(opts=opts, settings=made, progress=lambda *_args, **_figures: None)
    with pytest.raises(Killed):
        migrate.migrate(master, "web", "h3", {}, "h2")
    made.after.clear()
    token = made.arrivals["h3", "web"]["token"]
    # It is of another master, or its cache was lost.
    for path in (orders.folder(opts) / orders.PURPOSE).iterdir():
        files.unlink(path)
    assert records.read_record(orders.folder(opts), orders.PURPOSE, "web") is None
    made.departures["h1", "web"] = {
        "phase": "cancelled",
        "token": token,
        "target": "h3",
        "autostart": True,
        "was": True,
    }
    made.master = master
    return made


def test_a_host_that_lies_does_not_have_what_has_come_to_another_removed(lying):
    assert lying.where("web") == ["h3"]

    with pytest.raises(recovery.Unsettled, match="from h2 to h3 .*from h1 to h3.*virt.disallow"):
        settle.settle_all(lying.master, "web")

    assert lying.where("web") == ["h3"]


def test_once_it_is_shut_out_the_move_is_settled(lying):
    del lying.departures["h1", "web"]

    settle.settle_all(lying.master, "web")

    assert lying.where("web") == ["h3"] and lying.is_settled()
