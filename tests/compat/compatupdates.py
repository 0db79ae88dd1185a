"""
More of ``virt.update``, and of the states that call it: all that its documentation names, given
alone, and given again. Rows as in compatrows.py.
"""

from compatkit import did, state, virt, xml

TUNING = {
    "vcpupin": {0: "0-1", 1: "2,3"},
    "emulatorpin": "0-3",
    "iothreadpin": {1: "5,6"},
    "shares": 2048,
    "period": 122000,
    "quota": -1,
    "global_period": 1000000,
    "global_quota": -3,
    "emulator_period": 120000,
    "emulator_quota": -10,
    "iothread_period": 133000,
    "iothread_quota": -1,
    "vcpusched": [{"scheduler": "fifo", "priority": 1, "vcpus": "0"}],
    "iothreadsched": [{"scheduler": "idle", "iothreads": "1"}],
    "emulatorsched": {"scheduler": "rr", "priority": 2},
    "memorytune": {"0-1": {0: 60}},
}


def up(label, name="off1", *, first=(), **given):
    """Return an update, and the second of two."""
    again = [*first, did("update", name, **given)]
    return [
        virt("update", name, label=label, first=first, **given),
        virt("update", name, label=f"{label}, again", first=again, **given),
    ]


ROUTE = {
    "name": "eth0",
    "model": "virtio",
    "type": "network",
    "source": "lan",
    "mac": "52:54:00:aa:00:21",
}
BR0 = {
    "name": "eth0",
    "model": "virtio",
    "type": "bridge",
    "source": "br0",
    "mac": "52:54:00:aa:00:01",
}
WIRED = {
    "name": "eth1",
    "type": "network",
    "source": "default",
    "model": "e1000",
    "mac": "52:54:00:aa:00:02",
}
KERNEL = {"kernel": "/FOLDER/srv/k", "initrd": "/FOLDER/srv/i", "cmdline": "a=1 b"}
GIVEN_USB = [did("update", "off1", host_devices=["usb_1_4"])]
LIMITED = did("update", "off1", mem={"soft_limit": "512m"})
TUNED = did("update", "off1", cpu={"tuning": {"shares": 2048}})
FILES = [xml("k", "k"), xml("i", "i")]
# Lists that leave out what the VM has, without detach=True.
LEFT_OUT = [
    virt("update", "off1", label="a disk left out", disks=[]),
    virt("update", "off1", label="a device left out", host_devices=[], first=GIVEN_USB),
]
UPDATES = [
    *up("cpu: tuning alone", cpu={"tuning": {"shares": 2048}}),
    *up("cpu: tuning alone of one that runs", "web1", cpu={"tuning": {"shares": 2048}}),
    *up("cpu: mode alone", cpu={"mode": "host-passthrough"}),
    *up("cpu: cpuset alone", cpu={"cpuset": "0-3,^2"}),
    *up("cpu: iothreads alone", cpu={"iothreads": 2}),
    *up(
        "cpu: features alone", cpu={"model": {"name": "core2duo"}, "features": {"lahf": "require"}}
    ),
    *up("cpu: current alone", cpu={"current": 1}),
    *up("mem: a limit alone", mem={"soft_limit": "512m"}),
    *up("mem: a limit of one that runs", "web1", mem={"soft_limit": "512m"}),
    *up("mem: current alone", mem={"current": "256m"}),
    *up("mem: current of one that runs", "web1", mem={"current": "512m"}),
    *up("mem: of many units", mem={"boot": "0.5g", "current": "262144 KiB"}),
    *up("mem: no limit", mem={"soft_limit": None}, first=[LIMITED]),
    virt("update", "off1", label="cpu: no tuning", cpu={"tuning": None}, first=[TUNED]),
    *up("cpu: no shares", cpu={"tuning": {"shares": None}}, first=[TUNED]),
    *up("a clock of nothing", clock={}),
    *up("a timer", clock={"timers": {"hpet": {"present": True}}}),
    *up(
        "no cmdline",
        boot={**KERNEL, "cmdline": None},
        first=[*FILES, did("update", "off1", boot=KERNEL)],
    ),
    *up("0 of both", cpu=0, mem=0),
    *up("all that is default", disk_profile=None, nic_profile=None, disks=None, live=True),
    *up("no consoles", consoles=[]),
    *up("other consoles", consoles=[{"type": "pty"}, {"type": "pty", "target_type": "virtio"}]),
    virt(
        "update",
        "off1",
        label="a NIC of a card",
        interfaces=[{**ROUTE, "type": "direct", "source": "eth0"}],
    ),
    *up("two devices", host_devices=["pci_0000_02_10_7", "usb_1_4"]),
    *up("cpus", cpu=4),
    *up("cpu: maximum", cpu={"maximum": 4, "current": 2}),
    *up("cpu: placement", cpu={"maximum": 4, "placement": "static", "cpuset": "0-3"}),
    *up("cpu: mode", cpu={"maximum": 1, "mode": "host-passthrough", "check": "none"}),
    *up(
        "cpu: model",
        cpu={
            "maximum": 8,
            "match": "minimum",
            "mode": "custom",
            "check": "full",
            "vendor": "Intel",
            "model": {"name": "core2duo", "fallback": "allow", "vendor_id": "GenuineIntel"},
            "topology": {"sockets": 1, "cores": 4, "threads": 2},
            "cache": {"level": 3, "mode": "emulate"},
            "features": {"lahf": "optional", "pcid": "disable"},
        },
    ),
    *up(
        "cpu: vcpus",
        cpu={
            "maximum": 2,
            "vcpus": {
                0: {"enabled": True, "hotpluggable": False, "order": 1},
                1: {"enabled": True, "hotpluggable": True, "order": 2},
            },
        },
    ),
    *up(
        "cpu: numa",
        cpu={
            "maximum": 4,
            "numa": {
                0: {"cpus": "0-1", "memory": "256m", "discard": True, "distances": {0: 10, 1: 21}},
                1: {"cpus": "2-3", "memory": "256m", "discard": False, "distances": {0: 21, 1: 10}},
            },
        },
    ),
    *up("cpu: tuning", cpu={"maximum": 2, "iothreads": 2, "tuning": TUNING}),
    *up("mem: all", mem={"boot": "512m", "current": "256m", "max": "1g", "slots": 4}),
    *up("mem: boot", mem={"boot": "512m", "current": "256m"}),
    *up(
        "mem: limits",
        mem={
            "boot": "512m",
            "hard_limit": "1g",
            "soft_limit": "512 MiB",
            "swap_hard_limit": "1g",
        },
    ),
    *up(
        "mem: backing",
        mem={
            "boot": "512m",
            "nosharepages": True,
            "locked": True,
            "source": "file",
            "access": "shared",
            "allocation": "immediate",
            "discard": True,
        },
    ),
    *up("mem: pages", mem={"boot": "512m", "hugepages": [{"size": "2m"}]}),
    *up("mem of one that runs", "web1", mem=512),
    *up("more mem of one that runs", "web1", mem=2048),
    *up("cpus of one that runs", "web1", cpu=1),
    *up("live=False", "web1", mem=512, live=False),
    *up("kernel", boot=KERNEL, first=FILES),
    *up(
        "no kernel", boot=dict.fromkeys(KERNEL), first=[*FILES, did("update", "off1", boot=KERNEL)]
    ),
    *up(
        "loader", "snapped", boot={"loader": "/FOLDER/srv/k", "nvram": "/FOLDER/srv/i"}, first=FILES
    ),
    virt("update", "off1", label="no loader", fails=True, boot={"loader": None}),
    virt("update", "off1", label="a kernel that is not there", boot=KERNEL),
    virt("update", "web1", label="cpu, test", cpu=1, test=True),
    virt("update", "off1", label="autostart, test", autostart=True, test=True),
    *up("boot devices", boot_dev="cdrom network hd"),
    *up("stop_on_reboot", stop_on_reboot=True),
    *up("UTC", clock={"utc": True}),
    *up("local time", clock={"utc": False}),
    *up("a zone", clock={"timezone": "Europe/Paris"}),
    virt(
        "update",
        "off1",
        label="a zone, adjusted",
        clock={"timezone": "CEST", "adjustment": 3600},
    ),
    virt(
        "update",
        "off1",
        label="a zone after an adjustment",
        clock={"timezone": "CEST"},
        first=[did("update", "off1", clock={"adjustment": 9})],
    ),
    virt("update", "off1", label="mem: 8 bytes", mem={"boot": "8byte"}, fails=True),
    virt("update", "off1", label="mem: an empty size", mem={"boot": ""}, fails=True),
    *up("a device of another name", host_devices=["pci_1002_71c4"]),
    *up("an adjustment", clock={"utc": True, "adjustment": "reset"}),
    *up("seconds", clock={"adjustment": 3600, "utc": True}),
    *up(
        "timers",
        clock={
            "timers": {
                "tsc": {"frequency": 3504000000, "mode": "native"},
                "rtc": {
                    "track": "wall",
                    "tickpolicy": "catchup",
                    "slew": 4636,
                    "threshold": 123,
                    "limit": 2342,
                },
                "hpet": {"present": False},
            }
        },
    ),
    *up("hint", hypervisor_features={"kvm-hint-dedicated": True}),
    *up("numatune", numatune={"memory": {"mode": "strict", "nodeset": "0"}}),
    *up("no disks", disks=[], detach=True),
    *up("no disks of one that runs", "web1", disks=[], detach=True),
    *up("a NIC more", interfaces=[ROUTE]),
    *up("the same NICs", "web1", interfaces=[BR0, WIRED]),
    *up("a NIC less", "web1", interfaces=[BR0], detach=True),
    *up("no NICs", "web1", interfaces=[], detach=True),
    *LEFT_OUT,
    *up("another bridge", "web1", interfaces=[{**BR0, "source": "br7"}, WIRED]),
    *up("no display", graphics={"type": "none"}),
    *up("a display of nothing", graphics={}),
    *up("empty parts", cpu={"numa": {}, "topology": {}, "model": {}, "tuning": {"vcpupin": {}}}),
    *up("no display of one that runs", "web1", graphics={"type": "none"}),
    *up(
        "VNC",
        graphics={"type": "vnc", "port": 5999, "listen": {"type": "address", "address": "::1"}},
    ),
    *up("no serials", serials=[], detach=True),
    *up(
        "telnet", serials=[{"type": "tcp", "host": "127.0.0.1", "port": 5555, "protocol": "telnet"}]
    ),
    *up(
        "TLS",
        serials=[
            {"type": "tcp", "host": "127.0.0.1", "port": 5555, "protocol": "raw", "tls": True}
        ],
    ),
    *up("a virtio console", consoles=[{"type": "pty", "target_type": "virtio"}]),
    *up("a device", host_devices=["pci_0000_02_10_7"]),
    *up(
        "no devices",
        host_devices=[],
        detach=True,
        first=[did("update", "off1", host_devices=["usb_1_4"])],
    ),
    *up("autostart", autostart=True),
    virt(
        "update",
        "off1",
        label="as Uyuni's second step",
        boot={"kernel": None, "initrd": None, "cmdline": None},
        live=False,
        stop_on_reboot=False,
        first=[*FILES, did("update", "off1", boot=KERNEL, stop_on_reboot=True)],
    ),
    virt("update", "off1", 2, 256, label="by position"),
    virt("update", "nobody", label="none", fails=True, mem=512),
]
DEFINED = {
    "cpus": {"cpu": 4},
    "mem": {"mem": 256},
    "both": {"cpu": 2, "mem": 1024},
    "a kernel": {"boot": KERNEL},
    "boot devices": {"boot_dev": "cdrom hd"},
    "a NIC": {"interfaces": [ROUTE]},
    "no display": {"graphics": {"type": "none"}},
    "a serial": {"serials": [{"type": "pty"}]},
    "a clock": {"clock": {"utc": False}},
    "a device": {"host_devices": ["usb_1_4"]},
    "autostart": {"autostart": True},
    "stop_on_reboot": {"stop_on_reboot": True},
    "live=False": {"mem": 256, "live": False},
    "nothing": {},
}
STATES = [
    *(
        one
        for label, given in DEFINED.items()
        for one in state("defined", "off1", label=label, first=FILES, **given)
    ),
    *(
        one
        for label, given in DEFINED.items()
        if "live" not in given
        for one in state("running", "off1", label=label, first=FILES, **given)
    ),
    *state("running", "web1", label="runs already"),
    *state("running", "web1", label="runs, mem", mem=512),
    *state("running", "web1", label="runs, cpu", cpu=1),
]
MORE_UPDATES = [*UPDATES, *STATES]
