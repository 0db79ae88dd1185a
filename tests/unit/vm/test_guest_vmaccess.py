"""Where a VM is reached, and its network with NAT, on libvirt's own test driver."""

import libvirt
import pytest
from saltvirt.core import guestaccess
from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, nat
from saltvirt.libvirt.domains import power
from saltvirt.network.bridge import links
from saltvirt.vm.guest.host import inguest
from saltvirt.vm.show.host import inspect
from saltvirt.xml import parse
from saltvirt.xml.edit import readdomain

TEST = HostSettings(uri="test:///default")
LEASE = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE
AGENT = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
ARP = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP
CHANNEL = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' {}/></channel>"
NIC = (
    "<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/></interface>"
)


@pytest.fixture
def conn():
    """A connection to a libvirt that has one VM, ``test``, which runs."""
    with connect.open_connection(TEST, readonly=False) as conn:
        yield conn


def with_nic(conn, name="web1", note=""):
    """Have a VM with a NIC on a network run."""
    ours = '<metadata><v:vm xmlns:v="{}" {}/></metadata>'
    namespace = inspect.readdomain.metadata.METADATA_NS
    conn.createXML(
        f"<domain type='test'><name>{name}</name>{ours.format(namespace, note)}"
        "<memory unit='MiB'>64</memory><os><type>hvm</type></os><devices>"
        "<interface type='network'><source network='default'/></interface></devices></domain>"
    )


def test_one_vm_says_where_it_is_reached_and_a_list_of_all_does_not(conn):
    with_nic(conn, note='ssh_user="debian"')

    shown = inguest.describe_vm(conn, "web1", "hyper1")["web1"]

    (address,) = shown["addresses"]
    assert guestaccess.addresses([address]) == [address]
    assert shown["ssh_user"] == "debian" and shown["addresses_from"] == "lease"
    # The test driver's network is one with NAT: the way leads through the host.
    assert shown["behind_host"] == ["192.168.122.0/24"]
    assert shown["login"] == f"ssh -J hyper1 debian@{address}"
    assert not {"addresses", "login"} & set(inspect.vm_info(conn)["web1"])


def test_without_keys_the_console_is_the_way_in(conn):
    with_nic(conn, note='ssh_user="-oProxyCommand=reboot"')

    shown = inguest.describe_vm(conn, "web1", "hyper1")["web1"]

    assert shown["ssh_user"] is None
    assert shown["login"].startswith("virsh console web1 (on hyper1; asks for a password")


def test_a_vm_that_does_not_run_is_reached_nowhere(conn):
    power.act(conn, "test", "destroy")

    shown = inguest.describe_vm(conn, "test", "hyper1")["test"]

    assert (shown["addresses"], shown["login"]) == ([], None)


class Guest:
    """Stand for a domain whose sources fail or lie: libvirt's test driver has neither."""

    def __init__(self, **said):
        self._said, self.asked, self.timeouts = said, [], []

    def lookupByName(self, _name):  # noqa: N802 - libvirt's name
        """Return the domain."""
        return self

    def name(self):
        """Return the domain's name."""
        return "web1"

    def agentSetResponseTimeout(self, seconds):  # noqa: N802 - libvirt's name
        """Take in for how long the agent may be silent."""
        self.timeouts.append(seconds)

    def interfaceAddresses(self, source):  # noqa: N802 - libvirt's name
        """Return what one source says."""
        name = {LEASE: "lease", AGENT: "agent", ARP: "arp"}[source]
        self.asked.append(name)
        if name not in self._said:
            raise libvirt.libvirtError("it does not answer")
        return {"vnet0": {"addrs": [{"addr": one} for one in self._said[name]]}, "lo": {}}


