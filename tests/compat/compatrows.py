"""
What is asked of Salt 3006's own modules and of ours: a line for each question.

``virt`` asks the execution module, ``state`` a state (with ``test=True`` and for real), ``row`` any
other (``KIND/FILE.FUNCTION``). ``label`` tells the rows of one function apart, ``first`` are steps
before the question. ``fails`` says that both must fail. ``shape`` compares only which parts there
are and of what types: what is in them is another one each time.

Rows of functions in NOT_JUDGED_YET wait here: they count when its line is taken out. What may
differ, and why, is in compatdiffers.py.
"""

from xml.sax.saxutils import escape

from compatkit import ODD, did, row, state, virt
from compatmore import MORE
from compatupdates import MORE_UPDATES

GUEST = (
    "<domain type='test'><name>new</name><memory>65536</memory><vcpu>1</vcpu>"
    "<os><type>hvm</type></os></domain>"
)
CARD = (
    "<domain type='test'><name>card</name><memory>65536</memory><vcpu>1</vcpu>"
    "<os><type>hvm</type></os><devices><interface type='hostdev' managed='yes'>"
    "<mac address='52:54:00:aa:00:09'/><source><address type='pci' domain='0x0000' bus='0x02' "
    "slot='0x10' function='0x5'/></source></interface></devices></domain>"
)
VOLUME = "<volume><name>new.raw</name><capacity>1048576</capacity></volume>"
ADDRESS = {
    "cidr": "192.168.7.0/24",
    "dhcp_ranges": [{"start": "192.168.7.2", "end": "192.168.7.9"}],
}
DOWN_THERE = {"start": False, "autostart": False}
FUNCTIONS = {"addresses": "0000:02:10.5 0000:02:10.7"}
VF_MAC = "52:54:00:aa:00:07"
SRIOV = did("network_define", "sriov", None, "hostdev", **DOWN_THERE, **FUNCTIONS)
ESCAPED = escape(ODD)
ODD_ADDRESS = {"cidr": "192.168.99.0/24"}
INFO = {
    "freecpu": 1,
    "freemem": 1.0,
    "node_info": {"cpus": 2, "phymemory": 512},
    "vm_info": {},
}

