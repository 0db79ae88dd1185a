"""
More of networks, pools and volumes: every argument that 3006's documentation names, in pools of all
types. Rows as in compatrows.py.
"""

import olddocs
from compatkit import did, state, virt

DOWN_THERE = {"start": False, "autostart": False}
IPV4 = {
    "cidr": "192.168.7.0/24",
    "dhcp_ranges": [{"start": "192.168.7.2", "end": "192.168.7.9"}],
    # A list, as it was documented, never worked.
    "hosts": {
        "192.168.7.31": {"mac": "52:54:00:aa:00:31", "name": "one"},
        "192.168.7.32": {"mac": "52:54:00:aa:00:32"},
    },
    "bootp": {"file": "pxelinux.0", "server": "192.168.7.3"},
    "tftp": "/srv/tftp",
}
IPV6 = {
    "cidr": "2001:db8:ca2:2::/64",
    "dhcp_ranges": [{"start": "2001:db8:ca2:2::10", "end": "2001:db8:ca2:2::1f"}],
    "hosts": {"2001:db8:ca2:2::11": {"id": "0:3:0:1:0:16:3e:11:22:33", "name": "six"}},
}
DNS = {**olddocs.DNS, "srvs": [*olddocs.DNS["srvs"], {"name": "sip", "protocol": "udp"}]}
ISOLATED = {"ipv4_config": {"cidr": "192.168.8.0/24"}}


def net(label, bridge, forward, **given):
    """Return a network that is defined, and another that becomes like it."""
    return [
        virt("network_define", "new", bridge, forward, label=label, **DOWN_THERE, **given),
        virt(
            "network_update",
            "lan",
            bridge,
            forward,
            label=f"to {label}",
            first=[did("network_stop", "lan")],
            **given,
        ),
    ]


NETWORKS = [
    *net("nat", "virbr7", "nat", ipv4_config=IPV4, nat=olddocs.PORTS, mtu=9000),
    *net("IPv6", "virbr7", "route", ipv4_config=IPV4, ipv6_config=IPV6),
    *net("isolated", "virbr7", None, **ISOLATED),
    *net("isolated without a bridge", None, None, **ISOLATED),
    *net("open", "virbr7", "open", **ISOLATED),
    *net("a domain", "virbr7", "nat", domain={"name": "l.example", "localOnly": True}, **ISOLATED),
    *net("DNS", "virbr7", "nat", dns=DNS, **ISOLATED),
    *net("a vport", "ovsbr0", "bridge", vport="openvswitch"),
    *net("a vport's parameters", "ovsbr0", "bridge", vport=olddocs.VPORT),
    *net("a tag", "ovsbr0", "bridge", vport="openvswitch", tag=42),
    *net("a trunk", "ovsbr0", "bridge", vport="openvswitch", tag=olddocs.TAG),
    *net("macvtap", None, "vepa", interfaces="eth10 eth11"),
    *net("passthrough", None, "passthrough", interfaces="eth10 eth11 eth12"),
    *net("private", None, "private", interfaces="eth10"),
    *net("addresses", None, "hostdev", addresses="0000:02:10.5 0000:02:10.7"),
    *net("a function", None, "hostdev", physical_function="eno2"),
    virt("network_define", "new", "virbr7", "nat", label="started", **ISOLATED),
    virt("network_define", "lan", "br1", "bridge", label="there", fails=True, **DOWN_THERE),
    virt("network_update", "lan", "br1", "bridge", label="test", test=True),
    virt("network_update", "nobody", "br1", "bridge", label="none", fails=True),
    virt("network_info", "nobody", label="none"),
    virt("network_info", label="name=", name="lan"),
    virt("network_get_xml", "nobody", label="none", fails=True),
    virt("network_stop", "nobody", label="none", fails=True),
    virt("network_set_autostart", "default", "off", label="off"),
    virt("network_set_autostart", label="state=", name="default", state="on"),
]
LOGICAL = {
    "target": "/dev/vg",
    "source_name": "vg",
    "source_format": "lvm2",
    "source_devices": [{"path": "/dev/sda1"}, {"path": "/dev/sdb1"}],
}
PERMISSIONS = {"mode": "0755", "owner": 107, "group": 107, "label": "virt_image_t"}
VHBA = {
    "type": "fc_host",
    "parent": "scsi_host5",
    "managed": "yes",
    "wwnn": "20000000c9831b4b",
    "wwpn": "10000000c9831b4b",
}
CEPH = {
    "type": "ceph",
    "username": "admin",
    "secret": {"type": "uuid", "value": "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"},
}
CHAP = {"type": "chap", "username": "me", "secret": {"type": "usage", "value": "mycluster_me"}}
TYPES = {
    "dir": {"target": "/srv/new"},
    "dir, permissions": {"ptype": "dir", "target": "/srv/new", "permissions": PERMISSIONS},
    "fs": {"target": "/m", "source_devices": [{"path": "/dev/sda1"}], "source_format": "ext4"},
    "netfs": {
        "target": "/m",
        "source_dir": "/export",
        "source_hosts": ["nfs.example"],
        "source_format": "nfs",
        "permissions": {"mode": "0755", "owner": 1, "group": 2},
    },
    "netfs, cifs": {
        "ptype": "netfs",
        "target": "/m",
        "source_dir": "/share",
        "source_hosts": ["a.example"],
        "source_format": "cifs",
    },
    "logical": LOGICAL,
    "logical, permissions": {"ptype": "logical", **LOGICAL, "permissions": PERMISSIONS},
    "disk": {
        "target": "/dev",
        "source_devices": [{"path": "/dev/sdc", "part_separator": "yes"}],
        "source_format": "gpt",
    },
    "iscsi": {
        "target": "/dev/disk/by-path",
        "source_hosts": ["san.example:3260"],
        "source_devices": [{"path": "iqn.2013-06.com.example:x"}],
    },
    "iscsi, chap": {
        "ptype": "iscsi",
        "target": "/dev/disk/by-path",
        "source_hosts": ["san.example"],
        "source_devices": [{"path": "iqn.2013-06.com.example:x"}],
        "source_auth": CHAP,
    },
    "iscsi-direct": {
        "source_hosts": ["san.example"],
        "source_devices": [{"path": "iqn.2013-06.com.example:x"}],
        "source_initiator": "iqn.2013-06.com.example:me",
    },
    "scsi": {"target": "/dev/disk/by-path", "source_adapter": {"type": "scsi_host", "name": "h0"}},
    "scsi, a vHBA": {"ptype": "scsi", "target": "/dev/disk/by-path", "source_adapter": VHBA},
    "scsi, an address": {
        "ptype": "scsi",
        "target": "/dev/disk/by-path",
        "source_adapter": {
            "type": "scsi_host",
            "parent_address": {
                "unique_id": 1,
                "address": {"domain": "0x0000", "bus": "0x00", "slot": "0x1f", "function": "0x2"},
            },
        },
    },
    "mpath": {"target": "/dev/mapper"},
    "rbd": {
        "source_name": "vms",
        "source_hosts": ["mon1.example:6789", "mon2.example"],
        "source_auth": CEPH,
    },
    "gluster": {"source_name": "vol", "source_dir": "/", "source_hosts": ["g1.example"]},
    "zfs": {"source_name": "tank"},
    "zfs, permissions": {"ptype": "zfs", "source_name": "tank", "permissions": PERMISSIONS},
    "sheepdog": {"source_name": "dog", "source_hosts": ["s1.example:7000"]},
}


