"""
The SLS of the documentation of Salt 3006.25's ``states/virt.py``, as far as they are whole.

``DOCUMENTED`` are ``(what, state, arguments)``. What stands there for a choice of the site's, such
as the profile ``prod`` or an image, is what the tests have. ``NEVER`` are those that cannot be
applied as they stand there, on that release neither, with what is said of them now; each stands in
``DOCUMENTED`` in a form that can.
"""

CPU = {
    "placement": "static",
    "cpuset": "0-11",
    "current": 5,
    "maximum": 12,
    "vcpus": {
        0: {"enabled": "yes", "hotpluggable": "no", "order": 1},
        1: {"enabled": "no", "hotpluggable": "yes"},
    },
    "match": "minimum",
    "mode": "custom",
    "check": "full",
    "vendor": "Intel",
    "model": {"name": "core2duo", "fallback": "allow", "vendor_id": "GenuineIntel"},
    "topology": {"sockets": 1, "cores": 12, "threads": 1},
    "cache": {"level": 3, "mode": "emulate"},
    "feature": {"policy": "optional", "name": "lahf_lm"},
    "numa": {
        0: {
            "cpus": "0-3",
            "memory": "1g",
            "discard": "yes",
            "distances": {0: 10, 1: 21, 2: 31, 3: 41},
        },
        1: {
            "cpus": "4-6",
            "memory": "1g",
            "memAccess": "shared",
            "distances": {0: 21, 1: 10, 2: 21, 3: 31},
        },
    },
    "tuning": {
        "vcpupin": {0: "1-4,^2", 1: "0,1", 2: "2,3", 3: "0,4"},
        "emulatorpin": "1-3",
        "iothreadpin": {1: "5,6", 2: "7,8"},
        "shares": 2048,
        "period": 1000000,
        "quota": -1,
        "global_period": 1000000,
        "global_quota": -1,
        "emulator_period": 1000000,
        "emulator_quota": -1,
        "iothread_period": 1000000,
        "iothread_quota": -1,
        "vcpusched": [
            {"scheduler": "fifo", "priority": 1},
            {"scheduler": "fifo", "priority": 2, "vcpus": "1-3"},
            {"scheduler": "rr", "priority": 3, "vcpus": 4},
        ],
        "iothreadsched": [{"scheduler": "batch", "iothreads": 2}],
        "emulatorsched": {"scheduler": "idle"},
        "cachetune": {
            "0-3": {
                0: {"level": 3, "type": "both", "size": 4},
                1: {"level": 3, "type": "both", "size": 6},
                "monitor": {1: 3, "0-3": 3},
            },
            "4-5": {"monitor": {4: 3, 5: 3}},
        },
        "memorytune": {"0-3": {0: 60}, "4-5": {0: 60}},
    },
    "iothreads": 4,
}
MEMORY = {
    "boot": "1g",
    "current": "1g",
    "max": "1g",
    "slots": 10,
    "hard_limit": 1024,
    "soft_limit": "512m",
    "swap_hard_limit": "1g",
    "min_guarantee": "512mib",
    "hugepages": [{"size": "2m"}, {"nodeset": "0-2", "size": "1g"}, {"nodeset": 3, "size": "2g"}],
    "nosharepages": True,
    "locked": True,
    "source": "file",
    "access": "shared",
    "allocation": "immediate",
    "discard": True,
}
VM = {
    "cpu": 2,
    "mem": 2048,
    "boot_dev": "network hd",
    "disk_profile": "prod",
    "disks": [
        {
            "name": "system",
            "size": 8192,
            "overlay_image": True,
            "pool": "default",
            "image": "IMAGE",
        },
        {"name": "data", "size": 16834},
    ],
    "nic_profile": "prod",
    "interfaces": [
        {"name": "eth0", "mac": "01:23:45:67:89:AB"},
        {"name": "eth1", "type": "network", "source": "admin"},
    ],
    "graphics": {"type": "spice", "listen": {"type": "address", "address": "192.168.0.125"}},
}


def but(given, **other):
    """Return arguments with others in their places; None takes one out."""
    return {key: one for key, one in {**given, **other}.items() if one is not None}


