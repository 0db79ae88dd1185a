"""A call that would take a device from a VM without naming it is refused, and says which."""

from dataclasses import replace

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.vm.update.host import apply, live, plan, removals, request
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from test_update_calls import DEFAULTS
from updatekit import XML

DISK = "<disk type='file' device='disk'><source file='{}'/><target dev='{}' bus='virtio'/></disk>"
PCI = """<hostdev mode='subsystem' type='pci' managed='yes'><source>
<address domain='0x0000' bus='0x03' slot='0x00' function='0x0'/></source></hostdev>"""
USB = """<hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/>
<product id='0xbeef'/></source></hostdev>"""
MORE = XML.replace(
    "</devices>",
    f"""{PCI}{USB}<graphics type='spice'/><serial type='pty'/>
<console type='pty'><target type='serial'/></console><console type='pty'><target type='virtio'/>
</console></devices>""",
)
SETTINGS = HostSettings()
SYSTEM, CD = {"name": "system"}, {"name": "cd", "device": "cdrom"}
NIC = {"name": "eth0", "type": "network", "source": "default", "mac": "52:54:00:00:00:01"}
NAMES = ["pci_0000_03_00_0", "usb_1_2"]

REFUSED = [
    ({"disks": [{"name": "data", "size": 8}]}, "disk vda (/srv/web1_system.qcow2), cdrom hda"),
    ({"disks": [SYSTEM]}, "cdrom hda (/srv/a.iso)"),
    ({"disks": [CD]}, "disk vda (/srv/web1_system.qcow2)"),
    ({"disks": []}, "disk vda (/srv/web1_system.qcow2), cdrom hda (/srv/a.iso)"),
    ({"interfaces": []}, "NIC 52:54:00:00:00:01 (network default)"),
    ({"interfaces": [{**NIC, "mac": None}, {**NIC, "name": "b"}]}, None),
    ({"interfaces": [{**NIC, "mac": "52:54:00:00:00:02"}]}, "NIC 52:54:00:00:00:01"),
    ({"serials": [{"type": "pty"}]}, "serial 1 (pty)"),
    ({"serials": []}, "serial 0 (pty), serial 1 (pty)"),
    ({"consoles": [{"type": "pty"}]}, "console 0 (pty)"),
    ({"graphics": {"type": "vnc"}}, "display spice"),
    ({"graphics": {"type": "none"}}, None),
    ({"graphics": {}}, None),
    ({"cpu": 4, "mem": 256}, None),
]


def decide(text, asked, settings=SETTINGS, running=None, **more):
    """Decide a call as virt.update does before it does anything; return the new definition."""
    now = parse(text)
    call = request.from_call(settings, "web1", {**DEFAULTS, **asked, **more})
    decided = plan.decide(now, call, disks=_disks(now, call), host_devices=_devices(call))
    changes = live.Live() if running is None else live.decide(parse(running), decided, call)
    removals.refuse(now, decided, changes, call)
    return decided.root


def _disks(now, call):
    """Return the <disk> elements of the call's disks: those that are there, or new ones."""
    if call.disks is None:
        return None
    elements = {
        "system": now.find("devices/disk[1]"),
        "cd": now.find("devices/disk[@device='cdrom']"),
        "data": parse(DISK.format("/srv/web1_data.qcow2", "vdc")),
    }
    return [elements[one.name] for one in call.disks]


def _devices(call):
    if call.host_devices is None:
        return None
    known = domain.read(parse(MORE)).hostdevs
    return [one for name, one in zip(NAMES, known, strict=True) if name in call.host_devices]


@pytest.mark.parametrize(("asked", "lost"), REFUSED, ids=[str(one[0])[:50] for one in REFUSED])
def test_what_a_call_does_not_name_is_not_detached(asked, lost):
    (argument,) = list(asked)[:1]
    if lost is None:
        decide(MORE, asked)
        return
    with pytest.raises(BadArgument) as refused:
        decide(MORE, asked)

    told = str(refused.value)
    assert told.startswith(f"{argument}: VM 'web1' would lose {lost}")
    assert told.endswith("or give detach=True") and "\n" not in told
    decide(MORE, asked, detach=True)
    # Salt 3006 detached it.
    decide(MORE, asked, settings=replace(SETTINGS, compat="3006"))


