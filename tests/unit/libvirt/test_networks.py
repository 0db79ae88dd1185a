"""libvirt's networks on its own test driver, in the shapes that Salt 3006.25 returned."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument, LibvirtRefused, VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, networks, networkspec
from saltvirt.xml import parse, to_text
from saltvirt.xml.network import network

ROOT = Path(__file__).resolve().parents[3]
TEST = HostSettings(uri="test:///default")
IPV4 = {
    "cidr": "192.168.42.0/24",
    "dhcp_ranges": [{"start": "192.168.42.10", "end": "192.168.42.25"}],
    "hosts": {"192.168.42.9": {"mac": "52:54:00:00:00:09", "name": "nine"}},
    "bootp": {"file": "pxe.0", "server": "192.168.42.1"},
    "tftp": "/srv/tftp",
}
DNS = {
    "forwarders": [{"domain": "example.com", "addr": "192.168.1.1"}, {"addr": "8.8.8.8"}],
    "txt": {"example.com": "v=spf1 a -all"},
    "hosts": {"192.168.42.2": ["mirror.lab", "test.lab"]},
    "srvs": [{"name": "ldap", "protocol": "tcp", "target": ".", "port": 389, "priority": 1}],
}
NAT = {"address": {"start": "1.2.3.4", "end": "1.2.3.10"}, "port": {"start": 500, "end": 1000}}
V6 = {"cidr": "2001:db8:1::/64"}
V6_UPPERCASE = {
    **V6,
    "dhcp_ranges": [{"start": "2001:DB8:1::10", "end": "2001:db8:1:0::1F"}],
    "hosts": {"2001:DB8:1:0::40": {"name": "forty"}},
}
UPPERCASE_PORT = {
    "type": "openvswitch",
    "parameters": {"interfaceid": "09B11C53-8B5C-4EEB-8F00-D84EAA0AAA4F"},
}
SIP = {"name": "sip", "protocol": "tcp", "target": "t.lab", "port": 5, "priority": 0, "weight": "0"}
CASES = [
    ("ovs0", "bridge", {"vport": UPPERCASE_PORT}),
    ("br7", "nat", {"ipv4_config": IPV4, "dns": {"srvs": [SIP]}}),
    ("main", "bridge", {"vport": "openvswitch", "tag": 180}),
    ("ovs0", "bridge", {"vport": {"type": "openvswitch", "parameters": {"profileid": "a"}}}),
    ("ovs0", "bridge", {"vport": "openvswitch", "tag": {"trunk": True, "tags": [{"id": 7}]}}),
    ("br7", "nat", {"ipv4_config": IPV4, "ipv6_config": V6, "nat": NAT, "dns": DNS, "mtu": 9000}),
    ("br7", "nat", {"ipv6_config": V6_UPPERCASE, "dns": {"hosts": {"FE80::0001": "c"}}}),
    ("br7", "route", {"ipv4_config": IPV4, "domain": {"name": "lab.example", "localOnly": True}}),
    ("br7", "open", {"ipv4_config": {"cidr": "10.7.0.0/16"}}),
    ("br7", None, {}),
    (None, "passthrough", {"interfaces": "eth10 eth11"}),
    (None, "private", {"interfaces": "eth10"}),
    (None, "vepa", {"interfaces": ["eth10"]}),
    (None, "hostdev", {"addresses": "0000:04:00.1 0000:e3:01.2"}),
    (None, "hostdev", {"physical_function": "eth0"}),
    ("br7", "open", {"ipv4_config": IPV4, "physical_function": "eth0"}),
    # libvirt accepts several sources, and uses the first.
    (None, "private", {"interfaces": "eth10", "physical_function": "eth0"}),
    (None, "hostdev", {"addresses": "0000:04:00.1", "physical_function": "eth0"}),
    (None, "hostdev", {"interfaces": "eth10 eth11", "addresses": "0000:04:00.1"}),
]


@pytest.fixture
def conn():
    """A connection to a libvirt that has one network, ``default``, which runs."""
    with connect.open_connection(TEST, readonly=False) as conn:
        for existing in conn.listAllNetworks():
            if existing.name() != "default":
                existing.destroy() if existing.isActive() else None
                existing.undefine()
        yield conn


def requested(bridge="br7", forward="nat", name="lan", **options):
    """Return the specification of a network that a call requests."""
    return networkspec.from_call(name, bridge, forward, options)


@pytest.mark.parametrize(("bridge", "forward", "args"), CASES)
def test_a_request_is_read_as_it_was_built_and_updates_once(conn, bridge, forward, args):
    spec = requested(bridge, forward, **args)

    assert network.read(parse(to_text(network.build(spec)))) == spec
    other_spec = requested("br8", "nat", ipv4_config={"cidr": "10.9.0.0/24"}, mtu=1400)
    networks.define(conn, spec, autostart=False, start=False)
    assert networks.update(conn, spec) is False
    assert networks.update(conn, other_spec, is_test=True) is True
    assert networks.update(conn, spec) is False
    before = networks.read_definition(conn.networkLookupByName("lan"))
    assert networks.update(conn, other_spec) is True
    after = networks.read_definition(conn.networkLookupByName("lan"))
    assert (after.uuid, after.mtu) == (before.uuid, 1400)
    assert networks.update(conn, other_spec) is False


def test_ports_and_tags_are_not_thrown_away(conn):
    # 3006.25 virt.py:7125 read them from its keywords, where they never were.
    networks.define(
        conn,
        requested("ovs0", "bridge", vport="openvswitch", tag=180),
        autostart=False,
        start=False,
    )
    xml = conn.networkLookupByName("lan").XMLDesc(0)
    assert "<virtualport type='openvswitch'" in xml and "<tag id='180'/>" in xml


FILLED = """<network connections='1'><name>lan</name>
<uuid>1e6a6f66-0000-4000-8000-000000000001</uuid>
<forward mode='nat'><nat><port start='1024' end='65535'/></nat></forward>
<bridge name='virbr3' stp='on' delay='0'/><mac address='52:54:00:12:34:56'/>
<ip address='192.168.42.1' netmask='255.255.255.0'/></network>"""


def test_a_value_that_libvirt_filled_in_is_no_difference_and_stays():
    old = network.read(parse(FILLED))
    spec = requested(None, "nat", ipv4_config={"cidr": "192.168.42.0/24"})

    assert not network.differs(spec, old)
    updated = network.with_identity(spec, old)
    assert (updated.uuid, updated.bridge, updated.mac) == (old.uuid, "virbr3", old.mac)
    assert network.differs(requested("br9", "nat", ipv4_config={"cidr": "192.168.42.0/24"}), old)
    assert network.differs(spec, network.read(parse(FILLED.replace("virbr3", "br3"))))
    with_portgroup = FILLED.replace("<ip ", "<portgroup name='x'/><ip ")
    assert network.differs(spec, network.read(parse(with_portgroup)))


@given(txt=st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.text("ab<&'\" é")))
def test_any_text_of_dns_is_read_as_it_was_built(txt):
    spec = requested(dns={"txt": txt}, forward=None)
    assert network.read(parse(to_text(network.build(spec)))) == spec


def test_info_has_the_shape_of_3006(conn):
    # 3006.25 virt.py:7514-7519.
    default = networks.info(conn)["default"]

    assert {key: type(value) for key, value in default.items()} == {
        "uuid": str,
        "bridge": str,
        "autostart": int,
        "active": int,
        "persistent": int,
        "leases": list,
    }
    assert (default["active"], default["persistent"], default["bridge"]) == (1, 1, "virbr0")
    assert networks.info(conn, "none") == {}
    networks.define(conn, requested(ipv4_config=IPV4), autostart=True, start=False)
    lan = networks.info(conn, "lan")["lan"]
    assert (lan["active"], lan["autostart"]) == (0, 1)
    assert networks.names(conn) == ["default", "lan"]


def test_errors_of_libvirt_are_not_swallowed():
    class Broken:
        """Stand for a libvirt that fails in the middle: the test driver never does."""

        def listAllNetworks(self, _flags=0):  # noqa: N802 - libvirt's name
            raise libvirt.libvirtError("permission denied")

    with pytest.raises(libvirt.libvirtError):
        networks.info(Broken())


def test_a_network_that_cannot_be_started_is_not_left():
    class Net:
        """Stand for a network with the host's own addresses: the test driver starts any."""

        is_gone = False

        def create(self):
            raise libvirt.libvirtError("already in use")

        def undefine(self):
            self.is_gone = True

    net = Net()
    error = libvirt.libvirtError("none")
    error.err = (libvirt.VIR_ERR_NO_NETWORK, 0, "none", 0, "", None, None, 0, 0)

    class Host:
        def networkLookupByName(self, _name):  # noqa: N802 - libvirt's name
            raise error

        def networkDefineXML(self, _xml):  # noqa: N802 - libvirt's name
            return net

    with pytest.raises(LibvirtRefused, match="already in use"):
        networks.define(Host(), requested(forward=None), autostart=False, start=True)
    assert net.is_gone


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"forward": "router"}, "forward: 'router'; one of nat"),
        ({"nat": NAT, "forward": "route"}, "nat: only a network with forward=nat"),
        ({"ipv4_config": {"cidr": "10.0.0.1/24"}}, "ipv4_config:cidr: .*host bits"),
        ({"ipv4_config": {"cdr": "10.0.0.0/24"}}, "cdr"),
        (
            {"ipv4_config": {"cidr": "10.0.0.0/24", "hosts": {"10.0.0.9": "52:54:00:00:00:09"}}},
            "^ipv4_config:hosts:10.0.0.9: '52:54:00:00:00:09' is not a mapping",
        ),
        ({"addresses": "04:00.1", "forward": "hostdev"}, "addresses: '04:00.1' is not a PCI"),
        ({"tag": {"tags": [{"id": 5000}]}}, "tag:id: 5000"),
        ({"interfaces": "eth0", "forward": None}, "forward: is needed"),
        ({"bridge": "a b"}, "bridge: 'a b'"),
        ({"name": "a/b"}, "name: "),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, reason):
    with pytest.raises(BadArgument, match=reason):
        requested(**options)


