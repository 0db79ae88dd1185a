"""The buses of disks: their targets, their defaults, and what a running VM can take."""

import pytest
from saltvirt.core.diskbus import BUSES, default_bus, find_bus
from saltvirt.core.errors import BadArgument
from saltvirt.vm import profiles
from saltvirt.vm.update.host import live
from saltvirt.xml.domain.disk import Disk


@pytest.mark.parametrize("bus", BUSES.values(), ids=BUSES.get)
def test_each_bus_can_be_chosen_and_has_its_target_names(bus):
    call = [{"name": f"d{number}", "model": bus.name, "size": 1} for number in range(26)]

    disks = profiles.disks({}, None, call, None)

    assert [disk.target for disk in disks][::25] == [f"{bus.prefix}a", f"{bus.prefix}z"]
    assert {disk.bus for disk in disks} == {bus.name}
    assert all(bus.has_target(disk.target) for disk in disks)
    with pytest.raises(BadArgument, match=f"more than 26 disks on the bus '{bus.name}'"):
        profiles.disks({}, None, [*call, {"name": "more", "model": bus.name, "size": 1}], None)


@pytest.mark.parametrize("bus", BUSES.values(), ids=BUSES.get)
def test_a_running_vm_takes_a_disk_if_its_bus_supports_it(bus):
    disk = Disk(device="disk", target={"dev": f"{bus.prefix}a", "bus": bus.name})

    assert live.is_hotpluggable(disk) is bus.is_hotpluggable


def test_a_disk_on_an_unknown_bus_waits_for_the_next_start():
    assert not live.is_hotpluggable(Disk(device="disk", target={"dev": "sda", "bus": "made-up"}))


def test_every_kind_of_device_has_one_bus_by_default():
    defaults = {device: default_bus(device).name for device in profiles._DEVICES}

    assert defaults == {"disk": "virtio", "lun": "virtio", "cdrom": "ide", "floppy": "fdc"}
    assert sorted(d for bus in BUSES.values() for d in bus.default_for) == sorted(defaults)


def test_targets_of_other_buses_are_told_apart_by_their_prefix_alone():
    assert find_bus("sata").has_target("sdb")
    assert not any(find_bus("sata").has_target(target) for target in ("", "vdb", "sdaa", "sd1"))
