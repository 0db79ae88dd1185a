"""With test=True a state refuses all that it refuses without: none of it is left to libvirt."""

from dataclasses import replace

import asloaded
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.vm import spec
from saltvirt.xml.domain import domain

NAT = {"bridge": "virbr9", "forward": "nat"}
V4 = {"cidr": "192.168.42.0/24"}
REVERSED = {"start": "192.168.42.9", "end": "192.168.42.5"}
UUID = "09B11C53-8B5C-4EEB-8F00-D84EAA0AAA4F"
FC = {"type": "fc_host", "wwnn": "20000000c9831b4b", "wwpn": "10000000c9831b4b"}
WRONG_NETWORKS = [
    ({**NAT, "nat": {"address": {"start": "x", "end": "1.2.3.4"}}}, "nat:address:start: 'x' is"),
    ({**NAT, "nat": {"port": {"start": 500, "end": "x"}}}, "nat:port:end: 'x' is not a whole"),
    (
        {**NAT, "ipv4_config": {**V4, "dhcp_ranges": [{"start": "x", "end": "192.168.42.9"}]}},
        "ipv4_config:dhcp_ranges:start: 'x' is not an IP address",
    ),
    (
        {**NAT, "ipv4_config": {**V4, "hosts": {"192.168.42.3": {"mac": "x"}}}},
        "ipv4_config:hosts:mac: 'x' is not a MAC address",
    ),
    (
        {**NAT, "ipv4_config": {**V4, "bootp": {"file": "x", "server": "x"}}},
        "ipv4_config:bootp:server: 'x' is not an IP address",
    ),
    ({**NAT, "dns": {"forwarders": [{"addr": "x"}]}}, "dns:forwarders:addr: 'x' is not an IP"),
    (
        {**NAT, "dns": {"srvs": [{"name": "a", "protocol": "tcp", "target": ".", "port": "x"}]}},
        "dns:srvs:port: 'x' is not a whole number",
    ),
    ({**NAT, "domain": {"name": ["x"]}}, "domain:name: is a list or a mapping"),
    ({"bridge": "br0", "forward": "bridge", "vport": "x"}, "vport: type 'x'; one of openvswitch"),
    (
        {
            "bridge": "br0",
            "forward": "bridge",
            "vport": {"type": "openvswitch", "parameters": {"interfaceid": "x"}},
        },
        "vport: interfaceid: 'x' is not a UUID",
    ),
    ({"bridge": "br0", "forward": "passthrough", "interfaces": "eth1"}, "bridge: a network with"),
    (NAT, "ipv4_config: is missing: with forward=nat a network has it, or ipv6_config"),
    ({**NAT, "ipv4_config": V4, "interfaces": "a b"}, "interfaces: a network with forward=nat has"),
    ({**NAT, "forward": "open", "ipv4_config": V4, "interfaces": "a"}, "interfaces: a network"),
    ({"bridge": "br0", "forward": "bridge", "interfaces": "a"}, "interfaces: goes without bridge"),
    ({"bridge": "br0", "forward": "bridge", "mtu": 9000}, "mtu: a network with forward=bridge"),
    ({**NAT, "forward": "open", "ipv4_config": V4, "addresses": "0000:04:00.1"}, "addresses: a n"),
    (
        {"bridge": "br0", "forward": "bridge", "physical_function": "b"},
        "physical_function: goes without bridge",
    ),
    (
        {**NAT, "ipv4_config": {**V4, "dhcp_ranges": [{"start": "10.8.0.5", "end": "10.8.0.9"}]}},
        "ipv4_config:dhcp_ranges: 10.8.0.5 to 10.8.0.9 is not in 192.168.42.0/24",
    ),
    (
        {**NAT, "ipv4_config": {**V4, "dhcp_ranges": [REVERSED]}},
        "ipv4_config:dhcp_ranges: it begins at 192.168.42.9, behind its end, 192.168.42.5",
    ),
]
WRONG_POOLS = [
    ({"ptype": "netfs", "target": "/x", "source": {"format": "x"}}, "source:format: 'x'; for type"),
    (
        {"ptype": "disk", "source": {"devices": [{"path": "/dev/sdb", "part_separator": "x"}]}},
        "source:devices:part_separator: 'x' is neither",
    ),
    ({"ptype": "scsi", "source": {"adapter": {**FC, "type": "x"}}}, "adapter:type: 'x'; one of"),
    ({"ptype": "scsi", "source": {"adapter": {**FC, "wwnn": "x"}}}, "adapter:wwnn: 'x' is not 16"),
    ({"ptype": "scsi", "source": {"adapter": {**FC, "managed": "x"}}}, "adapter:managed: 'x' is"),
]