def load_module(folder, is_test=False):
    """Return a Salt module with its dunders set, as the loader would."""
    path = ROOT / folder / "virt_networks.py"
    spec = importlib.util.spec_from_file_location(f"loaded{folder}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    opts = {"test": is_test, "virt": {"connection": {"uri": TEST.uri}}}
    module.__opts__, module.__pillar__, module.__grains__ = opts, {}, {}
    return module


def test_functions_return_what_3006_returned(conn):
    virt = load_module("_modules")

    assert virt.network_define("lan", "br7", "nat", ipv4_config=IPV4, start=False) is True
    assert virt.network_info("lan")["lan"]["active"] == 0
    assert virt.network_update("lan", "br7", "nat", ipv4_config=IPV4) is False
    assert virt.network_start("lan") is True
    assert virt.network_set_autostart("lan", "off") is True
    assert virt.network_info("lan")["lan"]["autostart"] == 0
    assert virt.network_stop("lan") is True
    assert "<name>lan</name>" in virt.network_get_xml("lan")
    assert virt.network_undefine("lan") is True
    assert virt.list_networks() == ["default"]
    with pytest.raises(VirtError, match="no network called 'lan'"):
        virt.network_start("lan")
    with pytest.raises(BadArgument):
        virt.network_define("lan", "br7", "nat", forwrd=1)


RUNS = [
    # Changes by 3006.25, states/virt.py:1248-1835. It did not report a change of autostart alone.
    ("network_defined", {}, "Network defined, marked for autostart"),
    ("network_defined", {"autostart": False}, "Network autostart flag changed"),
    # The network is off: the test driver does not show the next definition of a running one.
    ("network_defined", {"mtu": 1400}, "Network updated, autostart flag changed"),
    ("network_running", {"mtu": 1400}, "Network started"),
]


def test_states_predict_what_they_do_and_do_it_once(conn):
    for function, extra, change in RUNS:
        args = ("lan", "br7", "nat")
        extra = {"ipv4_config": IPV4, **extra}
        prediction = getattr(load_module("_states", is_test=True), function)(*args, **extra)
        run = getattr(load_module("_states"), function)(*args, **extra)
        rerun = getattr(load_module("_states", is_test=True), function)(*args, **extra)

        assert prediction["changes"] == run["changes"] == {"lan": change}
        assert (prediction["result"], run["result"]) == (None, True)
        assert (rerun["result"], rerun["changes"]) == (True, {})
    prediction = load_module("_states", is_test=True).network_absent("lan")
    assert (prediction["result"], networks.names(conn)) == (None, ["default", "lan"])
    run = load_module("_states").network_absent("lan")
    assert run["changes"] == prediction["changes"] == {"lan": "Network stopped and undefined"}
    assert load_module("_states").network_absent("lan")["changes"] == {}
    failed = load_module("_states").network_running("lan", "br7", "router")
    assert failed["result"] is False and "forward" in failed["comment"]


def test_a_network_that_cannot_be_started_is_defined_as_before(conn, monkeypatch):
    """A real driver does not start a network that the host is in; the test driver starts any."""

    class Refusing:
        def __init__(self, network):
            self._network = network

        def __getattr__(self, name):
            return getattr(self._network, name)

        def create(self):
            raise libvirt.libvirtError("already in use")

    states = load_module("_states")
    assert states.network_defined("lan", "br7", "nat", ipv4_config=IPV4)["result"] is True
    xml_before, find = conn.networkLookupByName("lan").XMLDesc(0), networks.find
    monkeypatch.setattr(networks, "find", lambda *args: Refusing(find(*args)))

    options = {"ipv4_config": IPV4, "mtu": 1400, "autostart": False}
    ret = states.network_running("lan", "br7", "nat", **options)
    assert (ret["result"], ret["changes"]) == (False, {})
    assert ret["comment"].startswith("network 'lan' cannot be started, and is defined as it was: ")
    lan = conn.networkLookupByName("lan")
    assert (lan.XMLDesc(0), lan.autostart()) == (xml_before, 1)


def test_the_next_definition_of_a_running_network_is_compared():
    class Running:
        """Stand for QEMU's driver, which shows both definitions: the test driver shows one."""

        def isPersistent(self):  # noqa: N802 - libvirt's name
            return 1

        isActive = isPersistent  # noqa: N815 - libvirt's name

        def XMLDesc(self, flags):  # noqa: N802 - libvirt's name
            return FILLED.replace("virbr3", "next") if flags else FILLED

    assert networks.read_definition(Running()).bridge == "next"


def test_a_network_with_running_vms_in_it_is_not_removed():
    class Used:
        """Stand for QEMU's driver, which counts the VMs' interfaces: the test driver does not."""

        def isPersistent(self):  # noqa: N802 - libvirt's name
            return 1

        isActive = isPersistent  # noqa: N815 - libvirt's name

        def XMLDesc(self, _flags):  # noqa: N802 - libvirt's name
            return FILLED

    host = type("Host", (), {"networkLookupByName": lambda _self, _name: Used()})()
    with pytest.raises(VirtError, match="has 1 interfaces of running VMs"):
        networks.remove(host, "lan", is_test=False)


MODES = (None, *networkspec.MODES)


def of_mode(mode, **options):
    """Return a network of a mode with all that libvirt needs for it."""
    is_own = mode in network.GENERATED
    bridge = "br7" if mode == "bridge" else None
    more = {"ipv4_config": {"cidr": "10.9.0.0/24"}} if is_own else {}
    return networkspec.from_call("lan", bridge, mode, {**more, **options})


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_a_network_of_any_mode_becomes_one_of_any_other(conn, before, after):
    networks.define(conn, of_mode(before), autostart=False, start=False)
    changes = before != after

    assert networks.update(conn, of_mode(after), is_test=True) is changes
    assert networks.update(conn, of_mode(after)) is changes
    assert networks.update(conn, of_mode(after)) is False
    # QEMU's libvirt refuses the MAC where it has no bridge of its own; the test driver does not.
    old = replace(of_mode(before), uuid="u", mac="52:54:00:12:34:56")
    updated = network.with_identity(of_mode(after), old)
    assert updated.mac == (old.mac if after in network.GENERATED else None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", ["network_defined", "network_running"])
def test_a_bridge_is_not_required_where_the_mode_needs_none(conn, mode, function):
    states = load_module("_states")
    options = {"ipv4_config": {"cidr": "10.9.0.0/24"}} if mode in network.GENERATED else {}

    answer = getattr(states, function)("lan", forward=mode, **options)

    if mode == "bridge":
        assert (answer["result"], answer["changes"]) == (False, {})
        assert answer["comment"] == "bridge: is missing: with forward=bridge a network has it"
    else:
        assert answer["result"] is True and answer["changes"]
        assert getattr(states, function)("lan", forward=mode, **options)["changes"] == {}


def test_the_mode_is_required(conn):
    module, states = load_module("_modules"), load_module("_states")

    answer = states.network_defined("lan", bridge="br0")
    assert answer["result"] is False and answer["comment"].startswith("forward: is missing; one of")
    for function in (module.network_define, module.network_update):
        with pytest.raises(BadArgument, match="forward: is missing; one of nat, .* or null for"):
            function("lan", "br0")