PLAIN = {"cpu": 1, "mem": 64, "seed": False}
SCHED = [
    {"scheduler": "fifo", "priority": 2, "vcpus": "1-3"},
    {"scheduler": "rr", "priority": 3, "vcpus": 4},
]
DNS = {
    "forwarders": [
        {"domain": "example.com", "addr": "192.168.1.1"},
        {"addr": "8.8.8.8"},
        {"domain": "www.example.com"},
    ],
    "txt": {"example.com": "v=spf1 a -all", "_http.tcp.example.com": "name=value,paper=A4"},
    "hosts": {"192.168.1.2": ["mirror.acme.lab", "test.acme.lab"]},
    "srvs": [
        {
            "name": "ldap",
            "protocol": "tcp",
            "domain": "ldapserver.example.com",
            "target": ".",
            "port": 389,
            "priority": 1,
            "weight": 10,
        }
    ],
}
TXT = {
    "host.widgets.com.": "printer=lpr5",
    "example.com.": "This domain name is reserved for use in documentation",
}
NATTED = {
    "bridge": "natted",
    "forward": "nat",
    "ipv4_config": {
        "cidr": "192.168.42.0/24",
        "dhcp_ranges": [
            {"start": "192.168.42.10", "end": "192.168.42.25"},
            {"start": "192.168.42.100", "end": "192.168.42.150"},
        ],
    },
    "autostart": True,
}
MAIN = {
    "bridge": "main",
    "forward": "bridge",
    "vport": "openvswitch",
    "tag": 180,
    "autostart": True,
}
VPORT = {
    "type": "openvswitch",
    "parameters": {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"},
}
TAG = {"trunk": True, "tags": [{"id": 42, "nativeMode": "untagged"}, {"id": 47}]}
PORTS = {"address": {"start": "1.2.3.4", "end": "1.2.3.10"}, "port": {"start": 500, "end": 1000}}
CIFS = {
    "ptype": "netfs",
    "target": "/mnt/cifs",
    "permissions": [{"mode": "0770"}, {"owner": 1000}, {"group": 100}],
    "source": {
        "dir": "samba_share",
        "hosts": ["one.example.com", "two.example.com"],
        "format": "cifs",
    },
    "autostart": True,
}
CELLS = {
    number: {**cell, "distances": {key: cell["distances"][key] for key in (0, 1)}}
    for number, cell in CPU["numa"].items()
}
NIC = {"name": "eth0", "mac": "00:23:45:67:89:AB"}
WITH_NICS = but(VM, seed=False, interfaces=[NIC, VM["interfaces"][1]])
TUNED = but(
    CPU,
    numa=CELLS,
    tuning={**CPU["tuning"], "vcpusched": SCHED},
)
HUGE = but(MEMORY, hugepages=None)
DOCUMENTED = [
    ("a tuned CPU", "defined", {**PLAIN, "cpu": TUNED}),
    ("memory", "defined", {**PLAIN, "mem": HUGE}),
    ("features", "defined", {**PLAIN, "hypervisor_features": {"kvm-hint-dedicated": True}}),
    ("a clock", "defined", {**PLAIN, "clock": {"adjustment": 3600, "utc": False}}),
    ("a time zone", "defined", {**PLAIN, "clock": {"timezone": "CEST"}}),
    ("a VM", "defined", WITH_NICS),
    ("a VM that runs", "running", WITH_NICS),
    ("a bridge", "network_defined", MAIN),
    ("a vport with parameters", "network_defined", {**MAIN, "vport": VPORT}),
    ("a tag of many", "network_defined", {**MAIN, "tag": TAG}),
    ("NAT", "network_defined", NATTED),
    ("NAT that runs", "network_running", NATTED),
    (
        "a domain",
        "network_defined",
        {**NATTED, "domain": {"name": "lab.acme.org", "localOnly": True}},
    ),
    ("addresses of NAT", "network_defined", {**NATTED, "nat": PORTS}),
    (
        "interfaces",
        "network_defined",
        {"bridge": None, "forward": "passthrough", "interfaces": "eth10 eth11 eth12"},
    ),
    (
        "functions of PCI",
        "network_defined",
        {"bridge": None, "forward": "hostdev", "interfaces": "0000:04:00.1 0000:e3:01.2"},
    ),
    (
        "a physical function",
        "network_defined",
        {"bridge": None, "forward": "hostdev", "physical_function": "eth0"},
    ),
    ("DNS", "network_defined", {**NATTED, "dns": DNS}),
    ("other texts of DNS", "network_defined", {**NATTED, "dns": {**DNS, "txt": TXT}}),
    ("a share", "pool_defined", CIFS),
]
NEVER = [
    (
        "a distance to no cell",
        "defined",
        {**PLAIN, "cpu": but(TUNED, numa=CPU["numa"])},
        "there is no cell 2; the cells are 0, 1",
    ),
    (
        "huge pages that the host has not",
        "defined",
        {**PLAIN, "mem": {**MEMORY, "hugepages": [{"size": "3m", "nodeset": 3}]}},
        "no hugepages of",
    ),
    (
        "a scheduler of no CPU",
        "defined",
        {**PLAIN, "cpu": but(TUNED, tuning=CPU["tuning"])},
        "Missing attribute 'vcpus' in element 'vcpusched'",
    ),
    ("a multicast address", "defined", but(VM, seed=False), "is not a unicast MAC address"),
]
