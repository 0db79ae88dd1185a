"""ifupdown's file: only the stanzas of a bridge and its ports are edited; ifupdown reads them."""

import subprocess
from dataclasses import replace

import netcases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.network.managers import ifupdown, interfaces, tools

CONFIG = replace(netcases.CONFIG, dns=(), seen=(("10.9.0.0/16", "10.0.0.9"),))
LO = "auto lo\niface lo inet loopback\n\n"
STATIC = """allow-hotplug eth0
iface eth0 inet static
    address 10.0.0.4/16
    gateway 10.0.0.1
"""
SITE = """# The site's own words, eth0 too.
source-directory interfaces.d
no-auto-down eth9

auto eth0 eth9
iface eth0 inet static
    # of the rack
    address 10.0.0.4/16
    gateway 10.0.0.1
    dns-search corp.example
    dns-nameservers 10.0.0.53
    post-up ethtool -K eth0 gro off
    up ip route add 10.9.0.0/16 \\
       via 10.0.0.9 || true

# Two of one name.
iface eth9 inet static
\taddress 10.1.0.4/16
iface eth9 inet static
\taddress 10.2.0.4/16

mapping eth5
    script /usr/local/sbin/where
    map home
allow-hotplug wlan0
iface wlan0 inet dhcp
    wpa-psk secret"""
BOND = """auto bond0
iface bond0 inet static
    address 10.0.0.4/16
    gateway 10.0.0.1
    bond-slaves eth0 eth1
    bond-mode 802.3ad
"""


def read(tmp_path, text, *names):
    """Return the options that ifupdown reads, ``{name: [line]}``, and what it brings up."""
    path = tmp_path / "interfaces"
    path.write_text(text)

    def ifquery(*words):
        argv = ["ifquery", "-i", path, "--state-dir", tmp_path, *words]
        process = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert process.returncode == 0 and not process.stderr, process
        return process.stdout.splitlines()

    return {name: ifquery(name) for name in names}, ifquery("--list")


@pytest.mark.parametrize("text", [LO + STATIC, LO + SITE, "", STATIC], ids=range(4))
@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, dhcp=True),
        replace(
            CONFIG, addresses=("fd00::4/64",), gateways=("fe80::1",), routes=(("10.9.0.0/16", ""),)
        ),
        replace(CONFIG, addresses=(), gateways=(), routes=()),
    ],
    ids=["static", "dhcp", "ipv6", "none"],
)
def test_a_second_edit_changes_nothing_and_ifupdown_reads_the_file(tmp_path, text, config):
    edited = interfaces.with_bridge(text, config)

    assert interfaces.with_bridge(edited, config) == edited
    restored = interfaces.without_bridge(edited, "br0", replace(config, name="eth0", ports=()))
    assert "br0" not in restored
    assert (
        interfaces.with_bridge(restored, config)
        .splitlines()
        .count(
            "iface br0 inet "
            + (
                "dhcp"
                if config.dhcp
                else "static"
                if "10.0.0.4/16" in config.addresses
                else "manual"
            )
        )
        == 1
    )
    for content in (edited, restored):
        read(tmp_path, content, *interfaces.names(content))


def test_only_the_stanzas_of_bridge_and_port_are_edited(tmp_path):
    edited = interfaces.with_bridge(SITE, CONFIG)

    before, after = SITE.splitlines(), edited.splitlines()
    removed_lines = [line.strip() for line in before if line not in after]
    assert removed_lines == [
        "iface eth0 inet static",
        "up ip route add 10.9.0.0/16 \\",
        "via 10.0.0.9 || true",
    ]
    for part in (
        "# Two of one name.\niface eth9 inet static\n\taddress 10.1.0.4/16\niface eth9 "
        "inet static\n\taddress 10.2.0.4/16\n",
        "mapping eth5\n    script",
        "source-directory interfaces.d",
        "wpa-psk secret\n",
    ):
        assert part in edited
    options_read, _up = read(tmp_path, edited, "eth0", "br0")
    assert options_read["eth0"] == ["up: ethtool -K eth0 gro off"]
    for line in (
        "address: 10.0.0.4",
        "gateway: 10.0.0.1",
        "bridge_ports: eth0",
        "dns-search: corp.example",
        "dns-nameservers: 10.0.0.53",
        "up: ip address replace fd00::4/64 dev br0",
        "up: ip route replace 10.9.0.0/16 via 10.0.0.9 dev br0",
    ):
        assert line in options_read["br0"]


def test_an_undo_restores_the_text():
    config = replace(CONFIG, addresses=("10.0.0.4/16",), routes=())
    edited = interfaces.with_bridge(LO + STATIC, config)

    assert interfaces.without_bridge(edited, "br0", replace(config, name="eth0")) == LO + STATIC
    assert interfaces.without_bridge(edited, "br0", None) == LO + (
        "allow-hotplug eth0\niface eth0 inet manual\n"
    )