QUERIES = [
    virt("list_domains"),
    virt("list_active_vms"),
    virt("list_inactive_vms"),
    virt("vm_info"),
    virt("vm_info", "web1", label="of one"),
    virt("vm_info", "nobody", label="of none", fails=True),
    virt("vm_state"),
    virt("vm_state", "paused1", label="of one"),
    virt("node_info"),
    virt("node_devices"),
    virt("get_nics", "web1"),
    virt("get_nics", "card", label="of a device", first=[did("define_xml_str", CARD)]),
    virt("get_macs", "web1"),
    virt("get_graphics", "web1"),
    virt("get_graphics", "off1", label="spice"),
    virt("get_graphics", "snapped", label="none"),
    virt("get_loader", "off1"),
    virt("get_loader", "web1", label="none"),
    virt("get_disks", "web1"),
    virt("get_disks", "off1", label="of a pool, of the web"),
    virt("get_xml", "web1"),
    virt("get_xml", "nobody", label="of none", fails=True),
    virt("freemem"),
    virt("freecpu"),
    virt("full_info"),
    virt("get_profiles", "kvm"),
    virt("virt_type"),
    virt("vm_cputime", shape=True),
    virt("vm_cputime", "web1", label="of one", shape=True),
    virt("vm_netstats", shape=True),
    virt("vm_netstats", "web1", label="of one", shape=True),
    virt("vm_diskstats", shape=True),
    virt("vm_diskstats", "web1", label="of one", shape=True),
    virt("capabilities"),
    virt("domain_capabilities", fails=True),
    virt("all_capabilities", fails=True),
    virt("cpu_baseline", fails=True),
]
LIFECYCLE = [
    virt("start", "off1"),
    virt("start", "web1", label="running"),
    virt("stop", "web1"),
    virt("stop", "off1", label="stopped", fails=True),
    virt("shutdown", "web1"),
    virt("pause", "web1"),
    virt("resume", "paused1"),
    virt("reboot", "web1"),
    virt("reset", "web1"),
    virt("ctrl_alt_del", "web1"),
    virt("setmem", "off1", 256),
    virt("setmem", "web1", 256, label="running"),
    virt("setmem", "web1", 256, label="running, config", config=True),
    virt("setvcpus", "off1", 2),
    virt("setvcpus", "web1", 1, label="running"),
    virt("setvcpus", "web1", 1, label="running, config", config=True),
    virt("set_autostart", "web1"),
    virt("set_autostart", "web1", "off", label="off", first=[did("set_autostart", "web1")]),
    virt("set_autostart", "web1", "maybe", label="neither"),
    virt("define_xml_str", GUEST),
    virt("define_xml_path", "/nowhere.xml"),
    virt("create_xml_str", GUEST),
    virt("create_xml_path", "/nowhere.xml"),
    virt("define_vol_xml_str", VOLUME, pool="default"),
    virt("define_vol_xml_path", "/nowhere.xml", pool="default"),
    virt("undefine", "off1"),
    virt("undefine", "nobody", label="none", fails=True),
    virt("purge", "off1"),
    virt("purge", "web1", label="running"),
]
SNAPSHOTS = [
    virt("list_snapshots"),
    virt("list_snapshots", "snapped", label="of one"),
    virt("list_snapshots", "web1", label="of one without any"),
    virt("snapshot", "snapped", "third"),
    virt("snapshot", "snapped", "third", "x", label="suffix"),
    virt("delete_snapshots", "snapped", "first"),
    # 3006 deletes them in the order of a set, and which is current then depends on it.
    virt("delete_snapshots", "snapped", label="all", all=True, shape=True),
    virt("revert_snapshot", "snapped", "first"),
    virt("revert_snapshot", "snapped", label="the latest"),
    virt("revert_snapshot", "snapped", "first", label="cleanup", cleanup=True),
]
NETWORKS = [
    virt("list_networks"),
    virt("network_info"),
    virt("network_info", "default", label="of one"),
    virt("network_get_xml", "default"),
    virt("network_start", "lan", first=[did("network_stop", "lan")]),
    virt("network_start", "lan", label="running", fails=True),
    virt("network_stop", "lan"),
    virt("network_undefine", "lan", label="running", fails=True),
    virt("network_undefine", "lan", first=[did("network_stop", "lan")]),
    virt("network_set_autostart", "lan"),
    virt("network_define", "new", "virbr7", "nat", ipv4_config=ADDRESS),
    virt("network_define", "new", "br7", "bridge", label="bridge", start=False, autostart=False),
    virt("network_define", "sriov", None, "hostdev", label="functions", **DOWN_THERE, **FUNCTIONS),
    virt(
        "network_define",
        "sriov",
        None,
        "hostdev",
        label="all functions",
        **DOWN_THERE,
        physical_function="eno2",
    ),
    virt("network_update", "lan", "br1", "bridge", first=[did("network_stop", "lan")]),
    virt("network_update", "lan", "br0", "bridge", label="same"),
]
POOLS = [
    virt("list_pools"),
    virt("pool_capabilities"),
    virt("pool_info"),
    virt("pool_info", "default", label="of one"),
    virt("pool_get_xml", "default"),
    virt("pool_start", "empty", first=[did("pool_stop", "empty")]),
    virt("pool_start", "empty", label="running", fails=True),
    virt("pool_stop", "empty"),
    virt("pool_build", "empty", first=[did("pool_stop", "empty")]),
    virt("pool_refresh", "default"),
    virt("pool_undefine", "empty", first=[did("pool_stop", "empty")]),
    virt("pool_delete", "empty", first=[did("pool_stop", "empty")]),
    virt("pool_set_autostart", "empty"),
    virt("pool_list_volumes", "default"),
    virt("pool_define", "new", "dir", target="/srv/new", start=False),
    virt("pool_update", "empty", "dir", target="/srv/moved", first=[did("pool_stop", "empty")]),
    virt("volume_infos"),
    virt("volume_infos", "default", "spare.raw", label="of one"),
    virt("volume_delete", "default", "spare.raw"),
    virt("volume_define", "default", "new.qcow2", 8, format="qcow2"),
    virt("volume_upload", "default", "spare.raw", "/nowhere.raw", fails=True),
]
LOOPBACK = {"listen": {"type": "address", "address": "127.0.0.1"}}