@pytest.fixture
def apply(tmp_path, fresh_driver):
    """Return a function that applies a state of networks or pools, with test=True or without."""

    def call(kind, function, is_test, state_options):
        module = asloaded.module(f"_states/virt_{kind}.py")
        options = {"connection": {"uri": "test:///default"}, "state_dir": str(tmp_path)}
        module.__opts__.update(virt=options, file_client="local", test=is_test)
        return getattr(module, function)(**{"name": "new", **state_options})

    # The driver keeps its definitions while a connection is open.
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False):
        yield call


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        *(("networks", *row) for row in WRONG_NETWORKS),
        *(("pool", *row) for row in WRONG_POOLS),
    ],
)
def test_wrong_options_of_a_network_or_pool_are_refused_with_test_too(apply, kind, options, reason):
    function = {"networks": "network_defined", "pool": "pool_defined"}[kind]
    forecast, answer = (apply(kind, function, is_test, options) for is_test in (True, False))

    assert forecast == answer
    assert (answer["result"], answer["changes"]) == (False, {})
    assert reason in answer["comment"]


OF_A_NAME = {
    "networks.network_defined": {**NAT, "ipv4_config": V4},
    "nat.nat_running": {},
    "pool.pool_defined": {"ptype": "dir", "target": "/srv/new"},
    "volume.volume_defined": {"pool": "default-pool", "size": 8},
}


@pytest.mark.parametrize("function", OF_A_NAME)
@pytest.mark.parametrize("name", ["a/b", " ", "a\nb"])
def test_a_name_that_libvirt_does_not_take_is_refused_with_test_too(apply, function, name):
    kind, state = function.split(".")
    forecast, answer = (
        apply(kind, state, is_test, {**OF_A_NAME[function], "name": name})
        for is_test in (True, False)
    )

    assert forecast == answer
    assert (answer["result"], answer["changes"]) == (False, {})
    assert answer["comment"].startswith(f"name: {name!r} cannot name a ")


@pytest.mark.parametrize(("format", "is_valid"), [("qcow3", False), ("qcow2", True)])
def test_the_format_of_a_volume_is_checked_with_test_too(apply, format, is_valid):
    options = {"pool": "default-pool", "size": 8, "format": format}

    forecast, answer = (
        apply("volume", "volume_defined", is_test, options) for is_test in (True, False)
    )

    assert (forecast["result"] is None, answer["result"]) == (is_valid, is_valid)
    assert is_valid or answer["comment"].startswith("format: 'qcow3'; in a pool of type dir one of")


CEPH = """<pool type='rbd'><name>ceph</name><source><host name='mon'/><name>vms</name></source>
</pool>"""


@pytest.mark.parametrize("is_test", [True, False])
def test_a_name_that_the_server_of_a_pool_takes_is_not_refused(apply, is_test):
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        conn.storagePoolDefineXML(CEPH).create()
    options = {"name": "vms/web1", "pool": "ceph", "size": 8}

    answer = apply("volume", "volume_defined", is_test, options)
    second_answer = apply("volume", "volume_defined", is_test, options)

    assert answer["result"] is (None if is_test else True)
    assert (
        second_answer["result"] is (None if is_test else True)
        and bool(second_answer["changes"]) is is_test
    )


@pytest.mark.parametrize(
    "tag",
    [
        {"tags": [{"id": 3}, {"id": 20}]},
        {"tags": [{"id": 3, "nativeMode": "tagged"}, {"id": 20}]},
        {"trunk": True, "tags": [{"id": 3}]},
        {"tags": [{"id": 3, "nativeMode": "untagged"}]},
        180,
    ],
)
def test_a_network_with_tags_is_no_change_the_second_time(apply, tag):
    options = {"bridge": "br0", "forward": "bridge", "vport": "openvswitch", "tag": tag}

    assert apply("networks", "network_defined", False, options)["changes"] != {}
    second_answer = apply("networks", "network_defined", False, options)

    assert (second_answer["result"], second_answer["changes"]) == (True, {})


SERVICE = {"name": "a", "protocol": "tcp", "target": "."}


