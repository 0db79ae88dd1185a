"""Purges that were cut off, and what other commands have left of a VM."""

import pytest
from fleetkit import die, is_tidy, key, killed, left
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.core.journal.recordfacts import MoveOrderFacts, OrderFacts
from saltvirt.migration.master import recovery
from saltvirt.vm.create.master import hostbuild


def test_a_purge_killed_before_the_keys_deletion_is_finished_by_the_next(cloud):
    cloud.init()

    def remove(host, name, **_kwarg):
        cloud.hosts.remove(host, name)
        die()

    cloud.hosts.does["virt.purge"] = remove
    killed(cloud.purge)
    assert cloud.hosts.where("web") == [] and key(cloud) and left(cloud) == "removing"

    done = cloud.purge()

    assert done == {"hyper1": {"web": "purged; its minion key is deleted now"}}
    assert key(cloud) is None and is_tidy(cloud)
    with pytest.raises(NoSuchVm):
        cloud.purge()


def test_the_key_of_a_foreign_minion_is_not_deleted_by_the_end_of_a_purge(cloud, kill_at):
    cloud.init()
    kill_at("order.removing", cloud.purge)
    cloud.hosts.remove("hyper1", "web")
    foreign = keypair.generate()[0]
    minionkeys.accept(cloud.opts, "web", foreign)

    assert cloud.purge() == {"hyper1": {"web": "purged; its minion key is gone too"}}

    assert key(cloud) == foreign.strip() and is_tidy(cloud)


def test_a_key_that_shall_stay_stays_when_a_purge_is_finished(cloud, kill_at):
    cloud.init()
    before = key(cloud)
    kill_at("order.removing", cloud.purge)
    cloud.hosts.remove("hyper1", "web")

    cloud.purge(delete_key=False)

    assert key(cloud) == before and is_tidy(cloud)


def test_a_purge_killed_before_anything_was_removed_begins_again(cloud, kill_at):
    cloud.init()
    kill_at("order.removing", cloud.purge)

    assert cloud.purge() == {"hyper1": {"web": "purged"}}
    assert key(cloud) is None and is_tidy(cloud)


def test_a_new_vm_of_the_name_finishes_the_purge_of_the_old_one(cloud, kill_at):
    cloud.init()
    before = key(cloud)
    kill_at("order.removing", cloud.purge)
    cloud.hosts.remove("hyper1", "web")

    cloud.init()

    assert key(cloud) not in (None, before) and is_tidy(cloud)


def test_a_purge_that_its_host_refuses_leaves_no_order(cloud):
    cloud.init()

    def remove(*_args, **_kwarg):
        raise ValueError("it is being moved")

    cloud.hosts.does["virt.purge"] = remove
    with pytest.raises(hostbuild.HostCommandFailed, match="hyper1: it is being moved"):
        cloud.purge()
    assert key(cloud) and is_tidy(cloud)


@pytest.mark.parametrize(
    ("error", "why"), [(KeyboardInterrupt, "interrupted"), ("silent", "does not answer")]
)
def test_a_purge_that_was_cut_off_says_that_the_next_one_goes_on(cloud, error, why):
    cloud.init()

    def remove(host, _name, **_kwarg):
        if error == "silent":
            return cloud.hosts.silence(host)
        raise error

    cloud.hosts.does["virt.purge"] = remove
    with pytest.raises(
        hostbuild.HostCommandFailed, match=f"{why}.* run salt-run virt.purge web again"
    ):
        cloud.purge()
    assert key(cloud) and left(cloud) == "removing"
    if error == "silent":
        with pytest.raises(NameTaken, match="virt.purge of VM 'web' cannot be finished yet: it"):
            cloud.purge()


@pytest.mark.slow
def test_two_commands_for_one_vm_do_not_go_together(cloud, monkeypatch):
    monkeypatch.setattr(orders, "_END_S", 0.3)
    with orders.opened(cloud.opts, "web") as order:
        orders.begin(order, orders.REMOVING, OrderFacts(host="hyper1"))
        for command in (cloud.init, cloud.purge):
            with pytest.raises(NameTaken, match="'web' is being removed by another salt-run"):
                command()
        order.end()


@pytest.mark.parametrize("command", ["init", "purge"])
@pytest.mark.parametrize("can", [True, False])
def test_a_move_that_was_cut_off_is_settled_first(cloud, monkeypatch, command, can):
    cloud.init()
    with orders.opened(cloud.opts, "web") as order:
        orders.begin_move(order, "t1", MoveOrderFacts(source="hyper1", target="hyper2"))

    def settle(_cloud, held):
        if held.now.phase != orders.MOVING or not can:
            raise recovery.Unsettled("hyper2 has not ended yet")
        cloud.hosts.remove("hyper1", "web")
        cloud.hosts.put("hyper2", "web")
        held.end()

    monkeypatch.setattr(recovery, "settle_order", settle)
    why, error = "hyper2 has not ended yet", recovery.Unsettled
    if can and command == "init":
        why, error = "'web' is on hyper2 already", NameTaken
    if can and command == "purge":
        assert cloud.purge() == {"hyper2": {"web": "purged"}}
    else:
        with pytest.raises(error, match=why):
            getattr(cloud, command)()
    assert left(cloud) == (None if can else "moving")


