"""Orders that wait in a host's queue, and would run after the master has cancelled them."""

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


def test_a_cancelled_build_is_not_carried_out_later(cloud):
    cloud.hosts.is_queueing("virt.init")
    with pytest.raises(HostCommandFailed):
        cloud.init(host="hyper1")
    assert key(cloud) is None and is_tidy(cloud)
    cloud.hosts.queues = None
    cloud.init(host="hyper2")

    with pytest.raises(VirtError, match=GIVEN_UP):
        cloud.hosts.late()

    assert cloud.hosts.where("web") == ["hyper2"] and key(cloud)


@pytest.mark.parametrize("first_answers", [[None], [minions.RUNNING] * 2, [None, minions.RUNNING]])
def test_a_busy_host_is_asked_again_to_refuse_the_order(cloud, monkeypatch, first_answers):
    def build(_host, _name, *_args, **_kwarg):
        raise KeyboardInterrupt

    cloud.hosts.does["virt.init"] = build
    answers = iter([*first_answers, minions.REFUSED])
    monkeypatch.setattr(minions, "refuse", lambda *_args: next(answers))
    monkeypatch.setattr(hostbuild, "_UNDOING_S", (0,) * 3)

    with pytest.raises(KeyboardInterrupt):
        cloud.init()
    assert key(cloud) is None and is_tidy(cloud) and next(answers, None) is None


@pytest.mark.parametrize("command", ["init", "purge"])
def test_a_killed_masters_order_is_refused_before_it_is_settled(cloud, kill_at, command):
    kill_at("order.ordered", cloud.init, host="hyper1")
    order_id = _noted(cloud)

    if command == "init":
        cloud.init(host="hyper2")
    else:
        with pytest.raises(VirtError):
            cloud.purge()

    assert answering.refuse_order(cloud.hosts.settings("hyper1"), order_id) == "refused"


def _noted(cloud):
    return records.read_record(orders.folder(cloud.opts), "order", "web").facts["order_id"]


def test_a_cancelled_purge_removes_no_later_vm(cloud):
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


@pytest.mark.parametrize("answer", [None, "running"])
def test_an_order_that_may_still_be_done_is_kept_with_its_key(cloud, monkeypatch, answer):
    cloud.hosts.is_queueing("virt.init")
    monkeypatch.setattr(minions, "refuse", lambda *_args: answer)
    with pytest.raises(HostUnresponsive, match="may still be made, or be left, on hyper1"):
        cloud.init(host="hyper1")
    key_before = key(cloud)
    cloud.hosts.queues = None

    for command in (cloud.init, cloud.purge):
        with pytest.raises(NameTaken, match=r"it may be on hyper1 \(it "):
            command()

    assert key_before and (key(cloud), left(cloud)) == (key_before, "ordered")
    if answer is None:
        assert cloud.init(host="hyper2", force=True)["host"] == "hyper2"
        return
    # The host answers, so it is not skipped.
    with pytest.raises(NameTaken, match="it may be on hyper1"):
        cloud.init(host="hyper2", force=True)
    cloud.hosts.late()
    assert cloud.hosts.where("web") == ["hyper1"]


def test_a_late_purge_of_one_master_removes_no_vm_that_another_has_made_since(cloud, tmp_path):
    cloud.init(host="hyper1")
    # The first master is killed while its order waits in the host's queue, so it is not refused.
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
