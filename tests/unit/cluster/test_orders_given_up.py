"""Orders that a host has queued, and would do after the master has given them up."""

from dataclasses import replace

import fleetkit
import pytest
from fleetkit import is_tidy, key, left
from saltvirt.cluster import orders
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, HostUnresponsive
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.core.journal import records
from saltvirt.core.salt import answering
from saltvirt.vm.create.master import deploy, hostbuild
from saltvirt.vm.purge.master import purging

GIVEN_UP = "the master has given this order up"


def test_a_vm_that_was_given_up_is_not_made_later(cloud):
    cloud.hosts.is_queueing("virt.init")
    with pytest.raises(HostCommandFailed):
        cloud.init(host="hyper1")
    assert key(cloud) is None and is_tidy(cloud)
    cloud.hosts.queues = None
    cloud.init(host="hyper2")

    with pytest.raises(VirtError, match=GIVEN_UP):
        cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper2"] and key(cloud)


@pytest.mark.parametrize("before", [[None], [minions.RUNNING] * 2, [None, minions.RUNNING]])
def test_a_busy_host_is_asked_again_whether_it_has_given_up(cloud, monkeypatch, before):
    def build(_host, _name, *_args, **_kwarg):
        raise KeyboardInterrupt

    cloud.hosts.does["virt.init"] = build
    says = iter([*before, minions.REFUSED])
    monkeypatch.setattr(minions, "refuse", lambda *_args: next(says))
    monkeypatch.setattr(hostbuild, "_UNDOING_S", (0,) * 3)

    with pytest.raises(KeyboardInterrupt):
        cloud.init()
    assert key(cloud) is None and is_tidy(cloud) and next(says, None) is None


@pytest.mark.parametrize("again", ["init", "purge"])
def test_a_killed_masters_order_is_refused_before_it_is_settled(cloud, kill_at, again):
    kill_at("order.ordered", cloud.init, host="hyper1")
    order_id = _noted(cloud)

    if again == "init":
        cloud.init(host="hyper2")
    else:
        with pytest.raises(VirtError):
            cloud.purge()

    assert answering.refuse_order(cloud.hosts.settings("hyper1"), order_id) == "refused"


def _noted(cloud):
    return records.read_record(orders.folder(cloud.opts), "order", "web").facts["order_id"]


def test_a_purge_that_was_given_up_removes_no_later_vm(cloud):
    cloud.init(host="hyper1")
    cloud.hosts.is_queueing("virt.purge")
    with pytest.raises(HostUnresponsive, match="run salt-run virt.purge web again"):
        cloud.purge()
    cloud.hosts.queues = None
    cloud.purge()
    cloud.init(host="hyper1")

    with pytest.raises(VirtError, match=GIVEN_UP):
        cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper1"] and key(cloud)


@pytest.mark.parametrize("said", [None, "running"])
def test_an_order_that_may_still_be_done_is_kept_with_its_key(cloud, monkeypatch, said):
    cloud.hosts.is_queueing("virt.init")
    monkeypatch.setattr(minions, "refuse", lambda *_args: said)
    with pytest.raises(HostUnresponsive, match="may still be made, or be left, on hyper1"):
        cloud.init(host="hyper1")
    before = key(cloud)
    cloud.hosts.queues = None

    for command in (cloud.init, cloud.purge):
        with pytest.raises(NameTaken, match=r"it may be on hyper1 \(it "):
            command()

    assert before and (key(cloud), left(cloud)) == (before, "ordered")
    if said is None:
        assert cloud.init(host="hyper2", force=True)["host"] == "hyper2"
        return
    # It answers, so it is not to be passed over.
    with pytest.raises(NameTaken, match="it may be on hyper1"):
        cloud.init(host="hyper2", force=True)
    cloud.hosts.late()
    assert cloud.hosts.where("web") == ["hyper1"]


def test_a_late_purge_of_one_master_removes_no_vm_that_another_has_made_since(cloud, tmp_path):
    cloud.init(host="hyper1")
    # The first master is killed while this waits in the host's queue, so nobody refuses it.
    cloud.hosts.is_queueing("virt.purge")
    with pytest.raises(HostUnresponsive):
        cloud.purge()
    cloud.hosts.queues = None
    second = replace(cloud.master, opts={**cloud.opts, "cachedir": str(tmp_path / "second")})
    purging.purge(second, "web", True)
    deploy.deploy(second, fleetkit.request(image="salt://a", host="hyper1"))

    with pytest.raises(VirtError, match="is another one here"):
        cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper1"]
