"""Empty a host and bring its VMs back; what cannot move says why."""

import subprocess

import faultkit as kit
import pytest
from cloudkit import LAB, TINY, how_to, wait

pytestmark = pytest.mark.second
NAMES = ["e1", "e2", "e3", "e4"]


@pytest.fixture(scope="module")
def filled(cloud):
    """Hyper1 with three running VMs and a stopped one; nothing is left afterwards."""
    cloud.purge_all()
    before = cloud.traces()
    for name, size in zip(NAMES, (64, 128, 96, 64), strict=True):
        done = cloud.run(
            "virt.init",
            name,
            "1",
            str(size),
            TINY,
            "host=hyper1",
            "wait=False",
            "seed=False",
            f"start={name != 'e4'}",
        )
        assert done.code == 0, done.out
    yield cloud
    for name in NAMES:
        assert cloud.run("virt.purge", name).code == 0
    try:
        assert cloud.traces() == before
    finally:
        cloud.purge_all()


@pytest.fixture
def full(filled):
    """The same; what a test moved away comes back."""
    yield filled
    back = filled.run("virt.restore", "hyper1", "max_parallel=4")
    assert back.code == 0, back.out


def places(cloud):
    """Return ``{name: (host, state)}`` of all VMs, as the runner sees them."""
    out = {}
    for host, states in cloud.run("virt.list").data.items():
        for state, names in states.items():
            for name in names:
                assert name not in out, f"{name} is on two hosts"
                out[name] = (host, state)
    return out


def test_a_host_is_emptied_as_planned_and_filled_again(full):
    before = places(full)
    first, second, third = (words[1:] for words in how_to("maintenance.md", hyper3="hyper1"))
    plan = full.run(*first)
    assert plan.code == 0, plan.out
    assert places(full) == before

    done = full.run(*second)

    assert done.code == 0, done.out
    assert done.data["moved"] == plan.data["moves"]
    assert list(plan.data["moves"])[:2] == ["e2", "e3"], "the big ones first"
    now = places(full)
    assert {name: host for name, (host, _state) in now.items()} == plan.data["moves"]
    assert {name: state for name, (_host, state) in now.items()} == {
        "e1": "running",
        "e2": "running",
        "e3": "running",
        "e4": "shutdown",
    }
    refused = full.run("virt.init", "e9", "1", "64", TINY, "host=hyper1", "seed=False")
    assert refused.code == 1 and "in maintenance" in refused.error

    back = full.run(*third)

    assert back.code == 0, back.out
    assert places(full) == before
    assert full.run("virt.restore", "hyper1").data["moved"] == {}


@pytest.mark.nightly
def test_a_vm_that_was_moved_by_hand_since_is_left_there(full):
    done = full.run("virt.evacuate", "hyper1", "max_parallel=4")
    assert done.code == 0, done.out
    (name, at), *_rest = done.data["moved"].items()
    other = next(host for host in ("hyper2", "hyper3") if host != at)
    assert full.run("virt.migrate", name, other).code == 0
    plan = full.run("virt.restore", "hyper1", "dry_run=True")

    back = full.run("virt.restore", "hyper1", "max_parallel=4")

    assert back.code == 0, back.out
    assert back.data["moved"] == plan.data["moves"]
    assert sorted(back.data["moved"]) == sorted(set(NAMES) - {name})
    assert back.data["elsewhere"] == plan.data["elsewhere"] == {name: other}
    assert places(full)[name][0] == other
    assert full.local("hyper1", "virt.evacuated") == {}
    assert full.run("virt.migrate", name, "hyper1").code == 0


