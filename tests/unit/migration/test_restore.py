"""A host is filled again; silent hosts, and VMs that moved meanwhile, are replaced."""

import errno

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.cluster import minionkeys
from saltvirt.cluster.inventory import inventory
from saltvirt.migration.master import evacuate, restore
from saltvirt.vm.create.master import hostbuild

HOME = {"max_parallel": 2}


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts."""
    return clouds(monkeypatch)


def test_a_restore_returns_only_vms_that_are_still_where_the_evacuation_left_them(cloud, run, opts):
    four = cloud(4)
    notes = {"back": ["h1"], "there": ["h1"], "onwards": ["h1"], "gone": ["h2"]}
    four.proved(opts, "h3", **notes)
    for name, host in (("back", "h3"), ("there", "h1"), ("onwards", "h2")):
        four.put(name, host)
    expected = {"host": "h3", "gone": ["gone"], "elsewhere": {"onwards": "h2"}}

    plan = run(restore.dry_run, four, "h3")
    assert plan == {**expected, "moves": {"there": "h3"}, "failed": {}}
    assert four.noted("h3") == notes
    result = run(restore.restore, four, "h3", **HOME)

    assert result == {**expected, "moved": {"there": "h3"}, "failed": {}, "warnings": {}}
    assert four.where("onwards") == ["h2"] and four.notes["h3"] == {}
    second_result = run(restore.restore, four, "h3", **HOME)
    assert [second_result[key] for key in ("moved", "failed", "gone", "elsewhere")] == [
        {},
        {},
        [],
        {},
    ]


def test_a_restore_forgets_no_vm_that_may_be_on_a_silent_host(cloud, run, opts):
    three = cloud(3)
    three.proved(opts, "h3", web1=["h1"], web2=["h2"])
    three.put("web1", "h1")
    three.put("web2", "h2")
    three.silent.add("h1")

    failures = run(restore.dry_run, three, "h3")["failed"]
    assert list(failures) == ["web1"]
    with pytest.raises(
        evacuate.NotAllMoved, match="web1 did not come back to h3; .* virt.restore h3"
    ) as excinfo:
        run(restore.restore, three, "h3", **HOME)

    assert table(excinfo)["failed"] == failures
    assert three.where("web2") == ["h3"] and three.noted("h3") == {"web1": ["h1"]}
    three.silent.clear()
    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


def test_a_restore_forgets_no_vm_that_its_hosts_libvirt_has_not_loaded(cloud, run, opts):
    three = cloud(3)
    three.proved(opts, "h3", web1=["h1"])
    three.not_loaded["h1"] = {"web1": "libvirt has not loaded /etc/libvirt/qemu/web1.xml"}

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(restore.restore, three, "h3", **HOME)

    assert table(excinfo)["failed"] == {"web1": "it is not on h1 any more; run this again"}
    assert table(excinfo)["gone"] == [] and three.noted("h3") == {"web1": ["h1"]}


def test_a_restore_forgets_no_vm_of_a_host_that_is_shut_out(cloud, run, opts, monkeypatch):
    three = cloud(3)
    three.put("web1", "h3")
    minionkeys.accept(opts, "h1", "a key")
    assert run(evacuate.evacuate, three, "h3", **HOW)["moved"] == {"web1": "h1"}
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h2", "h3"])

    with pytest.raises(evacuate.NotAllMoved, match="web1 did not come back to h3") as excinfo:
        run(restore.restore, three, "h3", **HOME)

    assert "not asked: h1" in table(excinfo)["failed"]["web1"] and table(excinfo)["gone"] == []
    assert three.noted("h3") == {"web1": ["h1"]}


def renamed(cloud, host, name, new_name):
    """Have a VM renamed on its host, as virt.rename and virsh domrename do: it keeps its UUID."""
    cloud.hosts[host][new_name] = {**cloud.hosts[host].pop(name), "name": new_name}


@pytest.mark.parametrize("is_name_taken", [False, True])
def test_a_vm_that_was_renamed_since_comes_home(cloud, run, is_name_taken):
    three = cloud(3)
    three.put("web1", "h3")
    three.refuses["h2"] = {"web1": ["it is full"]}
    assert run(evacuate.evacuate, three, "h3", **HOW)["moved"] == {"web1": "h1"}
    renamed(three, "h1", "web1", "shop1")
    if is_name_taken:
        three.put("web1", "h1", uuid="another")
    said = {"shop1": "it was called web1 when it was evacuated"}

    plan = run(restore.dry_run, three, "h3")
    assert (plan["moves"], plan["gone"], plan["elsewhere"]) == ({"shop1": "h3"}, [], {})
    assert plan["warnings"] == said and three.where("shop1") == ["h1"]
    done = run(restore.restore, three, "h3", **HOME)

    assert (done["moved"], done["gone"], done["elsewhere"]) == ({"shop1": "h3"}, [], {})
    assert done["warnings"] == said and three.where("shop1") == ["h3"]
    assert three.where("web1") == (["h1"] if is_name_taken else [])
    assert three.notes == {"h1": {}, "h2": {}, "h3": {}}


def test_a_renamed_vm_that_an_operator_moved_stays_there(cloud, run, opts):
    three = cloud(3)
    three.proved(opts, "h3", web1=["h1"], web2=["h1"])
    three.put("shop1", "h2", uuid="uuid of web1")
    three.put("shop2", "h3", uuid="uuid of web2")

    done = run(restore.restore, three, "h3", **HOME)

    assert (done["moved"], done["gone"], done["elsewhere"]) == ({}, [], {"shop1": "h2"})
    assert three.where("shop1") == ["h2"] and three.notes["h3"] == {}


def test_a_vm_that_a_host_may_have_by_another_name_is_not_forgotten(cloud, run, opts):
    three = cloud(3)
    three.proved(opts, "h3", web1=["h1"])
    three.put("shop1", "h1", uuid="uuid of web1")
    three.silent.add(("h1", "virt.migration_info"))

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(restore.restore, three, "h3", **HOME)

    assert "h1 cannot be asked for another name" in table(caught)["failed"]["web1"]
    assert table(caught)["gone"] == [] and three.noted("h3") == {"web1": ["h1"]}


def test_a_uuid_that_two_hosts_have_is_not_followed(cloud, run, opts):
    three = cloud(3)
    three.proved(opts, "h3", web1=["h1"])
    for host, name in (("h1", "shop1"), ("h2", "shop2")):
        three.put(name, host, uuid="uuid of web1")

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(restore.restore, three, "h3", **HOME)

    reason = "it is on h1 as shop1 and h2 as shop2 at this moment; run this again"
    assert table(caught)["failed"] == {"web1": reason} and three.noted("h3") == {"web1": ["h1"]}


def test_a_vm_that_two_evacuations_moved_comes_home_once(cloud, run):
    three = cloud(3)
    three.put("web1", "h1")
    three.refuses["h3"] = {"web1": ["it is full"]}
    assert run(evacuate.evacuate, three, "h1", **HOW)["moved"] == {"web1": "h2"}
    three.refuses = {"h1": {"web1": ["it is in maintenance"]}}
    assert run(evacuate.evacuate, three, "h2", **HOW)["moved"] == {"web1": "h3"}
    three.refuses = {}

    assert run(restore.restore, three, "h1", **HOME)["moved"] == {"web1": "h1"}

    second = run(restore.restore, three, "h2", **HOME)
    assert second["moved"] == second["elsewhere"] == {} and three.where("web1") == ["h1"]
    assert three.notes == {"h1": {}, "h2": {}, "h3": {}}


def test_a_vm_that_two_evacuations_moved_comes_back_step_by_step_too(cloud, run, opts):
    three = cloud(3)
    three.put("web1", "h3")
    three.proved(opts, "h1", web1=["h2", "h3"])
    three.proved(opts, "h2", web1=["h3"])

    assert run(restore.restore, three, "h2", **HOME)["moved"] == {"web1": "h2"}
    assert three.noted("h1") == {"web1": ["h2"]}
    assert run(restore.restore, three, "h1", **HOME)["moved"] == {"web1": "h1"}


def test_a_vm_comes_home_though_its_host_was_off_during_a_move(cloud, run, opts):
    three = cloud(3)
    three.put("web1", "h2")
    three.proved(opts, "h1", web1=["h2"])
    three.silent.add("h1")
    assert run(evacuate.evacuate, three, "h2", **HOW)["moved"] == {"web1": "h3"}
    assert three.noted("h1") == {"web1": ["h2"]}
    three.silent.clear()

    assert run(restore.restore, three, "h1", **HOME)["moved"] == {"web1": "h1"}


def test_a_vm_that_is_stopped_under_its_way_home_comes_home(cloud, run, opts):
    three, attempts = cloud(3), []
    three.put("web1", "h1")
    three.proved(opts, "h3", web1=["h1"])

    def stop_and_fail():
        attempts.append(1)
        if len(attempts) == 1:
            three.hosts["h1"]["web1"]["state"] = "shutdown"
            raise hostbuild.HostCommandFailed("h1: domain is not running")

    three.before["h1", "virt.migrate"] = stop_and_fail

    assert run(restore.restore, three, "h3", **HOME)["moved"] == {"web1": "h3"}


def test_a_home_that_refuses_is_asked_once(cloud, run, opts):
    three = cloud(3)
    three.put("web1", "h1")
    three.proved(opts, "h3", web1=["h1"])
    three.refuses["h3"] = {"web1": ["a file is there already"]}

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(restore.restore, three, "h3", **HOME)

    assert "a file is there already" in table(excinfo)["failed"]["web1"]
    assert three.asked.count(("h3", "virt.migrate_prepare")) == 1
    assert three.noted("h3") == {"web1": ["h1"]} and three.where("web1") == ["h1"]


def test_a_vm_that_is_removed_while_others_come_home_is_gone(cloud, run, opts):
    three = cloud(3)
    for name in ("web1", "web2"):
        three.put(name, "h1")
    three.proved(opts, "h3", web1=["h1"], web2=["h1"])
    three.before["h1", "virt.migrate"] = lambda: three.hosts["h1"].pop("web2", None)

    result = run(restore.restore, three, "h3", **{**HOME, "max_parallel": 1})

    assert (
        result["moved"] == {"web1": "h3"} and result["gone"] == ["web2"] and result["failed"] == {}
    )
    assert three.notes["h3"] == {}


def test_a_vm_that_has_moved_is_not_called_failed_when_what_follows_fails(
    cloud, run, opts, monkeypatch
):
    three = cloud(3)
    three.put("web1", "h1")
    three.proved(opts, "h3", web1=["h1"])

    def fail_with_full_disk(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(restore.evacuationnotes, "note_changes", fail_with_full_disk)
    result = run(restore.restore, three, "h3", **HOME)

    assert result["moved"] == {"web1": "h3"} and result["failed"] == {}
    assert "No space left on device" in result["warnings"]["web1"]
