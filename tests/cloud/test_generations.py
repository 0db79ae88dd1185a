"""Hosts of two generations: hyper1 and hyper2 run Debian 12, hyper3 runs Debian 13."""

import pytest
from cloudkit import TINY, ticks, wait
from movekit import POOLS, RECORDS, move, where

pytestmark = pytest.mark.second
OLD, NEW = "pc-q35-7.2", "pc-q35-10.0"
NEWER = f"its machine type {NEW} is newer than QEMU 7.2 there knows (up to {OLD})"
TAGS = "libvirt 9.0.0 there cannot tag VLANs on a Linux bridge (11.0 can)"


@pytest.fixture(scope="module")
def cloud2(cloud3):
    """The lab; its hosts are of two generations, or the tests of this file say nothing."""
    found = cloud3.run("virt.host_info").data
    versions = {host: info["versions"]["libvirt"] for host, info in found.items()}
    assert versions["hyper1"] == versions["hyper2"] == "9.0.0"
    assert versions["hyper3"].startswith("11.3.")
    return cloud3


@pytest.fixture
def made(cloud2):
    """A function that deploys a tiny VM called ``m1``; it is removed, and nothing is left."""
    cloud2.purge_all()
    before = cloud2.traces()

    def make(*words, cpu="1"):
        done = cloud2.run("virt.init", "m1", cpu, "96", TINY, "wait=False", "seed=False", *words)
        assert done.code == 0, done.out
        return done.data["host"]

    yield make
    purged = cloud2.run("virt.purge", "m1") if where(cloud2) else None
    try:
        assert purged is None or purged.code == 0, purged.out
        assert cloud2.traces() == before
    finally:
        cloud2.purge_all()


def counts(cloud, host):
    """Wait until the guest's counter goes on, on this host."""
    before = ticks(cloud, host, "m1")
    wait("the guest's counter", lambda: ticks(cloud, host, "m1") > before + 1)


def refused(cloud, done, why):
    """Check that a move from hyper3 was refused for a reason, and that nothing was touched."""
    assert done.code == 1, done.out
    assert why in done.error, done.error
    assert done.traceback == []
    assert list(where(cloud)) == ["hyper3"]
    for host in ("hyper1", "hyper2"):
        there = cloud.sh(
            host,
            f"ls /srv/salt-images | grep m1 || true; {POOLS}; {RECORDS}",
        )
        assert there == ""


def test_a_running_vm_moves_up_and_back(cloud2, made):
    made("host=hyper1", f"machine={OLD}")
    counts(cloud2, "hyper1")

    move(cloud2, "hyper3")

    assert where(cloud2) == {"hyper3": "running"}
    counts(cloud2, "hyper3")
    move(cloud2, "hyper2")
    assert where(cloud2) == {"hyper2": "running"}
    counts(cloud2, "hyper2")


def test_a_vm_that_names_no_machine_type_can_leave_the_newer_host(cloud2, made):
    assert made("host=hyper3", "start=False") == "hyper3"

    move(cloud2, "hyper1")

    assert where(cloud2) == {"hyper1": "shut off"}


@pytest.mark.nightly
def test_a_stopped_vm_moves_up_and_back_and_starts_on_each(cloud2, made):
    made("host=hyper1", "start=False")

    for host in ("hyper3", "hyper1"):
        move(cloud2, host)
        assert where(cloud2) == {host: "shut off"}
        assert cloud2.local(host, "virt.start", "m1") is True
        counts(cloud2, host)
        cloud2.local(host, "virt.stop", "m1")


