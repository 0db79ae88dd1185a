"""
More of what was right on Salt 3006: arguments by their names, VMs in other states, files, patterns,
and states of what is there, or not. Rows as in compatrows.py.
"""

import olddocs
from compatkit import did, row, state, virt, xml
from compatobjects import DNS, IPV4, ISOLATED, NETWORKS, POOLS

GUEST = (
    "<domain type='test'><name>new</name><memory>65536</memory><vcpu>1</vcpu>"
    "<os><type>hvm</type></os></domain>"
)
VOLUME = "<volume><name>new.raw</name><capacity>1048576</capacity></volume>"
HERE = {"connection": "test:///FOLDER/host.xml"}


QUERIES = [
    virt("list_domains", label="at a URI", **HERE),
    virt("vm_info", "web1", label="at a URI", **HERE),
    virt("vm_info", "off1", label="off"),
    virt("vm_info", label="vm_=", vm_="paused1"),
    virt("vm_state", "nobody", label="of none", fails=True),
    virt("vm_state", "off1", label="off"),
    virt("node_info", label="at a URI", **HERE),
    virt("get_disks", "snapped", label="none"),
    virt("get_disks", "nobody", label="of none", fails=True),
    virt("get_nics", "snapped", label="none"),
    virt("get_nics", "nobody", label="of none", fails=True),
    virt("get_macs", "snapped", label="none"),
    virt("get_graphics", "nobody", label="of none", fails=True),
    virt("get_xml", "off1", label="off"),
    virt("get_xml", label="vm_=", vm_="off1"),
    virt("get_profiles", label="of nothing"),
    virt("get_profiles", label="qemu", hypervisor="qemu"),
    virt("full_info", label="at a URI", **HERE),
    virt("freemem", label="at a URI", **HERE),
    virt("vm_cputime", "off1", label="off", shape=True),
    virt("vm_netstats", "off1", label="off"),
    virt("vm_netstats", "snapped", label="none"),
    virt("vm_diskstats", "paused1", label="none"),
    virt("vm_cputime", "nobody", label="of none", fails=True),
    virt("capabilities", label="at a URI", **HERE),
    virt("list_snapshots", "nobody", label="of none", fails=True),
    virt("list_snapshots", label="domain=", domain="snapped"),
]
LIFECYCLE = [
    virt("start", label="name=", name="off1"),
    virt("start", "nobody", label="none", fails=True),
    virt("stop", label="name=", name="web1"),
    virt("stop", "paused1", label="paused"),
    virt("shutdown", "off1", label="off", fails=True),
    virt("shutdown", label="vm_=", vm_="web1"),
    virt("pause", "off1", label="off", fails=True),
    virt("pause", "paused1", label="paused", fails=True),
    virt("resume", "web1", label="running", fails=True),
    virt("reboot", "off1", label="off", fails=True),
    virt("reset", "off1", label="off", fails=True),
    virt("setmem", label="vm_= and memory=", vm_="off1", memory=128),
    virt("setmem", "off1", 128, label="config", config=True),
    virt("setvcpus", "off1", 1, label="config", config=True),
    virt("setvcpus", label="vm_= and vcpus=", vm_="off1", vcpus=1, config=True),
    virt("set_autostart", label="state=", vm_="web1", state="on"),
    virt("set_autostart", "nobody", label="none", fails=True),
    virt("define_xml_path", "/FOLDER/srv/new.xml", label="a file", first=[xml("new.xml", GUEST)]),
    virt("create_xml_path", "/FOLDER/srv/new.xml", label="a file", first=[xml("new.xml", GUEST)]),
    virt("define_xml_path", label="path=", path="/FOLDER/srv/n.xml", first=[xml("n.xml", GUEST)]),
    virt("define_xml_str", "<domain/>", label="wrong", fails=True),
    virt("create_xml_str", label="xml=", xml=GUEST),
    virt("define_vol_xml_str", VOLUME, label="no pool"),
    virt("define_vol_xml_str", VOLUME, label="no such pool", pool="nowhere", fails=True),
    virt(
        "define_vol_xml_path",
        "/FOLDER/srv/v.xml",
        label="a file",
        pool="default",
        first=[xml("v.xml", VOLUME)],
    ),
    virt("define_vol_xml_path", "/FOLDER/srv/v.xml", label="no pool", first=[xml("v.xml", VOLUME)]),
    virt("purge", "off1", label="dirs", dirs=True),
    virt("purge", "off1", label="removables", removables=True),
    virt("purge", "snapped", label="with snapshots"),
    virt("purge", "nobody", label="none", fails=True),
    virt("undefine", label="vm_=", vm_="paused1", fails=False),
    virt("snapshot", "snapped", label="no name"),
    virt("snapshot", "snapped", label="no name, suffix", suffix="x"),
    virt("snapshot", "snapped", "snapped", label="the VM's name", fails=True),
    virt("snapshot", "web1", "one", label="running"),
    virt("snapshot", "nobody", label="none", fails=True),
    virt("delete_snapshots", "snapped", "first", "second", label="two", shape=True),
    virt("delete_snapshots", "snapped", "second", label="current"),
    virt("revert_snapshot", "snapped", label="vm_snapshot=", vm_snapshot="first"),
    virt("revert_snapshot", "snapped", label="the latest, cleanup", cleanup=True),
    virt("revert_snapshot", "snapped", "nope", label="not there", fails=True),
    virt("revert_snapshot", "web1", label="none", fails=True),
]


