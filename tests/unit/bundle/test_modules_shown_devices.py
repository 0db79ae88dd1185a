"""Devices and displays as Salt 3006.25 showed them (salt/modules/virt.py 464-480, 4457-4553)."""

import pytest
from saltvirt.xml.edit import readdomain
from saltvirt.xml.node import nodedev

PCI = """<device><name>pci_0000_3d_00_0</name><parent>pci_0000_3c_00_0</parent>
<capability type='pci'><class>0x020000</class><domain>0</domain><bus>61</bus><slot>0</slot>
<function>0</function>{more}<product id='0x37D0'/><vendor id='0x8086'>Intel</vendor></capability>
</device>"""
VIRTUAL = """<capability type='virt_functions' maxCount='32'>
<address domain='0x0000' bus='0x3d' slot='0x02' function='0x1'/></capability>"""
PHYSICAL = """<capability type='phys_function'>
<address domain='0x0000' bus='0x3d' slot='0x00' function='0x3'/></capability>"""
USB = """<device><name>usb_3_1_3</name><capability type='usb_device'><bus>3</bus>
<device>4</device><product id='0x6006'>Mouse</product><vendor id='{vendor}'>Dell</vendor>
</capability></device>"""
NET = """<device><name>net_enp1s0_aa</name><parent>{parent}</parent><capability type='net'>
<interface>enp1s0</interface><address>52:54:00:00:00:01</address>
<link speed='1000' state='up'/><capability type='80203'/></capability></device>"""
SHOWN = {
    "name": "pci_0000_3d_00_0",
    "caps": "pci",
    "vendor_id": "0x8086",
    "product_id": "0x37d0",
    "vendor": "Intel",
    "address": "0000:3d:00.0",
    "PCI class": "0x020000",
}


@pytest.mark.parametrize(
    ("more", "added"),
    [
        ("", {}),
        (VIRTUAL, {"virtual functions": ["0000:3d:02.1"]}),
        (PHYSICAL, {"physical function": "0000:3d:00.3"}),
        # virNodeDeviceListCaps() of QEMU's driver returns these, too; the test driver's does not.
        ("<capability type='vpd'/><capability type='mdev_types'/>", {"caps": "pci mdev_types vpd"}),
    ],
)
def test_a_pci_device_is_shown_with_its_functions(more, added):
    assert nodedev.describe(PCI.format(more=more)) == {**SHOWN, **added}


def test_a_usb_device_and_a_link_are_shown():
    assert nodedev.describe(USB.format(vendor="0x413C"))["address"] == "003:004"
    assert nodedev.describe(NET.format(parent="pci_0000_01_00_0")) == {
        "name": "enp1s0",
        "caps": "net",
        "address": "52:54:00:00:00:01",
        "device name": "pci_0000_01_00_0",
        "state": "up",
    }


@pytest.mark.parametrize(
    "text",
    [
        PCI.format(more="<capability type='pci-bridge'/>"),
        USB.format(vendor="0x1d6b").replace("0x6006", "0x0003"),
        NET.format(parent="computer"),
        "<device><name>computer</name><capability type='system'/></device>",
    ],
)
def test_devices_that_no_vm_can_have_are_left_out(text):
    assert nodedev.describe(text) is None


def test_a_display_is_shown_whole_but_for_its_password():
    vnc = "<graphics type='vnc' port='5900' websocket='5700' passwd='x'><listen address='::1'/>"
    spice = "<graphics type='spice' tlsPort='5901' autoport='no'/>"
    root = readdomain.domain(f"<domain><devices>{vnc}</graphics>{spice}</devices></domain>")

    assert readdomain.graphics(root) == {
        "autoport": "no",
        "keymap": "None",
        "listen": "::1",
        "port": "5900",
        "type": "spice",
        "websocket": "5700",
        "tlsPort": "5901",
    }