@pytest.mark.parametrize("start", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_machine_type_that_is_too_new_is_refused_before_anything_is_touched(cloud2, made, start):
    made("host=hyper3", "machine=q35", f"start={start}")

    refused(cloud2, cloud2.run("virt.migrate", "m1", "hyper1"), NEWER)
    refused(cloud2, cloud2.run("virt.migrate", "m1", "dry_run=True"), NEWER)
    # The module's own call, before which no runner has looked; the disks are declared ready.
    direct = cloud2.call("hyper3", "virt.migrate", "m1", "hyper1", "copy_storage=all")
    why = NEWER if start else "libvirt does not copy the disks of a stopped VM"
    assert direct.code == 1 and why in direct.out + direct.err
    assert list(where(cloud2)) == ["hyper3"]


@pytest.mark.nightly
def test_a_guest_that_was_started_on_the_newer_qemu_goes_back_when_it_is_stopped(cloud2, made):
    made("host=hyper3", f"machine={OLD}")
    counts(cloud2, "hyper3")

    why = "it was started with all that QEMU 10.0 has for a CPU (mode maximum or host-passthrough)"
    refused(cloud2, cloud2.run("virt.migrate", "m1", "hyper1"), why)

    cloud2.local("hyper3", "virt.stop", "m1")
    move(cloud2, "hyper1")
    assert cloud2.local("hyper1", "virt.start", "m1") is True
    counts(cloud2, "hyper1")


@pytest.mark.nightly
def test_a_running_vm_whose_next_start_is_of_the_newer_generation_stays(cloud2, made):
    made("host=hyper1", f"machine={OLD}")
    counts(cloud2, "hyper1")
    move(cloud2, "hyper3")
    cloud2.sh(
        "hyper3",
        f"virsh -q dumpxml --inactive m1 | sed s/{OLD}/{NEW}/ > /tmp/m1.xml && "
        "virsh -q define /tmp/m1.xml; rm /tmp/m1.xml",
    )

    refused(
        cloud2,
        cloud2.run("virt.migrate", "m1", "hyper1"),
        NEWER.replace(NEW, f"{NEW} (of its next start)"),
    )


def test_what_an_older_libvirt_would_leave_out_keeps_a_vm_where_it_is(cloud2, made):
    made("host=hyper3", f"machine={OLD}", "start=False")
    change = "s/discard='unmap'/& discard_no_unref='on'/"
    cloud2.sh(
        "hyper3",
        f'virsh -q dumpxml --inactive m1 | sed "{change}" > /tmp/m1.xml && '
        "virsh -q define /tmp/m1.xml; rm /tmp/m1.xml",
    )

    refused(
        cloud2,
        cloud2.run("virt.migrate", "m1", "hyper1"),
        "it has discard_no_unref on a disk, which libvirt 9.0.0 there does not know (9.5 does)",
    )


def test_a_cpu_that_an_older_host_cannot_name_is_a_reason_in_the_plan(cloud2, made):
    made("host=hyper3", f"machine={OLD}", cpu="{maximum: 1, mode: host-model}")

    plan = cloud2.run("virt.evacuate", "hyper3", "dry_run=True")

    assert plan.code == 0, plan.out
    assert plan.data["moves"] == {}
    assert "hyper1: its CPU does not suffice" in plan.data["stays"]["m1"]
    assert "hyper2: its CPU does not suffice" in plan.data["stays"]["m1"]


@pytest.mark.nightly
def test_an_evacuation_plans_nothing_that_the_others_cannot_take(cloud2, made):
    made("host=hyper3", "machine=q35")
    plan = cloud2.run("virt.evacuate", "hyper3", "dry_run=True")
    assert plan.data["moves"] == {} and plan.data["stays"]["m1"].count(NEWER) == 2

    done = cloud2.run("virt.evacuate", "hyper3")

    try:
        assert done.code == 1 and "hyper3 still has m1" in done.error
        assert done.data["stays"]["m1"].count(NEWER) == 2 and done.data["failed"] == {}
        assert where(cloud2) == {"hyper3": "running"}
    finally:
        cloud2.run("virt.restore", "hyper3")
    down = cloud2.run("virt.rebalance", "dry_run=True", "threshold=0", "window_s=3")
    assert down.code == 0 and down.data["moves"] == []


@pytest.mark.nightly
def test_a_vm_of_the_older_generation_leaves_and_comes_back_by_evacuation(cloud2, made):
    made("host=hyper1")
    counts(cloud2, "hyper1")
    cloud2.local("hyper2", "virt.maintenance", "on")
    try:
        done = cloud2.run("virt.evacuate", "hyper1")
        assert done.code == 0 and done.data["moved"] == {"m1": "hyper3"}, done.out
        counts(cloud2, "hyper3")
        assert cloud2.run("virt.restore", "hyper1").data["moved"] == {"m1": "hyper1"}
        counts(cloud2, "hyper1")
    finally:
        cloud2.local("hyper2", "virt.maintenance", "off")


def test_a_machine_type_decides_where_a_vm_is_made(cloud2, made):
    table = cloud2.run("virt.init", "m1", "1", "96", TINY, f"machine={NEW}", "dry_run=True").data

    assert {host: row["fits"] for host, row in table.items()} == {
        "hyper1": False,
        "hyper2": False,
        "hyper3": True,
    }
    assert table["hyper1"]["reasons"] == [NEWER]
    assert made(f"machine={NEW}") == "hyper3"


def test_a_machine_type_that_nobody_has_leaves_nothing(cloud2, made):
    done = cloud2.run(
        "virt.init", "m2", "1", "96", TINY, "machine=pc-q35-7.9", "host=hyper3", "seed=False"
    )

    assert done.code == 1 and "does not know the machine type pc-q35-7.9" in done.out
    assert made("host=hyper3", f"machine={OLD}") == "hyper3"


def test_tags_on_a_linux_bridge_are_for_the_newer_libvirt(cloud2, made):
    tagged = "interfaces={eth0: {bridge: br0, vlan: 42}}"
    table = cloud2.run("virt.init", "m1", "1", "96", TINY, tagged, "dry_run=True").data
    assert [TAGS in "; ".join(table[host]["reasons"]) for host in cloud2.hosts] == [
        True,
        True,
        False,
    ]

    assert made(tagged, f"machine={OLD}", "start=False") == "hyper3"

    refused(cloud2, cloud2.run("virt.migrate", "m1", "hyper1"), TAGS)


def test_a_tagged_port_of_a_linux_bridge_has_its_vlan(cloud2, made):
    cloud2.sh("hyper3", "ip link add brtag type bridge && ip link set brtag up")
    try:
        if cloud2.sh("hyper3", "ip link set brtag type bridge vlan_filtering 1 2>&1 || true"):
            pytest.skip("this machine's kernel has no VLAN filtering on bridges")
        assert made("interfaces={eth0: {bridge: brtag, vlan: 42}}", f"machine={OLD}") == "hyper3"
        port = cloud2.sh("hyper3", "ls /sys/class/net/brtag/brif").split()[0]
        assert "42 PVID Egress Untagged" in cloud2.sh("hyper3", f"bridge vlan show dev {port}")
    finally:
        cloud2.sh("hyper3", "virsh -q destroy m1 2>&1 || true; ip link del brtag")