@pytest.mark.nightly
def test_vms_that_two_evacuations_moved_come_home(full):
    before = places(full)
    first = full.run("virt.evacuate", "hyper1", "max_parallel=4")
    assert first.code == 0, first.out
    twice = sorted(name for name, host in first.data["moved"].items() if host == "hyper2")
    assert twice, first.data
    # The second is emptied while the first is off, and cannot be told.
    full.service("hyper1", "salt-minion", "stop")
    second = full.run("virt.evacuate", "hyper2", "max_parallel=4")
    full.service("hyper1", "salt-minion", "start")
    full.ready(["hyper1"])
    assert second.code == 0 and sorted(second.data["moved"]) == twice, second.out
    assert full.local("hyper1", "virt.evacuated")[twice[0]]["hosts"] == ["hyper2"]

    back = full.run("virt.restore", "hyper1", "max_parallel=4")

    assert back.code == 0 and back.data["elsewhere"] == {}, back.out
    assert places(full) == before
    again = full.run("virt.restore", "hyper2")
    assert again.code == 0 and again.data["moved"] == {}, again.out
    assert places(full) == before


@pytest.fixture
def slow(full):
    """The same, where the build of a VM e9 on hyper1 goes on when its test releases it."""
    words = ("e9", "1", "64", TINY, "host=hyper1", "wait=False", "seed=False", "start=False")
    with kit.told(full, ["hyper1"]):
        point = "build.before-defining"
        kit.tell(full, "hyper1", point, "wait")
        job = full.begin("virt.init", *words)
        kit.reached(full, "hyper1", point, job)
        yield job
        kit.release(full, "hyper1")
    assert full.run("virt.purge", "e9").code == 0


@pytest.mark.nightly
def test_a_vm_on_its_way_in_is_waited_for_and_moved_too(full, slow):
    evacuation = full.begin("virt.evacuate", "hyper1", "max_parallel=4")
    there = "virsh -q list --all --name"
    wait("the others", lambda: set(NAMES).isdisjoint(full.sh("hyper1", there).split()))
    assert evacuation.poll() is None
    kit.release(full, "hyper1")

    done = full.end(evacuation)

    assert full.end(slow).code == 0
    assert done.code == 0, done.out
    assert sorted(done.data["moved"]) == [*NAMES, "e9"]
    assert "hyper1" not in {host for host, _state in places(full).values()}


@pytest.fixture
def eight(full):
    """Eight VMs on hyper1; the four more are gone afterwards."""
    more = ["e5", "e6", "e7", "e8"]
    for name in more:
        done = full.run(
            "virt.init",
            name,
            "1",
            "48",
            TINY,
            "host=hyper1",
            "wait=False",
            "seed=False",
            "start=False",
        )
        assert done.code == 0, done.out
    for name in more[:2]:
        full.local("hyper1", "virt.start", name)
    yield full
    for name in more:
        assert full.run("virt.purge", name).code == 0
    back = full.run("virt.restore", "hyper1", "max_parallel=4")
    assert back.code == 0 and back.data["gone"] == more, back.out


@pytest.mark.nightly
def test_a_host_that_refuses_half_way_is_passed_over_and_stopped_vms_may_stay(eight):
    plan = eight.run("virt.evacuate", "hyper1", "dry_run=True", "stopped=False").data
    assert len(plan["moves"]) == 5
    first, (victim, to) = list(plan["moves"])[0], list(plan["moves"].items())[-1]
    other = next(host for host in ("hyper3", "hyper2") if host != to)
    job = eight.begin("virt.evacuate", "hyper1", "stopped=False", "max_parallel=1")
    wait("the first", lambda: first not in eight.sh("hyper1", "virsh -q list --all --name"))
    # The disk is in the way there, since the plan was agreed with that host.
    eight.sh(to, f"touch /srv/salt-images/{victim}_system.qcow2")
    try:
        done = eight.end(job)
    finally:
        eight.sh(to, f"rm /srv/salt-images/{victim}_system.qcow2")

    assert done.code == 0, done.out
    assert done.data["moved"] == {**plan["moves"], victim: other}
    assert done.data["stays"] == dict.fromkeys(["e4", "e7", "e8"], "it is stopped")
    rest = eight.run("virt.evacuate", "hyper1", "max_parallel=4")
    assert rest.code == 0 and sorted(rest.data["moved"]) == ["e4", "e7", "e8"]
    assert len(places(eight)) == 8
    assert "hyper1" not in {host for host, _state in places(eight).values()}