@pytest.mark.parametrize(
    "network_options",
    [
        {"nat": {"port": {"start": 0, "end": "1000"}}},
        {"dns": {"srvs": [{**SERVICE, "port": "", "priority": "", "weight": ""}]}},
        {"dns": {"srvs": [{**SERVICE, "port": "389", "priority": 0, "weight": "0"}]}},
    ],
)
def test_numbers_that_libvirt_accepts_for_a_network_are_no_change_again(apply, network_options):
    options = {**NAT, "ipv4_config": V4, **network_options}

    assert apply("networks", "network_defined", False, options)["changes"] != {}
    second_answer = apply("networks", "network_defined", False, options)

    assert (second_answer["result"], second_answer["changes"]) == (True, {})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"graphics": {"type": "vnc", "port": "x"}}, "^graphics:port: 'x' is not a whole number"),
        ({"serials": [{"type": "tcp", "protocol": "x"}]}, "^serials:protocol: 'x'"),
        ({"clock": {"timers": {"rtc": {"track": "x"}}}}, "^clock:timers:rtc:track: 'x'"),
        ({"graphics": {"type": "VNC"}}, "^graphics:type: 'VNC'; one of vnc, spice"),
        ({"serials": [{"type": "pyt"}]}, "^serial: type 'pyt'; one of"),
        ({"serials": [{"type": ["pty"]}]}, "^serial: type .'pty'.; one of"),
        ({"consoles": [{"prot": 5}]}, "^console has no argument 'prot': did you mean 'port'"),
        ({"clock": {"adjustment": "summer"}}, "^clock:adjustment: 'summer'"),
        ({"hypervisor_features": {"kvm-hint": True}}, "^hypervisor_features has no argument"),
        ({"config": "log_level: debug"}, "^config: is not a mapping"),
        ({"host_devices": 5}, "^host_devices: 5 is not text"),
        ({"disks": [{"name": "data", "sise": 8}]}, "^disk 'data' has no argument 'sise': did you"),
        ({"disks": [{"name": "data", "device": "cdrm"}]}, "^disk 'data': device 'cdrm'; one of"),
        ({"disks": [{"name": "data", "model": "virtoi"}]}, "^disk model: 'virtoi'; one of fdc"),
        ({"disks": [{"name": "data", "io": "aio"}]}, "^disk 'data': io: 'aio'; one of native"),
        ({"disks": [{"name": "a b", "size": 8}]}, "^disk 'a b': use letters"),
        ({"disks": [{"name": "data", "size": 0}]}, "^disk 'data': size 0; at least 1 MiB"),
        ({"disks": [{"name": "data", "overlay_image": "no"}]}, "overlay_image: 'no' is neither"),
        ({"disks": [{"name": "data", "iothread_id": 0}]}, "iothread_id: 0 is out of range"),
    ],
)
def test_a_new_vm_is_refused_on_the_host_and_on_the_master(options, reason):
    with pytest.raises(BadArgument, match=reason):
        vm = spec.deployment(HostSettings(), "web1", 1, 64, {**options, "image": None}).vm
        domain.build(replace(vm, disks=(), domain_type="qemu"))
    with pytest.raises(BadArgument, match=reason):
        spec.requirements_from_master("web1", 1, 64, options)


@pytest.mark.parametrize(
    ("cpu", "mem", "reason"),
    [
        ({"maximum": 2, "topology": 5}, 64, "^cpu"),
        ({"maximum": 2, "tuning": {"vcpupin": 5}}, 64, "^cpu:tuning"),
        ({"maximum": 2, "cach": {}}, 64, "^cpu"),
        (1, {"boot": 64, "hugepage": []}, "^mem"),
    ],
)
def test_wrong_cpus_and_memory_are_refused_on_the_host_and_on_the_master(cpu, mem, reason):
    with pytest.raises(BadArgument, match=reason):
        domain.build(spec.deployment(HostSettings(), "web1", cpu, mem, {"disk": None}).vm)
    with pytest.raises(BadArgument, match=reason):
        spec.requirements_from_master("web1", cpu, mem, {})


def test_disks_that_a_profile_may_complete_are_left_to_the_hosts():
    disks = [{"name": "cd", "source_file": "https://example.org/a.iso"}, {"name": "system"}]

    assert spec.requirements_from_master("web1", 1, 64, {"disks": disks}).disk_mib == 0
