"""What keeps a disk where it is, by facts alone; each row is one fact."""

import re
from dataclasses import replace

import pytest
from saltvirt.vm.diskmove.host import diskplan

GIB = 1 << 30
GOOD = diskplan.DiskState(
    device="disk",
    type="file",
    format="qcow2",
    is_file=True,
    is_encrypted=False,
    has_data_file=False,
    has_snapshots=False,
    backing="/srv/base/1",
    backing_format="qcow2",
    is_running=True,
    has_other_live=False,
    snapshots=(),
    checkpoints=False,
    is_saved=False,
    busy_targets=(),
)
ROOM = diskplan.RoomState(
    folder="/srv/fast",
    stock="storage pool fast",
    left_mib=10240,
    size_bytes=10 * GIB,
    allocated_bytes=GIB,
    free_bytes=3 * GIB,
    reserve_bytes=2 * GIB,
)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"device": "cdrom"}, "it is a cdrom; virt.insert"),
        ({"type": "block"}, "no regular file"),
        ({"is_file": False}, "no regular file"),
        ({"format": "vmdk"}, "its format is vmdk; only qcow2 and raw"),
        ({"is_encrypted": True}, "it is encrypted"),
        ({"has_data_file": True}, "a data file of its own"),
        ({"backing": "base.qcow2"}, "names base.qcow2.* without a folder"),
        ({"backing_format": None}, "does not say the format .* qemu-img rebase -u -F"),
        ({"has_snapshots": True}, "snapshots that libvirt does not know"),
        ({"type": "volume"}, "as a volume of a pool; stop the VM first"),
        ({"has_other_live": True}, "another disk at its target"),
        ({"snapshots": ["a", "b"]}, r"has snapshots \(a, b\)"),
        ({"checkpoints": True}, "virsh checkpoint-delete"),
        ({"is_saved": True}, "has a saved state"),
        ({"busy_targets": ["vda", "vdb"]}, "libvirt works on vda, vdb"),
    ],
)
def test_each_obstacle_is_named_alone(changes, text):
    (reason,) = diskplan.find_obstacles(replace(GOOD, **changes))
    assert re.search(text, reason)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"format": "raw"},
        {"backing": None, "backing_format": None},
        {"is_running": False, "backing_format": None},
        {"is_running": False, "has_snapshots": True},
    ],
)
def test_what_is_no_obstacle(changes):
    assert list(diskplan.find_obstacles(replace(GOOD, **changes))) == []


def test_a_volume_of_a_stopped_vm_that_is_a_file_is_moved():
    assert list(diskplan.find_obstacles(replace(GOOD, type="volume", is_running=False))) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, None),
        ({"left_mib": 10239}, "10240 MiB of storage pool fast wanted, 10239 MiB free to promise"),
        ({"left_mib": -5}, "10240 MiB of storage pool fast wanted, 0 MiB free to promise"),
        ({"left_mib": -5, "stock": None}, None),
        (
            {"free_bytes": 3 * GIB - 1},
            "it takes 1.0G in /srv/fast, and 3.0G are free there, of which 2.0G are kept for VMs "
            "(virt:disk_reserve_mib)",
        ),
    ],
)
def test_the_room_of_a_disk_is_promised_and_there(changes, text):
    assert diskplan.find_lack_of_room(replace(ROOM, **changes)) == text
