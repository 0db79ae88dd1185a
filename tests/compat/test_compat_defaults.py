"""With ``virt:compat: 3006`` a call of ``virt.init`` leads to what it led to on Salt 3006."""

from dataclasses import replace
from xml.etree import ElementTree

import olddocs
import pytest
from compatkit import lay_out, run
from flatxml import flat
from saltvirt.core.options import config
from saltvirt.vm import spec
from saltvirt.xml.domain import domain

WHO = ("new", 1, 64)
NONE = {"disk": None, "nic": None}
TWO = {
    "maximum": 2,
    "current": 1,
    "vcpus": {
        0: {"enabled": True, "hotpluggable": False, "order": 1},
        1: {"enabled": False, "hotpluggable": True},
    },
}
LOOPBACK = {"type": "address", "address": "127.0.0.1"}
CALLS = {
    "nothing": NONE,
    "a disk": {**NONE, "disks": [{"name": "system", "size": 8}]},
    "a raw disk by threads": {
        **NONE,
        "disks": [{"name": "a", "size": 8, "format": "raw", "io": "threads", "model": "scsi"}],
    },
    "an empty drive": {
        **NONE,
        "disks": [{"name": "cd", "device": "cdrom", "source_file": None, "model": "sata"}],
    },
    "a NIC with a MAC": {
        "disk": None,
        "interfaces": [{"name": "eth0", "mac": "52:54:00:bb:00:07"}],
    },
    "a NIC": {"disk": None, "interfaces": [{"name": "eth0", "type": "network", "source": "lan"}]},
    "vnc": {**NONE, "graphics": {"type": "vnc"}},
    "vnc on loopback": {**NONE, "graphics": {"type": "vnc", "listen": LOOPBACK}},
    "vnc at a port": {
        **NONE,
        "graphics": {"type": "vnc", "port": 5999, "listen": {"type": "address"}},
    },
    "vnc on nothing": {**NONE, "graphics": {"type": "vnc", "listen": {"type": "none"}}},
    "spice": {**NONE, "graphics": {"type": "spice", "tls_port": 5999}},
    "no display": {**NONE, "graphics": {"type": "none"}},
    "a serial": {**NONE, "serials": [{}]},
    "two serials": {**NONE, "serials": [{"port": 5000}, {"protocol": "raw", "tls": True}]},
    "a pty": {**NONE, "serials": [{"type": "pty"}]},
    "a console": {**NONE, "consoles": [{"target_type": "serial", "target_port": 0}]},
    "a NIC that says nothing": {"disk": None, "nic": None, "interfaces": [{"name": "eth1"}]},
    "NICs of all spellings": {
        "disk": None,
        "nic": None,
        "interfaces": [
            {"name": "eth0", "bridge": "br1", "mac": "52:54:00:bb:00:07"},
            {"name": "eth1", "network": "lan", "mac": "52:54:00:bb:00:08", "model": "e1000"},
        ],
    },
    "a tuned CPU": {**NONE, "cpu": olddocs.but(olddocs.TUNED, feature=None, vcpus=None)},
    "a CPU of two that is not there yet": {**NONE, "cpu": TWO},
    # Without `max` and `slots`: QEMU starts no VM with slots and nothing to fill them.
    "memory": {**NONE, "mem": olddocs.but(olddocs.MEMORY, max=None, slots=None)},
    "NUMA": {**NONE, "numatune": {"memory": {"mode": "strict", "nodeset": "0-1"}}},
    "a kernel": {**NONE, "boot": {"kernel": "/k", "initrd": "/i", "cmdline": "a=1 b"}},
    "a loader": {**NONE, "boot": {"loader": "/l.fd", "nvram": "/n.fd"}},
    "EFI": {**NONE, "boot": {"efi": True}},
    "boot devices": {**NONE, "boot_dev": "network hd cdrom", "stop_on_reboot": True},
    "a hint": {**NONE, "hypervisor_features": {"kvm-hint-dedicated": True}},
    "local time": {**NONE, "clock": {"utc": False}},
    "a time zone": {**NONE, "clock": {"timezone": "CEST"}},
    "timers": {
        **NONE,
        "clock": {"timers": {"rtc": {"track": "guest", "tickpolicy": "delay", "slew": 46}}},
    },
    "disks of all buses": {
        **NONE,
        "disks": [
            {"name": one, "size": 8, "model": one, "io": "io_uring", "iothread_id": 1}
            for one in ("virtio", "scsi", "ide", "sata", "usb")
        ],
    },
    "remote media": {
        **NONE,
        "disks": [
            {"name": "cd", "device": "cdrom", "source_file": "http://w.example:80/x.iso?a=1&b=2"}
        ],
    },
    "a display of each kind": {**NONE, "graphics": {"type": "rdp", "port": 5999}},
    "devices of the host": {**NONE, "host_devices": ["pci_0000_02_10_7", "usb_1_4"]},
    "ports of all types": {
        **NONE,
        "serials": [
            *({"type": one, "path": "/p"} for one in ("file", "dev", "pipe", "unix")),
            {"type": "pty", "target_port": 7, "target_type": "isa-serial"},
        ],
        "consoles": [{"type": "pty", "target_type": "virtio"}, {"port": 5555, "tls": True}],
    },
    "a clock": {**NONE, "clock": {"timers": {"hpet": {"present": False}}}},
}
DEVICES = {
    "pci_0000_02_10_7": {"name": "pci_0000_02_10_7", "address": "0000:02:10.7"},
    "usb_1_4": {"name": "usb_1_4", "vendor_id": "0x8087", "product_id": "0x0024"},
}
# What is ours alone, and opens nothing: docs/compat.md says what of it stays.
OURS = {
    "/metadata": "our notes",
    "/on_poweroff": "libvirt's own default",
    "/on_crash": "libvirt's own default",
    "/clock@offset": "libvirt's own default",
    "/devices/rng": "entropy",
    "/devices/video": "a card that a display needs",
    "/devices/serial/log": "virt:console_log",
    "/devices/console/log": "virt:console_log",
    "/cpu/numa/cell@unit": "libvirt's own default",
    "/cpu/numa/cell1@unit": "libvirt's own default",
    "/cputune/cachetune/cache@unit": "libvirt's own default",
    "/cputune/cachetune/cache1@unit": "libvirt's own default",
    **{
        f"/devices/{port}/target": "libvirt numbers them so"
        for port in ("serial", "serial1", "serial2", "serial3", "console", "console1")
    },
    "/devices/graphics@listen": "the same as its <listen>",
    "/devices/interface/mac": "libvirt makes one by chance",
    "/devices/controller": "the virtio-scsi controller of SCSI disks",
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """What Salt 3006 gives libvirt: ``{call: {path: text}}``."""
    folder = tmp_path_factory.mktemp("init") / "side"
    lay_out(folder)
    job = {"folder": str(folder), "ours": None, "who": WHO, "calls": list(CALLS.values())}
    texts = run(folder, "3006", "initside.py", job)
    return dict(zip(CALLS, map(said, texts), strict=True))


def said(text):
    """Return all that a domain's XML says, with libvirt's words for the same thing."""
    root = ElementTree.fromstring(text)
    return {path: value for path, value in flat(root).items() if value.strip()}


def ours(given, settings):
    """Return what we give libvirt for a call."""
    given = {"hypervisor": "kvm", **given}
    who = [given.pop(key, one) for key, one in zip(("name", "cpu", "mem"), WHO, strict=True)]
    made = spec.deployment(settings, *who, given).vm
    disks = [
        one if one.device == "cdrom" else replace(one, path=where(one), format=format_of(one))
        for one in made.disks
    ]
    devices = [DEVICES[name] for name in made.host_devices]
    return said(domain.build(replace(made, disks=tuple(disks), arch="x86_64"), devices))


def format_of(disk):
    return disk.format or "qcow2"


def where(disk):
    return f"/FOLDER/images/new_{disk.name}.{format_of(disk)}"


def differing(left, right):
    """Return the paths at which two domains differ, but for what is ours alone."""
    paths = {path for path in left.keys() | right.keys() if left.get(path) != right.get(path)}
    return {path: (left.get(path), right.get(path)) for path in paths if not is_ours(path)}


def is_ours(path):
    return any(path == one or path.startswith((f"{one}/", f"{one}@")) for one in OURS)


def kept(domain):
    """Return a domain as libvirt keeps it: one without a port does not say who chooses it."""
    display = "/devices/graphics"
    has_none = domain.get(f"{display}/listen@type") == "none"
    is_rdp = domain.get(f"{display}@type") == "rdp"
    dropped = has_none or (is_rdp and domain.get(f"{display}@autoport") == "no")
    return {
        path: one for path, one in domain.items() if path != f"{display}@autoport" or not dropped
    }


@pytest.mark.parametrize("name", CALLS)
def test_with_the_option_it_is_what_it_was(theirs, name):
    made = ours(CALLS[name], config.host_settings({"virt": {"compat": 3006}}))
    if not {"serials", "consoles"} & CALLS[name].keys():
        # One that nobody asked for, with a log.
        made = {path: one for path, one in made.items() if not is_port(path)}

    assert differing(kept(theirs[name]), kept(made)) == {}
    if name == "a NIC":
        assert made["/devices/interface/mac@address"].startswith("52:54:00:")


def is_port(path):
    return path.startswith(("/devices/serial", "/devices/console"))


def test_nothing_is_called_ours_alone_that_is_not(theirs):
    settings = config.host_settings({"virt": {"compat": 3006}})
    pairs = [(theirs[name], ours(given, settings)) for name, given in CALLS.items()]
    paths = {path for a, b in pairs for path in a.keys() | b.keys() if a.get(path) != b.get(path)}

    unused = [one for one in OURS if not any(path.startswith(one) for path in paths)]
    assert unused == []


OPEN = ("vnc", "vnc at a port", "spice", "a serial", "two serials", "a console")


@pytest.mark.parametrize("name", OPEN)
def test_without_it_nothing_opens(theirs, name):
    closed = ours(CALLS[name], config.HostSettings())

    assert "0.0.0.0" in theirs[name].values()
    assert "0.0.0.0" not in closed.values()