@pytest.mark.nightly
def test_a_vm_that_cannot_move_is_named_and_the_rest_goes(full):
    device = """<hostdev mode="subsystem" type="usb"><source>
<vendor id="0x1234"/><product id="0xbeef"/></source></hostdev>"""
    full.sh("hyper1", f"cat >/tmp/usb.xml <<'X'\n{device}\nX")
    full.sh("hyper1", "virsh -q attach-device e4 /tmp/usb.xml --config")

    done = full.run("virt.evacuate", "hyper1")

    assert done.code == 1
    assert done.error.startswith("hyper1 still has e4")
    assert "it has a device of this host" in done.data["stays"]["e4"]
    assert sorted(done.data["moved"]) == ["e1", "e2", "e3"]
    full.sh("hyper1", "virsh -q detach-device e4 /tmp/usb.xml --config; rm /tmp/usb.xml")
    again = full.run("virt.evacuate", "hyper1")
    assert again.code == 0 and list(again.data["moved"]) == ["e4"]
    wait("an empty host", lambda: full.sh("hyper1", "virsh -q list --all --name").split() == [])


@pytest.mark.nightly
def test_an_interrupted_evacuation_finishes_what_is_under_way_and_goes_on_when_run_again(full):
    plan = list(full.run("virt.evacuate", "hyper1", "dry_run=True").data["moves"])
    job = full.begin("virt.evacuate", "hyper1", "max_parallel=1")
    wait("the first", lambda: plan[0] not in full.sh("hyper1", "virsh -q list --all --name"))
    full.interrupt("virt.evacuate hyper1")

    done = full.end(job)

    assert done.code == 1 and done.error.startswith("hyper1 still has"), done.out
    assert done.data["failed"][plan[-1]] == "not begun, the command was interrupted"
    assert done.data["moved"].keys() | done.data["failed"].keys() == set(plan)
    on_host = {name for name, (host, _state) in places(full).items() if host == "hyper1"}
    assert on_host == set(done.data["failed"])
    again = full.run("virt.evacuate", "hyper1")
    assert again.code == 0 and set(again.data["moved"]) == on_host


def test_a_host_nobody_knows_is_refused(full):
    done = full.run("virt.evacuate", "hyper9")

    assert done.code == 1 and "'hyper9' is not a hypervisor here" in done.error
    assert full.run("virt.evacuate", "hyper1", "max_parallel=0").code == 1
    assert full.run("virt.maintenance", "hyper1", "perhaps").code == 1


@pytest.fixture
def four(full):
    """A fourth, empty hypervisor beside the three."""
    lab = [LAB, "--salt", full.lab.salt]
    subprocess.run([*lab, "up", "--hosts", "4"], check=True)
    full.hosts.append("hyper4")
    yield full
    full.hosts.remove("hyper4")
    subprocess.run([*lab, "remove", "hyper4"], check=True)


@pytest.mark.nightly
def test_a_lopsided_cloud_is_evened_out_but_for_what_is_tagged(four):
    four.local("hyper1", "virt.hold", "e2", "on")
    words = ("virt.rebalance", "threshold=0.0005", "window_s=12")
    plan = four.run(*words, "dry_run=True")
    assert plan.code == 0 and plan.data["imbalance"] > 0, plan.out
    before = places(four)

    done = four.run(*words)

    assert done.code == 0, done.out
    moved = {step["name"]: step["to"] for step in done.data["moves"]}
    assert moved.keys() <= {"e1", "e3"} and len(moved) == len(plan.data["moves"]) > 0
    now = places(four)
    assert now == {**before, **{name: (host, "running") for name, host in moved.items()}}
    for name in moved:
        assert four.run("virt.migrate", name, "hyper1").code == 0
    four.local("hyper1", "virt.hold", "e2", "off")
