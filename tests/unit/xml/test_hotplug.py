"""Memory that NUMA cells count, and the needs of memory hotplug on every libvirt."""

from dataclasses import replace

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.vm import spec
from saltvirt.vm.update.host import plan, request
from saltvirt.xml import element, parse, to_text
from saltvirt.xml.domain import domain

NAMES = (
    "cpu mem disk_profile disks nic_profile interfaces graphics boot numatune boot_dev "
    "hypervisor_features clock serials consoles stop_on_reboot host_devices autostart"
).split()
DEFAULTS = dict.fromkeys(NAMES) | {"live": True, "test": False}
MIB = 1024


def text(kind="qemu", size=128, maximum_mib=None, slots="", cells=(), vcpus=2):
    """Return a definition as libvirt shows it: <memory> is the sum of the cells."""
    numa = "".join(
        f"<cell id='{number}' cpus='{number}' memory='{cell * MIB}' unit='KiB'/>"
        for number, cell in enumerate(cells)
    )
    maximum = (
        f"<maxMemory {slots} unit='KiB'>{maximum_mib * MIB}</maxMemory>" if maximum_mib else ""
    )
    return (
        f"<domain type='{kind}'><name>web1</name>{maximum}<memory unit='KiB'>{size * MIB}</memory>"
        f"<currentMemory unit='KiB'>{size * MIB}</currentMemory><vcpu>{vcpus}</vcpu>"
        f"<os><type>hvm</type></os><cpu mode='maximum'><numa>{numa}</numa></cpu></domain>"
    )


def update(before, **changes):
    """Return ``(max, slots, boot, current, cells)`` in MiB after an update."""
    call = request.from_call(HostSettings(), "web1", {**DEFAULTS, **changes})
    return sizes_of(plan.decide(parse(before), call).root)


def sizes_of(root):
    content = domain.read(root)
    cells = [cell.memory_kib // MIB for cell in content.cpu.cells] if content.cpu else []
    maximum_mib = content.memory.maximum_kib and content.memory.maximum_kib // MIB
    sizes = content.memory.size_kib // MIB, content.memory.current_kib // MIB
    return maximum_mib, content.memory.slots, *sizes, cells


ONE_CELL = text(cells=[128], maximum_mib=512, slots="slots='4'")
TWO_CELLS = text(cells=[64, 64])
NUMA = {0: {"memory": "128m"}, 1: {"memory": "128m"}}
UPDATES = [
    (ONE_CELL, {"mem": 256}, (512, "4", 256, 256, [256])),
    (ONE_CELL, {"mem": 64}, (512, "4", 64, 64, [64])),
    (ONE_CELL, {"mem": {"boot": "256m", "current": "200m"}}, (512, "4", 256, 200, [256])),
    (ONE_CELL, {"mem": {"current": "100m"}}, (512, "4", 128, 100, [128])),
    (ONE_CELL, {"mem": {"max": None}}, (None, None, 128, 128, [128])),
    # libvirt 11.3 accepts it without slots.
    (text(cells=[128], maximum_mib=512), {"mem": 256}, (512, None, 256, 256, [256])),
    (
        text(cells=[128], maximum_mib=128),
        {"mem": {"soft_limit": "1g"}},
        (128, None, 128, 128, [128]),
    ),
    (TWO_CELLS, {"mem": {"soft_limit": "1g"}}, (None, None, 128, 128, [64, 64])),
    (TWO_CELLS, {"mem": 256}, (None, None, 256, 256, [128, 128])),
    (text(size=400, cells=[300, 100]), {"mem": 102}, (None, None, 102, 102, [77, 25])),
    (TWO_CELLS, {"mem": 128}, (None, None, 128, 128, [64, 64])),
    (TWO_CELLS, {"mem": {"max": "1g"}}, (1024, "16", 128, 128, [64, 64])),
    # The cells of the call are summed up, as libvirt does it.
    (TWO_CELLS, {"mem": 256, "cpu": {"numa": NUMA}}, (None, None, 256, 256, [128, 128])),
    (text(), {"mem": {"max": "1g"}}, (1024, "16", 128, 128, [128])),
    (text(), {"mem": {"max": "1g", "slots": 3}}, (1024, "3", 128, 128, [128])),
    (text(), {"mem": {"boot": "1g", "current": "1g", "max": "1g"}}, (None, None, 1024, 1024, [])),
    # The test driver does not sum up cells, and needs none.
    (text("test"), {"mem": {"max": "1g", "slots": 3}}, (1024, "3", 128, 128, [])),
]


@pytest.mark.parametrize(
    ("before", "changes", "after"), UPDATES, ids=[str(case[1]) for case in UPDATES]
)
def test_an_update_changes_the_memory_of_the_cells(before, changes, after):
    assert update(before, **changes) == after


@pytest.mark.parametrize(
    ("before", "mem", "reason"),
    [
        (ONE_CELL, 1024, "mem:max: 512.0M is less than boot, 1.0G; give a larger max"),
        (text(), {"boot": "1g", "max": "512m"}, "mem:max: 512.0M is less than boot"),
        (text(), {"max": "1g", "slots": 257}, "mem:slots"),
        (text(), {"boot": ""}, "mem:boot: '' is not a size"),
        (text(), {"current": ""}, "mem:current: '' is not a size"),
        (text(), {"max": ""}, "mem:max: '' is not a size"),
        (text(), {"boot": "8byte"}, "mem:boot: '8byte' is less than 1 KiB"),
        (text(), {"hard_limit": "8byte"}, "mem:hard_limit: '8byte' is less than 1 KiB"),
    ],
)
def test_impossible_memory_is_refused_in_one_line(before, mem, reason):
    with pytest.raises(BadArgument, match=f"^{reason}"):
        update(before, mem=mem)


@pytest.mark.parametrize(
    ("mem", "cpu", "after"),
    [
        ({"boot": "128m", "current": "128m", "max": "512m"}, 1, (512, "16", 128, 128, [128])),
        ({"boot": "128m", "max": "512m", "slots": 4}, 3, (512, "4", 128, 128, [128])),
        ({"boot": "128m", "max": "128m"}, 1, (None, None, 128, 128, [])),
        ({"boot": "128m", "max": "128m", "slots": 10}, 1, (None, None, 128, 128, [])),
        (128, 1, (None, None, 128, 128, [])),
        (
            {"boot": "256m", "max": "512m"},
            {"maximum": 2, "numa": {0: {"memory": "128m"}, 1: {"memory": "128m"}}},
            (512, "16", 256, 256, [128, 128]),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["qemu", "kvm"])
def test_a_new_vm_has_what_memory_hotplug_needs(mem, cpu, after, kind):
    options = {"disks": [], "disk": None, "nic": None, "interfaces": [], "seed": False}
    vm = spec.deployment(HostSettings(), "web1", cpu, mem, options).vm
    root = element.build(domain.from_call(replace(vm, domain_type=kind, arch="x86_64")))

    assert sizes_of(root) == after
    cell = root.find("cpu/numa/cell")
    if cell is not None and not isinstance(cpu, dict):
        assert cell.get("cpus") == ("0" if cpu == 1 else "0-2")
    assert sizes_of(parse(to_text(root))) == after