@pytest.mark.parametrize(
    ("said", "listens", "found", "asked"),
    [
        ({"lease": ["192.0.2.7"], "table": ["192.0.2.9"]}, True, ["192.0.2.7"], ["lease"]),
        ({"lease": [], "agent": ["192.0.2.8"]}, True, ["192.0.2.8"], ["lease", "agent"]),
        ({"agent": ["192.0.2.8"], "table": ["192.0.2.9"]}, False, ["192.0.2.9"], ["lease"]),
        ({"agent": ["x", "fe80::1%x"], "table": ["fe80::1"]}, True, [], ["lease", "agent"]),
        ({"arp": ["192.0.2.9"]}, True, ["192.0.2.9"], ["lease", "agent", "arp"]),
        ({}, True, [], ["lease", "agent", "arp"]),
    ],
)
def test_sources_are_asked_until_one_knows(monkeypatch, caplog, said, listens, found, asked):
    wanted = []

    def neighbours(pairs):
        wanted.append(pairs)
        if "table" not in said:
            raise links.LinkError("there is no pyroute2 here")
        return said["table"]

    monkeypatch.setattr(links, "neighbours", neighbours)
    guest, agent = Guest(**said), CHANNEL.format("state='connected'") if listens else ""
    root = parse(f"<domain><devices>{NIC}{agent}</devices></domain>")

    with caplog.at_level("DEBUG", "saltvirt"):
        shown, source = inguest._find_addresses(guest, "web1", root)

    assert (shown, guest.asked) == (found, asked)
    last = "neighbours" if wanted else asked[-1]
    assert source == (("arp" if "arp" in asked else last) if found else None)
    assert wanted in ([], [[("br0", "52:54:00:00:00:01")]])
    # An agent never has longer than that, whoever asks it later.
    assert guest.timeouts == ([3] if "agent" in asked else [])
    for silent in set(asked) - set(said):
        words = f"libvirt tells no addresses of VM web1 by {silent}: it does not answer"
        assert caplog.text.count(words) == 1


@pytest.mark.parametrize(
    ("state", "listens"),
    [("state='connected'", True), ("state='disconnected'", False), ("", False)],
)
def test_an_agent_listens_only_if_libvirt_says_so(state, listens):
    root = parse(f"<domain><devices>{CHANNEL.format(state)}</devices></domain>")

    assert readdomain.has_agent(root) is listens


def test_a_network_with_nat_is_made_started_and_kept(conn):
    xml = nat.build_xml("lan", "10.99.0.0/24")
    changes = nat.plan(conn, "lan", "10.99.0.0/24")

    nat.apply(conn, "lan", xml, changes)

    network = conn.networkLookupByName("lan")
    assert changes == {"defined": "10.99.0.0/24", "started": True, "autostart": True}
    assert network.isActive() and network.autostart()
    root = parse(network.XMLDesc(0))
    assert root.find("forward").get("mode") == "nat"
    assert root.find("ip").attrib == {"family": "ipv4", "address": "10.99.0.1", "prefix": "24"}
    assert root.find("ip/dhcp/range").attrib == {"start": "10.99.0.2", "end": "10.99.0.254"}
    assert nat.plan(conn, "lan", "10.99.0.0/24") == {}


def test_a_network_that_is_off_is_started_and_stays_as_it_is(conn):
    conn.networkLookupByName("default").destroy()
    before = conn.networkLookupByName("default").XMLDesc(0)

    changes = nat.plan(conn, "default", nat.SUBNET)
    nat.apply(conn, "default", nat.build_xml("default", nat.SUBNET), changes)

    assert changes == {"started": True, "autostart": True}
    assert conn.networkLookupByName("default").isActive()
    assert conn.networkLookupByName("default").XMLDesc(0) == before


def test_a_network_that_cannot_be_started_is_not_left_and_says_what_to_do():
    class Network:
        """Stand for one whose addresses the host itself has: the test driver starts any."""

        def __init__(self):
            self.is_gone = False

        def create(self):
            raise libvirt.libvirtError("Network is already in use by interface eth0")

        def undefine(self):
            self.is_gone = True

    network = Network()
    host = type("Host", (), {"networkDefineXML": lambda _self, _xml: network})()

    with pytest.raises(LibvirtRefused, match="already in use .*virsh net-edit default, or set"):
        nat.apply(host, "default", "", {"defined": nat.SUBNET, "started": True})
    assert network.is_gone


@pytest.mark.parametrize(
    ("subnet", "why"),
    [
        *(("x", "not an IPv4 network"), ("10.0.0.1/24", "host bits"), ("10.0.0.0/30", "no room")),
        *((net, "not a private network") for net in ("8.8.8.0/24", "127.9.0.0/24", "240.0.0.0/24")),
        ("169.254.8.0/24", "not a private network"),
    ],
)
def test_a_subnet_that_cannot_be_one_is_refused(subnet, why):
    with pytest.raises(BadArgument, match=f"subnet: .*{why}"):
        nat.build_xml("default", subnet)