@pytest.mark.parametrize(("ports", "expected_ports"), [((), "eth0"), (("eth1",), "eth1 eth0")])
def test_a_port_that_is_not_asked_for_stays(tmp_path, ports, expected_ports):
    text = "auto br0\niface br0 inet static\n address 10.0.0.4/16\n bridge-ports eth0\n"
    config = replace(CONFIG, ports=ports)
    edited = interfaces.with_bridge(text, config)

    assert f"bridge_ports: {expected_ports}" in read(tmp_path, edited, "br0")[0]["br0"]
    assert interfaces.with_bridge(edited, config) == edited


def test_a_bond_keeps_its_links_and_comes_up_before_its_bridge(tmp_path):
    edited = interfaces.with_bridge(LO + BOND, replace(CONFIG, ports=("bond0",)))

    options_read, up = read(tmp_path, edited, "bond0", "br0")
    assert options_read["bond0"] == ["bond-slaves: eth0 eth1", "bond-mode: 802.3ad"]
    assert up == ["lo", "bond0", "br0"]


def test_a_vlan_keeps_its_link(tmp_path):
    text = "auto lan10\niface lan10 inet static\n address 10.0.0.4/16\n vlan-raw-device eth0\n"
    edited = interfaces.with_bridge(text, replace(CONFIG, ports=("lan10",)))

    assert read(tmp_path, edited, "lan10")[0] == {"lan10": ["vlan-raw-device: eth0"]}


def test_ipv6_by_routers_goes_with_the_bridge_and_back():
    text = "auto eth0\niface eth0 inet6 auto\n    privext 0\n    up logger x\n"
    config = replace(CONFIG, addresses=(), gateways=(), routes=())
    edited = interfaces.with_bridge(text, config)

    assert "iface br0 inet6 auto\n    privext 0" in edited and "eth0 inet6" not in edited
    assert edited.count("logger") == 1
    assert interfaces.with_bridge(edited, config) == edited
    restored = interfaces.without_bridge(edited, "br0", replace(config, name="eth0"))
    assert "iface eth0 inet6 auto\n    privext 0" in restored and "br0" not in restored


def test_a_static_address_stays_beside_a_lease(tmp_path):
    config = replace(CONFIG, dhcp=True, addresses=("192.0.2.9/24",), gateways=())
    edited = interfaces.with_bridge("auto eth0\niface eth0 inet dhcp\n    hostname h1\n", config)

    options_read, _up = read(tmp_path, edited, "br0")
    assert "iface br0 inet dhcp" in edited and "hostname: h1" in options_read["br0"]
    assert "up: ip address replace 192.0.2.9/24 dev br0" in options_read["br0"]