def _with_cache(**size):
    cache = {"level": 3, "type": "both", **size}
    return {"maximum": 1, "tuning": {"cachetune": {0: {0: cache}}}}


UPDATES = [
    virt("update", "off1", label="two ptys", serials=[{"type": "pty"}, {"type": "pty"}]),
    virt("update", "off1", label="a console", consoles=[{"type": "pty"}]),
    virt("update", "off1", label="a port without a type", serials=[{"host": "::1", "port": 5555}]),
    virt("update", "off1", label="a serial that says nothing", serials=[{}]),
    virt("update", "off1", label="UDP", serials=[{"type": "udp", "host": "10.0.0.1", "port": 5}]),
    virt("update", "off1", label="a display that says no address", graphics={"type": "vnc"}),
    virt(
        "update",
        "snapped",
        label="a port for TLS",
        graphics={"type": "spice", "tls_port": 5999, **LOOPBACK},
    ),
    virt("update", "off1", label="a cache", cpu=_with_cache(size=768)),
    virt("update", "off1", label="a cache's unit", cpu=_with_cache(size=3, unit="MiB")),
    virt(
        "update",
        "off1",
        label="feature: without a model",
        cpu={"maximum": 1, "feature": {"lahf": "optional"}},
    ),
    virt(
        "update",
        "off1",
        label="feature:",
        cpu={"maximum": 1, "model": {"name": "core2duo"}, "feature": {"lahf": "optional"}},
    ),
    virt(
        "update",
        "off1",
        label="catchup:",
        clock={"timers": {"rtc": {"tickpolicy": "catchup", "catchup": {"slew": 1}}}},
    ),
    virt(
        "update",
        "off1",
        label="a timer that catches up",
        clock={"timers": {"rtc": {"track": "wall", "tickpolicy": "catchup", "slew": 1}}},
    ),
    virt("update", "off1", label="an unknown keyword", image="x"),
    virt("update", "off1", mem=256),
    virt("update", "off1", label="nothing"),
    virt("update", "web1", mem=512, label="test", test=True),
    virt("update", "off1", label="boot", boot_dev="network hd"),
    virt("update", "off1", label="a function", host_devices=["pci_0000_02_10_5", "usb_1_4"]),
    virt(
        "update",
        "off1",
        label="a NIC of functions",
        first=[SRIOV],
        interfaces=[{"name": "eth0", "type": "network", "source": "sriov", "mac": VF_MAC}],
    ),
]
STATES = [
    *state("stopped", "web1"),
    *state("stopped", "off1", label="already"),
    *state("stopped", "nobody*", label="nobody"),
    *state("powered_off", "web*"),
    *state("unpowered", "web1"),
    *state("rebooted", "web1"),
    *state("snapshot", "snapped", suffix="x"),
    *state("saved", "snapped", suffix="x"),
    *state("reverted", "snapped"),
    *state("running", "off1"),
    *state("defined", "off1"),
    *state("network_defined", "lan", "br0", "bridge", label="there"),
    *state("network_running", "new", "virbr7", "nat", ipv4_config=ADDRESS),
    *state("pool_defined", "new", ptype="dir", target="/srv/new"),
    *state("pool_running", "new", ptype="dir", target="/srv/new"),
    *state("pool_running", "default", ptype="dir", target="/FOLDER/pool", label="there"),
    *state("pool_deleted", "empty"),
    *state("volume_defined", "default", "new.qcow2", 8, format="qcow2"),
]
NEEDS = """<domain type='test'><name>needs</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>
<source pool='default' volume='off1.qcow2'/><target dev='vda' bus='virtio'/></disk>
<disk type='network' device='cdrom'><source protocol='http' name='iso/x.iso'>
<host name='web.example' port='80'/></source><target dev='hda' bus='ide'/><readonly/></disk>
<disk type='file' device='disk'><source file='/FOLDER/web1.qcow2'/><target dev='vdb' bus='virtio'/>
</disk><interface type='network'><source network='lan'/></interface>
<interface type='bridge'><source bridge='br0'/></interface></devices></domain>"""
DOWN = [did("pool_stop", "default"), did("network_stop", "lan")]
# Whatever is in a name: markup, blanks, quotes, what a shell or a format would make something of.
ODDLY_NAMED = [
    *(
        virt(function, ODD, label="odd", **given)
        for function, given in [
            *((f"get_{what}", {}) for what in ("disks", "nics", "macs", "xml", "loader")),
            *((name, {}) for name in ("vm_info", "vm_state", "start", "list_snapshots")),
            *((name, {}) for name in ("network_info", "network_get_xml", "network_stop")),
            *((name, {}) for name in ("pool_info", "pool_get_xml", "pool_list_volumes")),
            *((name, {}) for name in ("volume_infos", "pool_refresh", "pool_set_autostart")),
            *((name, {}) for name in ("pool_stop", "network_set_autostart", "set_autostart")),
            ("setmem", {"memory": 128}),
            ("update", {"mem": 128}),
            ("network_update", {"bridge": "virbr8", "forward": "nat", "ipv4_config": ADDRESS}),
        ]
    ),
    virt("volume_infos", ODD, f"{ODD}.raw", label="odd, of one"),
    virt("volume_delete", ODD, f"{ODD}.raw", label="odd"),
    virt("volume_define", ODD, f"new {ODD}", 8, label="odd", format="raw"),
    virt("snapshot", ODD, f"new {ODD}", label="odd"),
    virt("delete_snapshots", ODD, ODD, label="odd"),
    virt("define_xml_str", GUEST.replace(">new<", f">new {ESCAPED}<"), label="odd"),
    virt("network_define", f"new {ODD}", "virbr7", None, label="odd", ipv4_config=ADDRESS),
    virt("pool_define", f"new {ODD}", "dir", label="odd", target=f"/srv/{ODD}", start=False),
    *state("running", ODD, label="odd"),
    *state("powered_off", f"{ODD[:7]}*", label="odd", first=[did("start", ODD)]),
    *state("snapshot", ODD, label="odd", suffix="<x>"),
    *state("network_running", ODD, None, None, label="odd", ipv4_config=ODD_ADDRESS),
    *state("pool_running", ODD, label="odd", ptype="dir", target="/FOLDER/odd"),
    *state("pool_deleted", ODD, label="odd", purge=True),
    *state("volume_defined", ODD, f"new {ODD}", 8, label="odd", format="raw"),
]
# As Uyuni calls them; see thirdparty/.
OF_OTHERS = [
    row("states/resources.started", "needs", first=[did("define_xml_str", NEEDS)]),
    *(
        row("states/resources.started", "needs", label=label, is_test=is_test, first=first)
        for label, is_test in (("down, test=True", True), ("down", False))
        for first in ([did("define_xml_str", NEEDS), *DOWN],)
    ),
    row("states/resources.placed", "nowhere", label="nowhere"),
    row("states/resources.placed", "default"),
    row("states/resources.shown", "web1"),
]
OTHERS = [
    row("modules/qemu_img.make_image", "/FOLDER/images/new.qcow2", 8, "qcow2"),
    row("modules/qemu_img.convert", "/FOLDER/web1.qcow2", "/FOLDER/images/new.raw", "raw"),
    row("modules/seed.mkconfig", {"master": "m"}, id_="web1", shape=True),
    row("modules/qemu_nbd.connect", "/nowhere.qcow2"),
    row("modules/guestfs.mount", "/nowhere.qcow2"),
    row("clouds/libvirt.get_configured_provider", shape=True),
    row("clouds/libvirt.list_nodes"),
    row("clouds/libvirt.list_nodes_full"),
    row("clouds/libvirt.list_nodes_select", fails=True),
    row("clouds/libvirt.destroy", "nobody", label="nobody"),
    row("clouds/libvirt.destroy", "snapped"),
    row("output/virt_query", {"host1": INFO}),
]
ROWS = [
    *QUERIES,
    *LIFECYCLE,
    *SNAPSHOTS,
    *NETWORKS,
    *POOLS,
    *UPDATES,
    *STATES,
    *OF_OTHERS,
    *ODDLY_NAMED,
    *OTHERS,
    *MORE,
    *MORE_UPDATES,
]
