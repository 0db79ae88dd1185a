"""Seeding by a host's own kernel, in an emulated VM whose kernel has nbd; the guest then boots."""

from pathlib import Path

import hostile
import nbdkit
import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        nbdkit.is_possible() is not None, reason=f"this machine lacks {nbdkit.is_possible()}"
    ),
]
INSIDE = Path(__file__).with_name("inside_nbd.py")


@pytest.fixture(scope="module")
def folder(cloud, tmp_path_factory):
    """Disks to be seeded, good and bad, and the identity that they get."""
    folder = tmp_path_factory.mktemp("disks")
    image = cloud.lab.images / "debian-minion.qcow2"
    hostile.qemu_img("create", "-f", "qcow2", "-b", image, "-F", "qcow2", folder / "good.qcow2")
    work = folder / "work"
    for name in hostile.CONTENTS:
        hostile.content(name, work, folder / f"bad-{name}.qcow2")
    tree = hostile.root(work / "slow")
    hostile.as_qcow2(hostile.ext4(work / "slow.raw", tree), folder / "slow.qcow2")
    cloud.purge_all()
    nbdkit.identity(cloud, "nbd1", folder)
    return folder


@pytest.fixture(scope="module")
def said(folder):
    """What was found inside, by name."""
    return {one["name"]: one for one in nbdkit.run(folder, INSIDE, folder)}


def test_nothing_stays_attached_mounted_or_behind(said):
    left = {
        name: one
        for name, one in said.items()
        if name != "mounted" and (one["attached"] or one["mounts"])
    }

    assert left == {}
    assert [name for name, one in said.items() if one["left"]] == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("links-out", None),
        ("link-farm", "/etc/salt"),
        ("pipes", "/etc/salt"),
        ("circle", "mounting by this host failed"),
        ("superblock", "no operating system"),
        ("lvm", "its root may be on LVM"),
        ("nothing", "no operating system"),
    ],
)
def test_a_disk_that_a_stranger_made_ends_well_or_with_a_line(said, name, why):
    one = said[f"bad-{name}.qcow2"]

    assert one["touched"] is False
    assert (one["error"] is None) if why is None else (why in one["error"]), one


@pytest.mark.parametrize("whom", ["worker", "asker"])
def test_a_kill_in_the_middle_leaves_nothing(said, whom):
    assert said[f"killed-{whom}"]["was_attached"] is True


def test_qemu_nbd_mounts_without_devices_and_programs(said):
    (options,) = said["mounted"]["options"]

    assert {"nodev", "nosuid", "noexec"} <= set(options.split(","))
    assert {"etc", "sbin", "usr"} <= set(said["mounted"]["names"])
    assert said["cleared"]["rest"] == {}


def test_the_guest_answers_with_the_key_it_was_given(cloud, folder, said):
    assert said["seeded"]["error"] is None
    nbdkit.boot(cloud, "nbd1", folder / "good.qcow2")