def test_an_ipv6_gateway_has_its_link():
    edited = interfaces.with_bridge("", replace(CONFIG, gateways=("fe80::1",)))

    assert "up ip -6 route replace default via fe80::1 dev br0" in edited


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("iface eth0 inet static inherits base\n", "eth0 inherits from another stanza"),
        (
            "iface eth0:1 inet static\n  address 10.0.0.5/16\n",
            "has eth0:1, whose address would stay",
        ),
        ("mapping eth*\n  script x\n", r"maps eth0 to another stanza \(mapping eth\*\)"),
        ("auto /eth*=lan\n", r"maps eth0 to another stanza"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused(text, reason):
    with pytest.raises(tools.PersistenceError, match=reason):
        interfaces.refuse_unclear(text, "/etc/network/interfaces", ["br0", "eth0"])


def test_an_ipv6_lease_of_a_port_is_refused_and_one_of_the_bridge_stays():
    text = "iface br0 inet6 dhcp\n"
    interfaces.refuse_dhcpv6(text, "x", ["eth0"])
    assert text in interfaces.with_bridge(text, CONFIG)

    with pytest.raises(tools.PersistenceError, match="br0 has its IPv6 address by DHCPv6"):
        interfaces.refuse_dhcpv6(text, "x", ["br0", "eth0"])


def test_a_hook_that_does_two_things_is_refused():
    text = "iface eth0 inet static\n  up ip route add 10.9.0.0/16 via 10.0.0.9; ethtool -K eth0\n"

    with pytest.raises(tools.PersistenceError, match="make two lines of it"):
        interfaces.with_bridge(text, CONFIG)


@pytest.mark.parametrize(
    "hook",
    [
        "ip addr add 10.255.0.1/32 dev lo",
        "ip route add 10.8.0.0/24 dev tun0 || true",
        "ip route add blackhole 10.66.0.0/16",
        "ip route flush cache",
        "ifconfig eth0 promisc",
        "ifconfig eth0 txqueuelen 10000",
        "ifconfig eth0 hw ether 52:54:00:00:00:01",
        "route add -net 10.8.0.0/24 tun0",
    ],
)
def test_a_hook_that_gives_the_port_neither_address_nor_route_stays(hook):
    edited = interfaces.with_bridge(f"iface eth0 inet static\n    post-up {hook}\n", CONFIG)

    assert edited.count(f"post-up {hook}\n") == 1


@pytest.mark.parametrize(
    "hook",
    [
        "ip addr add 10.0.0.4/16 dev $IFACE",
        "ip route add default via 10.0.0.1",
        "ifconfig eth0 10.0.0.4",
        "route add -net 10.9.0.0 netmask 255.255.0.0 gw 10.0.0.9 eth0",
        "ip route del 10.9.0.0/16",
    ],
)
def test_a_hook_that_sets_what_the_bridge_has_is_removed(hook):
    assert hook not in interfaces.with_bridge(f"iface eth0 inet static\n  up {hook}\n", CONFIG)


@pytest.mark.parametrize(
    "hook",
    [
        "ip route add 10.50.0.0/16 via 10.0.0.9",
        "ip route add 10.9.0.0/16 via 10.0.0.8",
        "ip route add default via 10.0.0.1 table 5",
        "ip addr add 10.0.0.5/16 dev eth0",
    ],
)
def test_a_hook_with_an_address_or_route_that_the_port_lacks_is_refused(hook):
    with pytest.raises(tools.PersistenceError, match="sets what eth0 does not have now"):
        interfaces.with_bridge(f"iface eth0 inet static\n  up {hook} || true\n", CONFIG)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """The interfaces file of a host with ifupdown."""
    path = tmp_path / "interfaces"
    monkeypatch.setattr(ifupdown, "_PATH", str(path))
    monkeypatch.setattr(ifupdown, "_BRIDGES", tmp_path)
    (tmp_path / "interfaces.d").mkdir()
    path.write_text(f"source {tmp_path}/interfaces.d/*\n\n" + LO + STATIC)
    path.chmod(0o640)
    return path


def test_the_file_is_written_once_and_keeps_its_mode_there_and_back(host, monkeypatch):
    calls = []
    real_put = ifupdown.put
    monkeypatch.setattr(ifupdown, "put", lambda *args: (calls.append(args), real_put(*args)))
    manager, before = ifupdown.Ifupdown(), host.read_text()
    assert list(manager.pending(CONFIG)) == [str(host)] and host.read_text() == before

    persistence = manager.persisting(CONFIG)
    persistence._files(is_rollback=False)
    assert len(calls) == 1 and manager.pending(CONFIG) == {}
    assert manager.files_of("br0") == [f"{host}: br0"] and manager.claims(["br0"])
    assert host.stat().st_mode & 0o777 == 0o640
    persistence._files(is_rollback=True)
    assert host.read_text() == before and host.stat().st_mode & 0o777 == 0o640


def test_a_bridge_that_is_down_does_not_go_with_the_addresses_of_its_port(host):
    """Only the stanza has the addresses: without it the host would boot with none."""
    manager = ifupdown.Ifupdown()
    host.write_text(interfaces.with_bridge(host.read_text(), CONFIG))
    with pytest.raises(tools.PersistenceError, match="bring it up \\('ifup br0'\\), or give that"):
        manager.forgetting("br0", (), None)
    manager.forgetting("br0", ("eth0",), replace(CONFIG, name="eth0"))

    for text in ("iface br0 inet manual\n bridge_ports eth0\n", "iface br0 inet dhcp\n"):
        host.write_text(text)
        manager.forgetting("br0", (), None)


@pytest.mark.parametrize(
    "line", ["source {0}/interfaces.d/*", "source-directory interfaces.d", "source {0}/more"]
)
def test_a_port_in_a_file_of_its_own_is_refused_with_its_path(host, line):
    host.write_text(line.format(host.parent) + "\n" + LO)
    (host.parent / "more").write_text("source interfaces.d/*\n")
    manager = ifupdown.Ifupdown()
    assert manager.pending(CONFIG)  # the folder is empty, as it is on a new host

    (host.parent / "interfaces.d/lan").write_text(STATIC.replace("eth0", "eth1"))
    assert manager.pending(CONFIG)
    (host.parent / "interfaces.d/lan").write_text(STATIC)
    with pytest.raises(tools.PersistenceError, match="interfaces.d/lan sets eth0, and only"):
        manager.pending(CONFIG)
    with pytest.raises(tools.PersistenceError, match="interfaces.d/lan sets eth0, and only"):
        manager.forgetting("br0", ["eth0"], None)


LINES = st.sampled_from(
    [
        "",
        "# x",
        "auto eth0",
        "auto lo",
        "iface eth0 inet static",
        "  up true",
        "iface lo inet loopback",
        "  address 10.0.0.4/16",
        "mapping eth7",
        "  script a \\",
        "source none",
        "iface eth0 inet6 auto",
        "  mtu 9000",
        "allow-hotplug eth0 eth1",
        "\tpost-up x",
        "no-scripts eth1",
    ]
)


@given(st.lists(LINES, max_size=20))
def test_any_file_keeps_foreign_lines_and_a_second_edit_changes_nothing(lines):
    text = "\n".join(lines)
    edited = interfaces.with_bridge(text, CONFIG)

    assert interfaces.with_bridge(edited, CONFIG) == edited
    for line in ("# x", "mapping eth7", "source none", "no-scripts eth1"):
        assert edited.count(line) == text.count(line)
    assert "br0" not in interfaces.without_bridge(edited, "br0", replace(CONFIG, name="eth0"))
