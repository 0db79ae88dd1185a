"""Commands of the master that are killed, and what the next one of that name makes of it."""

import pytest
from cloudkit import TINY, wait
from test_faults import refused

pytestmark = pytest.mark.second

INIT = ["virt.init", "t1", "1", "96", TINY, "host=hyper1", "start=False"]
SAMPLE = "order.ordered"
BEFORE = ["order.placing", "order.before-keyed", "order.keyed", "order.before-ordered", SAMPLE]
AFTER = ["order.before-built", "order.built", "order.end"]


def points(names, sample):
    """Return the points as parameters, all but one for the night."""
    night = pytest.mark.nightly
    return [pytest.param(name, marks=() if name == sample else night) for name in names]


@pytest.mark.parametrize("point", points(BEFORE, SAMPLE))
def test_a_deployment_killed_before_its_host_was_asked_is_taken_back(clean, point):
    clean.cut_off(point, *INIT)
    # The key is noted before it is accepted.
    assert clean.accepted() == (["t1"] if point in BEFORE[3:] else [])

    again = clean.run(*INIT)

    assert again.code == 0, again.out
    assert clean.accepted() == ["t1"]
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


@pytest.mark.parametrize("point", points(AFTER, "order.before-built"))
def test_a_deployment_killed_after_its_vm_was_made_is_complete(clean, point):
    clean.cut_off(point, *INIT)

    refused(clean.run(*INIT), "'t1' is on hyper1 already (shutdown)")

    assert clean.accepted() == ["t1"]
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


@pytest.mark.nightly
def test_a_killed_deployment_whose_host_is_silent_is_settled_when_that_answers(clean):
    clean.cut_off("order.before-built", *INIT)
    clean.kill("hyper1", "salt-minion")
    try:
        for words in (INIT[:-2], ["virt.purge", "t1"]):
            refused(clean.run(*words), "it may be on hyper1 (does not answer)")
        assert clean.accepted() == ["t1"]
    finally:
        clean.service("hyper1", "salt-minion", "start")
        clean.ready()
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


def test_an_interrupted_purge_is_finished_with_its_key(clean):
    assert clean.run(*INIT).code == 0
    clean.cut_off("order.removing", "virt.purge", "t1")
    assert clean.local("hyper1", "virt.purge", "t1") is True
    assert clean.accepted() == ["t1"]

    done = clean.run("virt.purge", "t1")

    assert done.data == {"hyper1": {"t1": "purged; its minion key is deleted now"}}
    refused(clean.run("virt.purge", "t1"), "no VM called 't1'")


@pytest.mark.nightly
def test_a_name_on_a_silent_host_is_given_away_by_force_alone(clean):
    words = ["virt.init", "t1", "1", "96", TINY, "seed=False", "start=False"]
    assert clean.run(*words, "host=hyper1").code == 0
    clean.kill("hyper1", "salt-minion")
    try:
        refused(clean.run(*words), "'t1' may be on hyper1 (does not answer)", "force=True")
        made = clean.run(*words, "force=True")
        assert made.data["host"] in ("hyper2", "hyper3"), made.out
    finally:
        clean.service("hyper1", "salt-minion", "start")
        clean.ready()

    there = ["hyper1", made.data["host"]]
    wait("all hosts", lambda: "unreachable" not in clean.run("virt.query").data)
    assert clean.run("virt.query").data["duplicates"] == {"t1": there}
    assert "VM 't1' is on hyper1 and" in clean.command("salt-run", "virt.host_info").out
    refused(clean.run("virt.start", "t1"), f"VM 't1' is on {' and '.join(there)}: look at each")
    assert clean.local(there[1], "virt.purge", "t1") is True
    assert clean.run("virt.start", "t1").data == {"hyper1": {"t1": "started"}}
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}


PROFILE = {"virt": {"disk": {"golden": [{"name": "system", "size": 64, "image": TINY}]}}}


def test_a_disk_profile_with_an_image_gives_the_vm_its_key(clean):
    words = ["virt.init", "t1", "1", "96", "disk=golden", "host=hyper1", "start=False"]
    with clean.pillar("hyper1", PROFILE):
        assert clean.run(*words).code == 0

    assert clean.accepted() == ["t1"]
    assert clean.run("virt.purge", "t1").data["hyper1"] == {"t1": "purged"}
