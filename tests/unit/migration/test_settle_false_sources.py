"""A host claims to be the source of another hosts' move; their master has lost its record."""

import playedhosts
import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import files
from saltvirt.core.journal import records
from saltvirt.migration.master import migrate, recovery, settle


class Killed(BaseException):
    """A kill of the runner: no ``except`` of the runner catches it."""


@pytest.fixture(params=["shutdown", "running"])
def state(request):
    """The state of the VM."""
    return request.param


@pytest.fixture(params=[("h2", "virt.migrate"), ("h3", "virt.migrate_step arrive")])
def cloud_with_liar(opts, monkeypatch, request, state):
    """Web came from h2 to h3, by a runner that was killed; h1 claims to send it."""
    cloud = playedhosts.clouds(monkeypatch)(3)
    cloud.put("web", "h2", autostart=True, state=state)
    for host in cloud.hosts:
        minionkeys.accept(opts, host, "a key")

    def kill():
        raise Killed

    cloud.after[request.param] = kill
    master = Cloud(opts=opts, settings=cloud, progress=lambda *_args, **_figures: None)
    with pytest.raises(Killed):
        migrate.migrate(master, "web", "h3", {}, "h2")
    cloud.after.clear()
    token = cloud.arrivals["h3", "web"]["token"]
    # The order was another master's, or the cache was lost.
    for path in (orders.folder(opts) / orders.PURPOSE).iterdir():
        files.unlink(path)
    assert records.read_record(orders.folder(opts), orders.PURPOSE, "web") is None
    cloud.departures["h1", "web"] = {
        "phase": "cancelled",
        "token": token,
        "target": "h3",
        "autostart": True,
        "was": True,
    }
    cloud.master = master
    return cloud


def test_a_false_source_does_not_get_an_arrived_vm_removed(cloud_with_liar):
    assert cloud_with_liar.where("web") == ["h3"]

    with pytest.raises(recovery.Unsettled, match="from h2 to h3 .*from h1 to h3.*virt.disallow"):
        settle.settle_all(cloud_with_liar.master, "web")

    assert cloud_with_liar.where("web") == ["h3"]


def test_once_it_is_shut_out_the_move_is_settled(cloud_with_liar):
    del cloud_with_liar.departures["h1", "web"]

    settle.settle_all(cloud_with_liar.master, "web")

    assert cloud_with_liar.where("web") == ["h3"] and cloud_with_liar.is_settled()