STATES = [
    *state("stopped", "web1", label="at a URI", **HERE),
    *state("powered_off", "off1", label="already"),
    *state("powered_off", "*1", label="all", shape=True),
    *state("powered_off", "nobody", label="nobody"),
    *state("unpowered", "*1", label="all", shape=True),
    *state("unpowered", "nobody", label="nobody"),
    *state("rebooted", "off1", label="off"),
    *state("rebooted", "nobody", label="nobody"),
    *state("snapshot", "snapped", label="no suffix"),
    *state("snapshot", "*1", label="all", shape=True),
    *state("saved", "nobody", label="nobody"),
    *state("reverted", "snapped", label="by name", snapshot="first"),
    *state("reverted", "snapped", label="cleanup", cleanup=True),
    *state("reverted", "web1", label="none"),
    *state("network_defined", "new", "virbr7", "nat", label="new", ipv4_config=IPV4, dns=DNS),
    *state(
        "network_defined", "new", "virbr7", "nat", label="no autostart", autostart=False, **ISOLATED
    ),
    *state("network_defined", "lan", "br7", "bridge", label="another bridge", autostart=False),
    *state(
        "network_defined",
        "new",
        "ovsbr0",
        "bridge",
        label="a tag",
        vport="openvswitch",
        tag=olddocs.TAG,
    ),
    *state("network_running", "lan", "br0", "bridge", label="there", autostart=False),
    *state("network_running", "lan", "br7", "bridge", label="another bridge", autostart=False),
    *state(
        "network_running",
        "lan",
        "br0",
        "bridge",
        label="down",
        autostart=False,
        first=[did("network_stop", "lan")],
    ),
    *state(
        "pool_defined",
        "empty",
        label="no autostart",
        ptype="dir",
        target="/FOLDER/empty",
        autostart=False,
    ),
    *state(
        "pool_defined", "empty", label="moved", ptype="dir", target="/srv/moved", autostart=False
    ),
    *state(
        "pool_running", "empty", label="moved", ptype="dir", target="/FOLDER/moved", autostart=False
    ),
    *state(
        "pool_running",
        "empty",
        label="no autostart",
        ptype="dir",
        target="/FOLDER/empty",
        autostart=False,
    ),
    *state(
        "pool_running",
        "empty",
        label="down",
        ptype="dir",
        target="/FOLDER/empty",
        autostart=False,
        first=[did("pool_stop", "empty")],
    ),
    *state(
        "pool_running",
        "new",
        label="transient",
        ptype="dir",
        target="/FOLDER/new",
        transient=True,
        autostart=False,
    ),
    *state("pool_deleted", "default", label="purge", purge=True),
    *state("pool_deleted", "nobody", label="nobody"),
    *state("pool_deleted", "empty", label="down", first=[did("pool_stop", "empty")]),
    *state("volume_defined", "default", "spare.raw", 1, label="there"),
    *state("volume_defined", "default", "spare.raw", 1, label="there, raw", format="raw"),
    *state("volume_defined", "default", "spare.raw", 8, label="of another size"),
    *state("volume_defined", "default", "spare.raw", 1, label="of another format", format="qcow2"),
    *state("volume_defined", "nowhere", "new", 8, label="no pool"),
    *state(
        "volume_defined",
        "default",
        "new",
        8,
        label="a base",
        format="qcow2",
        backing_store={"path": "/FOLDER/pool/spare.raw", "format": "raw"},
        permissions={"mode": "0775", "owner": "123", "group": "345"},
        allocation=8,
        nocow=True,
    ),
]
OTHERS = [
    row("modules/qemu_img.make_image", "/FOLDER/images/new.raw", 8, "raw", label="raw"),
    row(
        "modules/qemu_img.make_image",
        label="by name",
        location="/FOLDER/images/new",
        size=8,
        fmt="vmdk",
    ),
    row("modules/qemu_img.make_image", "/nowhere/new.raw", 8, "raw", label="no folder"),
    row(
        "modules/qemu_img.convert", "/nowhere.qcow2", "/FOLDER/images/new.raw", "raw", label="none"
    ),
    row("modules/seed.mkconfig", {"id": "web1"}, label="id in config", shape=True),
    row(
        "modules/seed.mkconfig",
        label="by name",
        config={"a": 1},
        tmp="/FOLDER/images",
        id_="web1",
        shape=True,
    ),
    row("clouds/libvirt.list_nodes", label="action", call="action", fails=True),
    row("clouds/libvirt.destroy", "off1", label="function", call="function", fails=True),
    row("clouds/libvirt.destroy", "web1", label="running, action", call="action"),
    row("output/virt_query", {}, label="nothing"),
    row(
        "output/virt_query",
        {
            "h1": {
                **{"freecpu": 1, "freemem": 1.0, "node_info": {"cpus": 1, "phymemory": 2}},
                "vm_info": {},
            }
        },
        label="no VMs",
    ),
]
MORE = [*QUERIES, *LIFECYCLE, *NETWORKS, *POOLS, *STATES, *OTHERS]
