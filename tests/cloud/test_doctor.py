"""The doctor finds each leftover, mends what a record explains, and names the rest."""

import json

import pytest
from cloudkit import TINY
from doctorkit import BY_HAND, IMAGES, NAMED, OLD, PLANTED, found, mend_by_line


@pytest.fixture
def tidy(cloud):
    """A lab in which nothing is left over, with a trash on hyper1; afterwards it is as before."""
    cloud.purge_all()
    # Other tests have left things on purpose.
    assert found(cloud.run("virt.doctor", "fix=True")) == {}
    with cloud.pillar("hyper1", {"virt": {"trash_days": 7}}):
        yield cloud
        cloud.run("virt.trash_empty")
    cloud.purge_all()


def test_what_many_faults_left_is_found_and_mended_and_what_is_needed_stays(tidy):
    mine = f"{IMAGES}/mine_system.qcow2"
    tidy.local("hyper1", "virt.init", "kept1", "1", "64", TINY, "seed=False", "start=False")
    disk = tidy.sh("hyper1", f"ls {IMAGES}/kept1_*").split()[0]
    # As old as what is left over.
    tidy.sh("hyper1", f"{OLD} {disk}; echo mine >{mine}; {OLD} {mine}")
    assert found(tidy.run("virt.doctor")) == {}
    for node, plant, *_what in PLANTED.values():
        tidy.sh(node, plant)

    there = found(tidy.run("virt.doctor"))
    assert set(there) == {tuple(row[2:4]) for row in PLANTED.values()}

    done = tidy.run("virt.doctor", "fix=True")

    left = found(done)
    assert set(left) == {tuple(PLANTED[name][2:4]) for name in NAMED}, done.out
    assert not tidy.run("virt.trash").data.get("hyper1")
    for finding in left.values():
        mend_by_line(tidy, finding)
    assert found(tidy.run("virt.doctor")) == {}
    assert tidy.sh("hyper1", f"ls {disk} {mine}").split() == [disk, mine]
    trashed = tidy.run("virt.trash").data["hyper1"]
    paths = sorted(path for row in trashed.values() for path in row["files"])
    assert [path.rpartition("/")[2] for path in paths] == [
        *("gone1_system.qcow2", "gone1_VARS.fd", "gone1.save"),
    ]
    tidy.sh("hyper1", f"rm {mine}")


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PLANTED))
def test_what_is_planted_alone_is_found_alone_and_mended_by_its_line(tidy, name):
    node, plant, check, where = PLANTED[name]
    tidy.sh(node, plant)

    there = found(tidy.run("virt.doctor"))
    assert set(there) == {(check, where)}

    mend_by_line(tidy, there[check, where])
    assert found(tidy.run("virt.doctor")) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_what_only_an_operator_can_mend_is_named(tidy, name):
    node, plant, undo, check, where = BY_HAND[name]
    tidy.sh(node, plant)
    try:
        there = found(tidy.run("virt.doctor"))
        done = tidy.run("virt.doctor", "fix=True")
    finally:
        tidy.sh(node, undo)

    assert set(there) == {(check, where)}
    # It is left alone.
    assert set(found(done)) == {(check, where)}
    assert found(tidy.run("virt.doctor")) == {}


@pytest.mark.nightly
def test_nothing_is_found_of_vms_of_all_kinds_and_nothing_is_mended_while_a_host_is_silent(tidy):
    tidy.local("hyper1", "virt.init", "runs1", "1", "64", TINY, "seed=False")
    tidy.local("hyper1", "virt.init", "stops1", "1", "64", TINY, "seed=False", "start=False")
    assert tidy.run("virt.migrate", "stops1", "hyper2").code == 0
    tidy.sh("hyper1", f"{OLD} {IMAGES}/*.qcow2")
    tidy.sh("hyper2", f"{OLD} {IMAGES}/*.qcow2")
    assert found(tidy.run("virt.doctor", "fix=True")) == {}
    for name in ("a disk", "a key", "a console log", "NVRAM"):
        tidy.sh(PLANTED[name][0], PLANTED[name][1])

    tidy.service("hyper3", "salt-minion", "stop")
    try:
        done = tidy.run("virt.doctor", "fix=True")
    finally:
        tidy.service("hyper3", "salt-minion", "start")
        tidy.ready(["hyper3"])

    assert set(found(done)) == {("not-checked", "hyper3")}
    assert done.data["mended"] == []
    left = found(tidy.run("virt.doctor"))
    assert len(left) == 4
    for finding in left.values():
        mend_by_line(tidy, finding)
    assert found(tidy.run("virt.doctor")) == {}


@pytest.mark.nightly
def test_a_purged_vm_is_in_the_trash_is_not_garbage_and_comes_back(tidy):
    tidy.local("hyper1", "virt.init", "back1", "1", "64", TINY, "seed=False", "start=False")
    disk = tidy.sh("hyper1", f"ls {IMAGES}/back1_*").split()[0]
    content = tidy.sh("hyper1", f"sha256sum <{disk}")
    tidy.sh("hyper1", f"virsh -q pool-create-as back dir --target {IMAGES}")
    assert tidy.run("virt.purge", "back1").code == 0
    ((entry, row),) = tidy.run("virt.trash").data["hyper1"].items()
    assert (row["vm"], row["files"]) == ("back1", [disk])
    tidy.sh("hyper1", f"{OLD} {IMAGES}/.salt-virt-trash/*/*")
    assert found(tidy.run("virt.doctor")) == {}

    said = tidy.run("virt.trash_restore", "hyper1", entry).data["hyper1"]

    assert tidy.sh("hyper1", f"sha256sum <{disk}") == content
    assert disk in tidy.sh("hyper1", "virsh vol-list back && virsh -q pool-destroy back")
    assert found(tidy.run("virt.doctor")) == {}
    done = tidy.salt("hyper1", "virt.define_xml_str", said["definition"])
    assert done.data == {"hyper1": True}, json.dumps(done.data)
    assert tidy.run("virt.start", "back1").code == 0
