"""With ``virt:compat: 3006`` what a call adds has 3006's defaults, and what is there stays."""

from dataclasses import replace

import pytest
from saltvirt.core.model import Disk
from saltvirt.core.nics import mac_for
from saltvirt.core.options import config
from saltvirt.vm.update.host import disks, plan, request
from saltvirt.xml import parse
from saltvirt.xml.domain import disk, graphics

NEW = config.HostSettings()
OLD = config.host_settings({"virt": {"compat": 3006}})
NOTHING = dict.fromkeys(
    ("cpu mem boot boot_dev numatune hypervisor_features clock graphics serials consoles").split()
    + ["host_devices", "disk_profile", "disks", "nic_profile", "interfaces"]
    + ["stop_on_reboot", "autostart"]
) | {"live": True, "test": False}
VM = """<domain type='kvm'><name>web1</name><memory>1</memory><os><type>hvm</type></os><devices>
<interface type='bridge'><mac address='52:aa:bb:cc:dd:ee'/><source bridge='br0'/>
<model type='virtio'/></interface>{}</devices></domain>"""
DISPLAY = "<graphics type='vnc'><listen type='address' address='127.0.0.1'/></graphics>"


def after(settings, devices="", **given):
    """Return what a call makes of the VM."""
    asked = request.from_call(settings, "web1", {**NOTHING, **given})
    return plan.decide(parse(VM.format(devices)), asked).root


@pytest.mark.parametrize(("settings", "address"), [(NEW, "127.0.0.1"), (OLD, "0.0.0.0")])
def test_a_new_display_listens_where_it_did(settings, address):
    (made,) = map(graphics.read, after(settings, graphics={"type": "vnc"}).iter("graphics"))

    assert made.listen == {"type": "address", "address": address}


def test_a_display_that_is_there_is_not_opened():
    (made,) = map(graphics.read, after(OLD, DISPLAY, graphics={"type": "vnc"}).iter("graphics"))

    assert made.listen["address"] == "127.0.0.1"


@pytest.mark.parametrize(("settings", "maker"), [(NEW, mac_for("web1", "b")), (OLD, "52:54:00:")])
def test_a_new_nic_has_the_mac_that_it_had(settings, maker):
    asked = [{"name": "a"}, {"name": "b"}]
    for one in asked:
        one |= {"type": "bridge", "source": "br0"}

    macs = [one.get("address") for one in after(settings, interfaces=asked).iter("mac")]

    assert macs[0] == "52:aa:bb:cc:dd:ee" and macs[1].startswith(maker)


@pytest.mark.parametrize(("settings", "type_"), [(NEW, "pty"), (OLD, "tcp")])
def test_a_serial_that_says_nothing_is_what_it_was(settings, type_):
    made = list(after(settings, serials=[{}]).iter("serial"))

    assert [one.get("type") for one in made] == [type_]


def test_a_new_disk_has_its_cache_and_one_that_is_there_keeps_its_own():
    asked = request.from_call(OLD, "web1", {**NOTHING, "disks": [{"name": "a", "size": 8}]})
    (wanted,) = asked.disks
    decided = replace(wanted, path="/srv/a.qcow2", format="qcow2")
    there = disk.build(disk.from_call(Disk(name="a", target="vda", path="/srv/a.qcow2")))

    new, kept = (
        disk.read(
            disks.build_element(disks.Pair(requested=wanted, element=one), decided, "vda", False)
        )
        for one in (None, there)
    )

    assert (new.driver["cache"], new.driver["io"]) == ("none", "native")
    assert kept == disk.read(there)
    assert wanted.overlay is False
