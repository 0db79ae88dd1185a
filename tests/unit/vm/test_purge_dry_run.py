"""A dry run of a purge says what the purge then does, and changes nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from fleetkit import key
from saltvirt.cluster import orders
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.core.journal.recordfacts import OrderFacts
from saltvirt.entry import views
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import trash
from saltvirt.vm.purge.host import purge
from saltvirt.vm.purge.master import purging
from test_purge_volumes import host, of_pool, vm, volume

__all__ = ["host"]


def state(hypervisor):
    """Return all files below the images with their inodes, domains, records and trash."""
    files = {
        str(path): path.stat().st_ino
        for path in Path(hypervisor.settings.images).rglob("*")
        if path.is_file()
    }
    entries = trash.list_entries(hypervisor.settings)
    return files, hypervisor.domains(), hypervisor.open_records(), entries


def test_a_dry_run_foretells_the_purge_with_a_trash(keeping):
    before = state(keeping)
    with keeping.libvirt() as conn:
        plan = purge.plan(conn, keeping.settings, "web1")

        assert state(keeping) == before
        done = purge.purge(conn, keeping.settings, "web1")

    assert plan.trashed and plan.can_undo and plan.entry is None
    assert plan.until[:10] == done.until[:10]
    assert replace(plan, until=None) == replace(done, until=None, entry=None)


def test_a_dry_run_foretells_the_purge_without_a_trash(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        before = state(hypervisor)
        plan = purge.plan(conn, hypervisor.settings, "web1")

        assert state(hypervisor) == before
        assert plan == purge.purge(conn, hypervisor.settings, "web1")
    assert plan.removed and not plan.trashed and not plan.can_undo


def test_a_dry_run_names_what_stays_and_why(keeping):
    with keeping.libvirt() as conn:
        disk = next(path for path in lifecycle.disks(conn)["web1"] if "seed" not in path)
        user = vm("db1", ("file", f"<source file='{disk}'/>", "disk"))
        lifecycle.define(conn, user)
        plan = purge.plan(conn, keeping.settings, "web1")
        done = purge.purge(conn, keeping.settings, "web1")

    assert list(plan.left) == [disk]
    assert plan.left == done.left and plan.trashed == done.trashed


@pytest.mark.parametrize("is_set", [False, True], ids=["trash by default", "trash by the pillar"])
def test_a_dry_run_says_what_becomes_of_a_volume(host, is_set):
    host.settings = replace(host.settings, trash_days=7, is_trash_set=is_set)
    volume(host, "lvm", "web1")
    lifecycle.define(host.conn, vm("web1", of_pool("lvm", "web1")))

    plan = purge.plan(host.conn, host.settings, "web1")
    done = purge.purge(host.conn, host.settings, "web1")

    assert (plan.removed, plan.left) == (done.removed, done.left)
    assert ("lvm/web1" in plan.left) is is_set and plan.can_undo is done.can_undo


def test_a_dry_run_after_an_interrupted_purge_says_that_it_knows_nothing(hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()

    def purge_it():
        with hypervisor.libvirt() as conn:
            purge.purge(conn, hypervisor.settings, "web1")

    hypervisor.dies(purge_it, "purge.removing")
    with hypervisor.libvirt() as conn:
        with pytest.raises(NameTaken, match="'web1' was interrupted on this host"):
            purge.plan(conn, hypervisor.settings, "web1")
        with pytest.raises(NoSuchVm):
            purge.plan(conn, hypervisor.settings, "web2")
    assert hypervisor.domains() == ["web1"]


def test_a_master_says_what_it_would_do_and_does_nothing(cloud):
    cloud.hosts.has_trash = True
    cloud.init(host="hyper1")
    public_key = key(cloud)

    plan = purging.dry_run(cloud.master, "web", True)

    assert plan["hyper1"] == {
        "web": "would be purged, with its minion key; it is running: its plug would be pulled"
    }
    assert cloud.hosts.sent[-1][2] == {"uuid": cloud.hosts.sent[-1][2]["uuid"], "test": True}
    assert (key(cloud), cloud.hosts.where("web")) == (public_key, ["hyper1"])
    assert views.find("virt.purge", plan, {"dry_run": True})["said"] == [
        f"web on hyper1: {plan['hyper1']['web']}",
        "  would go into the trash until 2026-12-05: /srv/web.qcow2",
        "  undo would be: salt-run virt.undo web",
    ]
    assert "with its minion key" not in purging.dry_run(cloud.master, "web", False)["hyper1"]["web"]
    assert cloud.purge()["details"]["web"]["trashed"] == plan["details"]["web"]["trashed"]
    with pytest.raises(NoSuchVm):
        purging.dry_run(cloud.master, "web", True)


def test_a_master_with_an_interrupted_command_says_so(cloud):
    cloud.init()
    with orders.opened(cloud.opts, "web") as order:
        orders.begin(order, orders.REMOVING, OrderFacts(host="hyper1"))

    with pytest.raises(NameTaken, match="another command has a record of VM 'web'"):
        purging.dry_run(cloud.master, "web", True)