def pool(label, given):
    """Return a pool that is defined, and then updated to what it is."""
    given = dict(given)
    ptype = given.pop("ptype", label)
    first = [did("pool_define", "new", ptype, start=False, **given)]
    return [
        virt("pool_define", "new", ptype, label=label, start=False, **given),
        virt("pool_update", "new", ptype, label=f"{label}, again", first=first, **given),
    ]


def _of_state(given):
    source = {
        key.removeprefix("source_"): one for key, one in given.items() if key.startswith("source_")
    }
    rest = {key: one for key, one in given.items() if not key.startswith("source_")}
    return {**rest, **({"source": source} if source else {})}


POOLS = [
    *(one for label, given in TYPES.items() for one in pool(label, given)),
    *(
        one
        for label in ("fs", "netfs", "logical, permissions", "iscsi, chap", "rbd")
        for one in state(
            "pool_defined", "new", label=label, **{"ptype": label, **_of_state(TYPES[label])}
        )
    ),
    virt("pool_define", "new", "dir", label="started", target="/FOLDER/empty2"),
    virt("pool_define", "new", "dir", label="transient", target="/srv/new", transient=True),
    virt("pool_define", "empty", "dir", label="there", fails=True, target="/srv/new", start=False),
    virt("pool_update", "empty", "dir", label="test", target="/srv/moved", test=True),
    virt("pool_update", "nobody", "dir", label="none", target="/srv/moved", fails=True),
    virt("pool_info", "nobody", label="none"),
    virt("pool_info", label="name=", name="empty"),
    virt(
        "pool_set_autostart",
        "empty",
        "off",
        label="off",
        first=[did("pool_set_autostart", "empty")],
    ),
    virt("pool_set_autostart", label="state=", name="empty", state="on"),
    virt("pool_stop", "nobody", label="none", fails=True),
    virt("pool_list_volumes", "empty", label="none"),
    virt("pool_list_volumes", "nobody", label="no pool", fails=True),
    virt("pool_undefine", "empty", label="running", fails=True),
    virt("pool_delete", "empty", label="running", fails=True),
    virt("volume_infos", "default", label="of a pool"),
    virt("volume_infos", "nowhere", label="of no pool"),
    virt("volume_infos", "default", "nothing", label="of none"),
    virt("volume_infos", label="pool= and volume=", pool="default", volume="off1.qcow2"),
    virt("volume_delete", "default", "nothing", label="none", fails=True),
    virt("volume_define", "default", "new.raw", 8, label="raw", format="raw", allocation=4),
    virt("volume_define", "default", "new", 8, label="no format"),
    virt("volume_define", "default", "new", 8, 8, "qcow2", "file", label="by position"),
    virt(
        "volume_define",
        "default",
        "new",
        8,
        label="permissions",
        format="qcow2",
        permissions={"mode": "0775", "owner": "123", "group": "345", "label": "l"},
    ),
    virt(
        "volume_define",
        "default",
        "new",
        8,
        label="a base",
        format="qcow2",
        backing_store={"path": "/FOLDER/pool/spare.raw", "format": "raw"},
        nocow=True,
    ),
    virt("volume_define", "nowhere", "new", 8, label="no pool", fails=True),
    virt("volume_define", "default", "spare.raw", 8, label="there", fails=True),
]
