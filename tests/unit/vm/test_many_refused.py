"""What virt.init_many says of VMs that have no place: why of each host, and what helps."""

import fleetkit
import pytest
from saltvirt.cluster import orders
from saltvirt.core.errors import ReservationRefused, VirtError
from saltvirt.vm.create.master.many import manyrequest, run
from saltvirt.vm.create.master.many.manyrequest import Call, NotAllBuilt


def call(*vms, **terms):
    """Return a call for some VMs of one CPU and one MiB, unless they say otherwise."""
    usual = {"cpu": 1, "mem": 1, "image": "salt://a.qcow2"}
    listed = manyrequest.parse_list(list(vms), usual)
    requests = manyrequest.parse_requests(listed, fleetkit.terms(**terms))
    return Call(requests=requests, per_host=2, max_parallel=8)


def refusing(cloud, error):
    """Have all hosts refuse, or fail, to build."""

    def build(_host, name, *_args, **_kwargs):
        raise error(name)

    cloud.hosts.does["virt.init"] = build


def test_it_is_said_what_helps_of_a_plan_and_of_a_build_each_once(cloud):
    large = [{"name": name, "mem": 10**6} for name in ("big1", "big2")]
    less = "less memory, or more to hand out: virt:memory_ratio, virt:capacity"
    with pytest.raises(NotAllBuilt, match=f"; what helps: {less}$") as caught:
        run.dry_run(cloud.master, call(*large))
    assert caught.value.table["helps"] == [less]
    assert all("what helps" not in why for why in caught.value.table["failed"].values())

    more = "; what helps: look there"
    refusing(cloud, lambda name: ReservationRefused(name, ["in maintenance"], more))
    told = f"; what helps: {less}; salt-run virt.maintenance HOST off, or virt.restore HOST$"
    with pytest.raises(NotAllBuilt, match=told) as caught:
        run.deploy_many(cloud.master, call("a", large[0]))
    assert len(caught.value.table["helps"]) == 2


def test_of_what_is_no_refusal_nothing_is_said_to_help(cloud):
    refusing(cloud, lambda _name: VirtError("no space left"))
    with pytest.raises(NotAllBuilt, match="builds those alone$") as caught:
        run.deploy_many(cloud.master, call("b"))

    assert "helps" not in caught.value.table


def test_a_host_that_is_not_asked_for_is_never_called_in_maintenance(cloud):
    refusing(cloud, lambda name: ReservationRefused(name, ["no room"]))
    with pytest.raises(NotAllBuilt, match=r"no room \(hyper2\)") as caught:
        run.deploy_many(cloud.master, call("a", host="hyper2"))

    assert "not the host asked for (hyper2) (hyper1, hyper3)" in str(caught.value)
    assert "maintenance" not in str(caught.value)


def test_a_move_that_cannot_be_settled_yet_keeps_no_other_from_being_built(cloud):
    """web2 was on its way from hyper1 to hyper2, which has lost its power."""
    cloud.hosts.put("hyper1", "web2")
    with orders.opened(cloud.opts, "web2") as order:
        order.begin("t-old", orders.MOVING, source="hyper1", target="hyper2")
    cloud.hosts.silence("hyper2")

    with pytest.raises(NotAllBuilt, match="1 of 3 VMs not built: web2") as caught:
        run.deploy_many(cloud.master, call("web1", "web2", "web3"))

    assert sorted(caught.value.table["built"]) == ["web1", "web3"]
    assert "the move of VM 'web2' from hyper1 to hyper2" in caught.value.table["failed"]["web2"]
    assert cloud.hosts.where("web2") == ["hyper1"]
