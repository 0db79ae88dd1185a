"""With ``virt:compat: 3006`` a call of ``virt.init`` leads to what it led to on Salt 3006."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from compatkit import lay_out, run
from flatxml import flat
from saltvirt import config, spec
from saltvirt.xml import domain

WHO = ("new", 1, 64)
NONE = {"disk": None, "nic": None}
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
    "a clock": {**NONE, "clock": {"timers": {"hpet": {"present": False}}}},
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
    "/devices/serial/target": "libvirt numbers them so",
    "/devices/serial1/target": "libvirt numbers them so",
    "/devices/console/target": "libvirt numbers them so",
    "/devices/graphics@listen": "the same as its <listen>",
    "/devices/interface/mac": "libvirt makes one by chance",
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
    for one in root.iter("cputune"):
        one.clear()
    return {path: value for path, value in flat(root).items() if value.strip()}


def ours(given, settings):
    """Return what we give libvirt for a call."""
    made = spec.deployment(settings, *WHO, {"hypervisor": "kvm", **given}).vm
    disks = [
        one if one.device == "cdrom" else replace(one, path=where(one), format=format_of(one))
        for one in made.disks
    ]
    return said(domain.build(replace(made, disks=tuple(disks), arch="x86_64")))


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


@pytest.mark.parametrize("name", CALLS)
def test_with_the_option_it_is_what_it_was(theirs, name):
    made = ours(CALLS[name], config.host_settings({"virt": {"compat": 3006}}))
    if not {"serials", "consoles"} & CALLS[name].keys():
        # One that nobody asked for, with a log.
        made = {path: one for path, one in made.items() if not is_port(path)}

    assert differing(theirs[name], made) == {}
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