def test_a_kept_definition_does_not_cost_the_vm_that_moved_on_its_key(cloud):
    cloud.init()
    before = key(cloud)
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="hyper2")
    cloud.hosts.put("hyper2", "web")
    inventory.overview(cloud.master, "virt.host_info")  # it is seen where it is
    cloud.hosts.silence("hyper2")

    with pytest.raises(
        hostbuild.HostCommandFailed, match="hyper2 may have it and .*hyper1 virt.undefine web "
    ):
        cloud.purge()

    assert cloud.hosts.where("web") == ["hyper1", "hyper2"] and key(cloud) == before
    assert is_tidy(cloud)

    # Where it really is, it is removed; and what was left behind when it is nowhere else.
    cloud.hosts.silence("hyper2", False)
    assert cloud.purge() == {"hyper2": {"web": "purged"}}
    assert cloud.purge() == {"hyper1": {"web": "purged"}} and key(cloud) is None


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_vm_that_moved_on_from_where_its_definition_says_keeps_its_key(cloud, is_seen):
    cloud.init()
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="hyper3" if is_seen else "hyper2")
    cloud.hosts.put("hyper3" if is_seen else "hyper2", "web")
    if is_seen:
        inventory.overview(cloud.master, "virt.host_info")
    cloud.hosts.silence("hyper3" if is_seen else "hyper2")

    with pytest.raises(
        hostbuild.HostCommandFailed, match="so nothing is removed, not even its minion key"
    ):
        cloud.purge()


def kept(cloud, is_purged=True):
    """Have a VM that has moved on, and may be purged since, of which hyper1 kept the definition."""
    cloud.init()
    for host in cloud.hosts.where("web"):
        cloud.hosts.remove(host, "web")
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="hyper2")
    if not is_purged:
        cloud.hosts.put("hyper2", "web")


@pytest.mark.parametrize("host", ["hyper2", "hyper3"])
def test_a_name_is_not_given_away_beside_a_kept_definition(cloud, host):
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="hyper2")
    cloud.hosts.put(host, "web")
    cloud.hosts.silence(host)

    with pytest.raises(NameTaken, match=f"may be on {host}"):
        cloud.init(image=None)

    assert cloud.hosts.where("web") == sorted(["hyper1", host])


def test_a_kept_definition_named_by_an_address_can_be_purged(cloud):
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="10.0.0.12")

    assert cloud.purge() == {"hyper1": {"web": "purged"}}


@pytest.mark.parametrize("image", ["salt://a.qcow2", None])
def test_an_interrupted_deployment_beside_a_kept_definition_is_taken_back(cloud, image):
    cloud.hosts.put("hyper1", "web", "shutdown", moved_to="hyper2")
    cloud.hosts.does["virt.init"] = die
    killed(cloud.init, host="hyper3")
    assert left(cloud) == "ordered" and key(cloud)
    cloud.hosts.does["virt.init"] = cloud.hosts.build

    cloud.init(host="hyper3", image=image)

    assert is_tidy(cloud) and bool(key(cloud)) is bool(image)


def test_an_interrupted_purge_beside_a_kept_definition_deletes_that_key_and_no_other(
    cloud, monkeypatch
):
    kept(cloud, is_purged=False)
    with monkeypatch.context() as dying:
        dying.setattr(minionkeys, "delete", lambda *_args: die())
        killed(cloud.purge)
    assert cloud.hosts.where("web") == ["hyper1"] and left(cloud) == "removing"
    minionkeys.discard(cloud.opts, "web", key(cloud))
    other = keypair.generate()[0]
    minionkeys.accept(cloud.opts, "web", other)

    cloud.purge()

    assert key(cloud) == other.strip() and cloud.hosts.where("web") == []


def test_the_key_of_an_interrupted_purge_goes_though_a_kept_definition_cannot(cloud, monkeypatch):
    kept(cloud, is_purged=False)
    with monkeypatch.context() as dying:
        dying.setattr(minionkeys, "delete", lambda *_args: die())
        killed(cloud.purge)

    def refuse(_host, _name, **_kwarg):
        raise hostbuild.VirtError("its files are on storage that all hosts share")

    cloud.hosts.does["virt.purge"] = refuse
    with pytest.raises(hostbuild.HostCommandFailed, match="storage that all hosts share"):
        cloud.purge()

    assert key(cloud) is None


def test_the_key_of_a_vm_that_moved_on_stays_while_any_host_is_silent(cloud):
    kept(cloud)
    before = key(cloud)
    cloud.hosts.silence("hyper3")

    with pytest.raises(hostbuild.HostCommandFailed, match="hyper3 may have it"):
        cloud.purge()

    assert key(cloud) == before