@pytest.mark.parametrize(
    ("names", "lost"),
    [
        (NAMES, None),
        (NAMES[:1], "USB device 0x1234:0xbeef"),
        (NAMES[1:], "PCI device 0000:03:00.0"),
        ([], "PCI device 0000:03:00.0, USB device 0x1234:0xbeef"),
    ],
)
def test_a_device_of_the_host_stays_unless_the_call_says_so(names, lost):
    if lost is None:
        decide(MORE, {"host_devices": names})
        return
    with pytest.raises(BadArgument, match=f"host_devices: VM 'web1' would lose {lost}, which"):
        decide(MORE, {"host_devices": names})
    decide(MORE, {"host_devices": names}, detach=True)


def test_a_disk_that_only_the_running_vm_has_is_not_detached():
    running = MORE.replace("<interface", DISK.format("/srv/plugged.raw", "vdz") + "<interface")
    asked = {"disks": [SYSTEM, CD]}
    decide(MORE, asked)

    with pytest.raises(BadArgument, match=r"would lose disk vdz \(/srv/plugged.raw\), which"):
        decide(MORE, asked, running=running)

    decide(MORE, asked, running=running, detach=True)


def test_a_disk_that_is_plugged_in_anew_is_not_lost():
    # Its place in the guest is another: it is detached, and attached again.
    running = MORE.replace("dev='vda'", "dev='vdb'", 1).replace(
        "dev='vdb' bus='virtio'/><serial>", "dev='vda' bus='virtio'/><serial>"
    )
    decide(MORE, {"disks": [SYSTEM, CD]}, running=running)


def test_one_display_in_place_of_another_is_no_loss():
    root = decide(XML, {"graphics": {"type": "spice"}})

    assert [one.get("type") for one in root.iterfind("devices/graphics")] == ["spice"]


@pytest.mark.parametrize("value", ["yes", 1, "True"])
def test_detach_is_a_flag(value):
    with pytest.raises(BadArgument, match="detach: .* is neither True nor False"):
        decide(MORE, {}, detach=value)


SIZED = [
    ({"disks": [{"name": "data", "size": 8}]}, True),
    ({"disks": [{"name": "data", "size": 16}]}, False),
    ({"disks": [{"name": "data", "size": 24}]}, False),
    ({"disks": [{"name": "data"}]}, False),
    # A profile's size is that of a new disk.
    ({"disk_profile": "small", "disks": [{"name": "data", "model": "virtio"}]}, False),
    ({"disk_profile": "small", "disks": [{"name": "data", "size": "8m"}]}, True),
]


@pytest.mark.parametrize(("asked", "is_refused"), SIZED, ids=str)
@pytest.mark.parametrize("compat", [None, "3006"])
def test_a_size_below_the_disks_is_refused(hypervisor, asked, is_refused, compat):
    settings = replace(
        hypervisor.settings, compat=compat, disk={"small": [{"name": "data", "size": 8}]}
    )
    hypervisor.settings = settings
    with hypervisor.libvirt() as conn:
        conn.defineXML(XML.replace("<boot order='7'/>", "").replace("<boot dev='hd'/>", ""))
        first = {**DEFAULTS, "disks": [{"name": "data", "size": 16}], "detach": True}
        apply.update(hypervisor.context, request.from_call(settings, "web1", first))
        before = conn.lookupByName("web1").XMLDesc(0)
        for test in (True, False):
            call = request.from_call(settings, "web1", {**DEFAULTS, **asked, "test": test})
            if is_refused and compat is None:
                with pytest.raises(BadArgument) as refused:
                    apply.update(hypervisor.context, call)
                assert str(refused.value) == (
                    "disks: disk 'data' has 16.0M, and the call gives 8.0M: a disk is never made "
                    "smaller; leave out its size, or give at least 16"
                )
                assert conn.lookupByName("web1").XMLDesc(0) == before
            else:
                apply.update(hypervisor.context, call)
