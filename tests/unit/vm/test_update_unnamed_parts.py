"""Of a device that a call names, the parts that the call does not name stay as they are."""

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.vm.update.host import plan, request
from saltvirt.xml import parse
from test_update_calls import DEFAULTS

TEXT = """<domain type='qemu'><name>web1</name><memory>65536</memory><vcpu>1</vcpu>
<os><type>hvm</type></os><on_reboot>restart</on_reboot><devices>{}</devices></domain>"""
VNC = """<graphics type='vnc' port='5905' autoport='no' keymap='de' passwd='s' listen='192.0.2.7'>
<listen type='address' address='192.0.2.7'/></graphics>"""
SPICE = """<graphics type='spice' port='5900' tlsPort='5901' autoport='no' listen='192.0.2.7'>
<listen type='address' address='192.0.2.7'/><image compression='off'/></graphics>"""
TCP = """<serial type='tcp'><source mode='connect' host='192.0.2.9' service='4555' tls='yes'>
<reconnect enabled='yes' timeout='9'/></source><protocol type='raw'/><log file='/var/log/x'/>
<target type='isa-serial' port='0'><model name='isa-serial'/></target></serial>"""
UNIX = """<console type='unix'><source mode='bind' path='/run/x.sock'/>
<target type='virtio' port='1'/></console>"""
E1000 = """<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>
<model type='e1000'/><bandwidth><inbound average='5'/></bandwidth><boot order='1'/></interface>"""
MAC = "52:54:00:00:00:01"


def after(devices, **asked):
    """Return the devices as text after a call, and whether it has changed any."""
    call = request.from_call(HostSettings(), "web1", {**DEFAULTS, **asked})
    decided = plan.decide(parse(TEXT.format(devices)), call)
    return decided.root, decided.changed


IDLE = [
    (VNC, {"graphics": {"type": "vnc"}}),
    (VNC, {"graphics": {"type": "vnc", "keymap": "de"}}),
    (VNC, {"graphics": {"type": "vnc", "port": 5905}}),
    (VNC, {"graphics": {"type": "vnc", "listen": {"type": "address"}}}),
    (SPICE, {"graphics": {"type": "spice"}}),
    (SPICE, {"graphics": {"type": "spice", "tls_port": 5901}}),
    (TCP, {"serials": [{"type": "tcp"}]}),
    (TCP, {"serials": [{"type": "tcp", "port": 4555}]}),
    (TCP, {"serials": [{"host": "192.0.2.9"}]}),
    (UNIX, {"consoles": [{"type": "unix", "target_type": "virtio"}]}),
    (E1000, {"interfaces": [{"bridge": "br0", "mac": MAC}]}),
    (E1000, {"interfaces": [{"bridge": "br0"}]}),
    (E1000, {"interfaces": [{"bridge": "br0", "model": "e1000"}]}),
]


@pytest.mark.parametrize(("devices", "asked"), IDLE, ids=str)
def test_a_call_that_says_what_there_is_changes_nothing(devices, asked):
    assert after(devices, **asked)[1] == ()


@pytest.mark.parametrize(
    ("devices", "asked", "path", "attributes"),
    [
        (VNC, {"graphics": {"type": "vnc", "port": None}}, "graphics", {"autoport": "yes"}),
        (VNC, {"graphics": {"type": "vnc", "port": -1}}, "graphics", {"autoport": "yes"}),
        (
            VNC,
            {"graphics": {"type": "vnc", "keymap": "fr"}},
            "graphics",
            {"port": "5905", "passwd": "s", "keymap": "fr"},
        ),
        (
            SPICE,
            {"graphics": {"type": "spice", "port": 5910}},
            "graphics",
            {"port": "5910", "tlsPort": "5901"},
        ),
        (
            TCP,
            {"serials": [{"type": "tcp", "port": 4556}]},
            "serial/source",
            {"service": "4556", "host": "192.0.2.9", "mode": "connect", "tls": "yes"},
        ),
        (TCP, {"serials": [{"type": "tcp", "port": 4556}]}, "serial/protocol", {"type": "raw"}),
        (
            TCP,
            {"serials": [{"type": "tcp", "port": 4556}]},
            "serial/source/reconnect",
            {"timeout": "9"},
        ),
        (
            E1000,
            {"interfaces": [{"bridge": "br1", "mac": MAC}]},
            "interface/model",
            {"type": "e1000"},
        ),
        (
            E1000,
            {"interfaces": [{"bridge": "br0", "mac": MAC, "model": "virtio"}]},
            "interface/model",
            {"type": "virtio"},
        ),
    ],
)
def test_only_what_a_call_names_is_changed(devices, asked, path, attributes):
    root, changed = after(devices, **asked)

    assert changed == tuple(asked)
    element = root.find(f"devices/{path}")
    assert attributes.items() <= element.attrib.items(), element.attrib
