"""The plan of a bridge, its files, and the firewall's rules: pure functions, in every shape."""

from dataclasses import replace

import netcases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.network.bridge import bridgeplan
from saltvirt.network.firewall import rules
from saltvirt.network.managers import interfaces, linkconfig, netplan
from snapshots import BR0, address, carried_out, link, route, same

CONFIG = netcases.CONFIG
BEFORE = {
    "links": {
        "eth0": link(
            addresses=[
                address("10.0.0.4/16"),
                address("fd00::4/64"),
                address("fe80::1/64", scope=253),
            ]
        )
    },
    "routes": [route("default", "10.0.0.1", "eth0"), route("10.9.0.0/16", "10.0.0.9", "eth0")],
}


def test_the_bridge_gets_everything_of_its_port():
    target_state = bridgeplan.target(BEFORE, BR0)

    bridge_addresses = [a["address"] for a in target_state["links"]["br0"]["addresses"]]
    assert bridge_addresses == ["10.0.0.4/16", "fd00::4/64"]
    assert [a["address"] for a in target_state["links"]["eth0"]["addresses"]] == ["fe80::1/64"]
    assert {r["oif"] for r in target_state["routes"]} == {"br0"}
    assert target_state["links"]["br0"]["mac"] == "52:00:00:00:00:01"


def test_the_steps_lead_to_the_target_and_back_and_leave_nothing_to_do():
    target_state = bridgeplan.target(BEFORE, BR0)

    new_state = carried_out(BEFORE, bridgeplan.operations(BEFORE, target_state))
    assert same(new_state, target_state)
    assert bridgeplan.operations(new_state, bridgeplan.target(new_state, BR0)) == []
    old_state = carried_out(new_state, bridgeplan.operations(new_state, BEFORE))
    assert same(old_state, BEFORE)


@given(st.integers(0, 30))
def test_a_change_that_stops_after_any_step_can_be_put_back(count):
    steps = bridgeplan.operations(BEFORE, bridgeplan.target(BEFORE, BR0))
    partial_state = carried_out(BEFORE, steps[:count])

    assert same(carried_out(partial_state, bridgeplan.operations(partial_state, BEFORE)), BEFORE)


def test_a_bridge_goes_and_its_one_port_inherits():
    new_state = carried_out(BEFORE, bridgeplan.operations(BEFORE, bridgeplan.target(BEFORE, BR0)))

    final_state = carried_out(
        new_state,
        bridgeplan.operations(new_state, bridgeplan.without_bridge(new_state, "br0", ["eth0"])),
    )

    assert "br0" not in final_state["links"]
    assert same(final_state, BEFORE)


def test_a_port_that_has_left_its_bridge_already_is_not_removed_with_it():
    new_state = carried_out(BEFORE, bridgeplan.operations(BEFORE, bridgeplan.target(BEFORE, BR0)))
    new_state["links"]["eth0"]["master"] = None  # its manager was faster

    final_state = carried_out(
        new_state,
        bridgeplan.operations(new_state, bridgeplan.without_bridge(new_state, "br0", ["eth0"])),
    )

    assert same(final_state, BEFORE)


def test_a_leased_address_that_is_made_static_never_expires():
    snapshot = {**BEFORE, "links": {"eth0": link(addresses=[address("10.0.0.4/16", valid_s=90)])}}
    leased_state = carried_out(
        snapshot, bridgeplan.operations(snapshot, bridgeplan.target(snapshot, BR0))
    )
    assert leased_state["links"]["br0"]["addresses"] == [address("10.0.0.4/16", valid_s=90)]

    static = replace(BR0, addresses=("10.0.0.4/16",))
    static_state = carried_out(
        leased_state, bridgeplan.operations(leased_state, bridgeplan.target(leased_state, static))
    )

    assert static_state["links"]["br0"]["addresses"] == [address("10.0.0.4/16")]
    assert same(
        carried_out(static_state, bridgeplan.operations(static_state, leased_state)), leased_state
    )


def test_routes_from_a_lease_that_ends_do_not_keep_its_address_as_their_source():
    """Networkd and NetworkManager set ``src`` there; the kernel refuses an address it lacks."""
    leased = {
        "links": {"eth0": link(addresses=[address("10.0.0.50/16", valid_s=90)])},
        "routes": [
            route("default", "10.0.0.1", "eth0", proto=16, prefsrc="10.0.0.50"),
            route("10.0.0.1/32", None, "eth0", proto=16, prefsrc="10.0.0.50", scope=253),
            route("10.9.0.0/16", "10.0.0.9", "eth0", prefsrc="10.7.0.1"),
        ],
    }
    for gateway in (None, "10.0.0.1"):
        static = replace(BR0, addresses=("10.0.0.4/16",), gateway=gateway)
        target_state = bridgeplan.target(leased, static)
        assert {r["prefsrc"] for r in target_state["routes"]} == {None, "10.7.0.1"}
        new_state = carried_out(leased, bridgeplan.operations(leased, target_state))
        assert bridgeplan.operations(new_state, bridgeplan.target(new_state, static)) == []
        assert same(carried_out(new_state, bridgeplan.operations(new_state, leased)), leased)


def test_an_address_that_a_router_advertises_is_not_taken_away_each_time():
    static = replace(BR0, addresses=("10.0.0.4/16",))
    new_state = carried_out(
        BEFORE, bridgeplan.operations(BEFORE, bridgeplan.target(BEFORE, static))
    )
    new_state["links"]["br0"]["addresses"].append(address("2001:db8::5/64", valid_s=86400))

    assert bridgeplan.operations(new_state, bridgeplan.target(new_state, static)) == []


def test_a_foreign_delay_is_left_until_stp_needs_another():
    def steps(stp):
        bridge_link = link(kind="bridge", bridge={"stp": stp, "forward_delay_cs": 1500})
        bridge = replace(BR0, ports=(), options={"stp": stp, "forward_delay_cs": 0})
        before = {"links": {"br0": bridge_link}, "routes": []}
        return bridgeplan.operations(before, bridgeplan.target(before, bridge))

    assert steps(stp=0) == []
    assert steps(stp=1) == [("bridge", "br0", {"forward_delay_cs": 0})]


def test_static_addresses_and_a_gateway_replace_what_the_port_had():
    bridge = bridgeplan.Bridge(
        name="br0", ports=("eth0",), addresses=("192.0.2.2/24",), gateway="192.0.2.1", mtu=9000
    )
    new_state = carried_out(
        BEFORE, bridgeplan.operations(BEFORE, bridgeplan.target(BEFORE, bridge))
    )

    assert [a["address"] for a in new_state["links"]["br0"]["addresses"]] == ["192.0.2.2/24"]
    default = [r["gateway"] for r in new_state["routes"] if r["dst"] == "default"]
    assert default == ["192.0.2.1"]
    assert {changed_link["mtu"] for changed_link in new_state["links"].values()} == {9000}
    assert bridgeplan.operations(new_state, bridgeplan.target(new_state, bridge)) == []


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ({}, "no link 'eth0' on this host; there are: lan"),
        ({"eth0": link(master="br9")}, "'eth0' is a port of br9 already"),
        ({"eth0": link(kind="bridge")}, "'eth0' is a bridge itself"),
        ({"eth0": link(), "br0": link(kind="veth")}, "'br0' exists and is not a bridge"),
    ],
)
def test_a_port_that_cannot_be_one_is_refused(links, reason):
    with pytest.raises(VirtError, match=reason):
        bridgeplan.refuse_impossible({"links": links, "routes": []}, BR0, ["lan"])


def test_a_route_with_several_hops_is_refused():
    multipath = {**BEFORE, "routes": [route("default", None, "eth0", is_multipath=True)]}

    with pytest.raises(VirtError, match="several next hops"):
        bridgeplan.refuse_impossible(multipath, BR0, [])


def test_networkd_gets_a_bridge_its_network_and_a_network_for_each_port():
    files = linkconfig.networkd(CONFIG)

    assert sorted(path.rpartition("/")[2] for path in files) == [
        "05-salt-virt-br0-eth0.network",
        "05-salt-virt-br0.netdev",
        "05-salt-virt-br0.network",
    ]
    network = files["/etc/systemd/network/05-salt-virt-br0.network"]
    for line in (
        "DHCP=no",
        "Address=10.0.0.4/16",
        "Gateway=10.0.0.1",
        "DNS=10.0.0.53",
        "Destination=10.9.0.0/16",
    ):
        assert line in network.splitlines()


def test_vlans_are_kept_as_ranges():
    config = replace(CONFIG, vlan_filtering=True, vlans=arguments.vlans("vlans", [30, "10-12"]))

    assert (
        "VLAN=10-12"
        in linkconfig.networkd(config)["/etc/systemd/network/05-salt-virt-br0-eth0.network"]
    )
    port = linkconfig.networkmanager(config)[
        "/etc/NetworkManager/system-connections/salt-virt-br0-eth0.nmconnection"
    ]
    assert "vlans=10-12, 30" in port


def test_netplan_gives_up_the_addresses_of_a_port_and_nothing_else():
    text = (
        "network: {ethernets: {eth0: {addresses: [10.0.0.4/16], wakeonlan: true}, "
        "eth1: {dhcp4: true}}}"
    )
    changed = netplan.without_ports(text, ["eth0"])

    assert "10.0.0.4" not in changed and "wakeonlan" in changed and "dhcp4: true" in changed
    assert netplan.without_ports(changed, ["eth0"]) is None


def test_ifupdown_loses_the_stanzas_of_one_interface_only():
    text = """auto lo
iface lo inet loopback

auto br0
iface br0 inet static
    address 10.0.0.4
    bridge_ports eth0

auto br01
iface br01 inet manual
"""
    remaining = interfaces.without_bridge(text, "br0", None)

    assert "10.0.0.4" not in remaining and "iface lo inet loopback" in remaining
    assert "auto br01\niface br01 inet manual" in remaining


def test_rules_name_ports_and_peers_and_a_mark_that_changes_with_them():
    ports = rules.ports([16514, "49152-49215"])
    peers = rules.networks(["10.0.0.2", "10.0.0.3", "fd00::2"])
    shared = rules.networks(["10.0.0.0/24"])

    text, mark = rules.nftables("salt_virt", ports, peers, shared)
    _same_text, same_mark = rules.nftables(
        "salt_virt", ports, rules.networks(["fd00::2", "10.0.0.3/32", "10.0.0.2"]), shared
    )
    _other_text, other_mark = rules.nftables(
        "salt_virt", ports, rules.networks(["10.0.0.2"]), shared
    )
    _moved_text, moved_mark = rules.nftables("salt_virt", ports, peers, rules.networks([]))

    assert mark == same_mark and len({mark, other_mark, moved_mark}) == 3
    assert "tcp dport { 16514, 49152-49215 } ip saddr @peers4 accept" in text
    assert "elements = { 10.0.0.2/31 }" in text and "elements = { fd00::2 }" in text


def test_answers_to_what_the_host_asks_others_come_in_before_anything_is_refused():
    """Their ports are among those that the kernel takes for outgoing connections."""
    ports_and_peers = (rules.ports([16514, "49152-49215"]), rules.networks(["10.0.0.2"]))
    table, _mark = rules.nftables("salt_virt", *ports_and_peers, rules.networks([]))
    chain, _mark = rules.iptables("SALT-VIRT", *ports_and_peers, 4)

    for text, answers in ((table, "ct direction reply tcp dport"), (chain, "--ctdir REPLY")):
        assert text.lower().index(answers.lower()) < text.lower().index("reject")
    assert "tcp dport { 16514, 49152-49215 } tcp flags & (syn | ack) != syn accept" in table
    assert "! --tcp-flags SYN,ACK SYN" in chain


def test_firewalld_gets_a_rule_for_each_peer_and_port():
    ports = rules.ports([16514])
    (rule,) = rules.rich_rules(ports, rules.networks(["10.0.0.2"]))

    assert rule == (
        'rule family="ipv4" source address="10.0.0.2" port port="16514" ' 'protocol="tcp" accept'
    )


@pytest.mark.parametrize("ports", [[], ["x"], [0], [70000], ["5-3"], ["1-x"], [None]])
def test_a_bad_port_is_refused(ports):
    with pytest.raises(BadArgument, match="^ports: "):
        rules.ports(ports)


@pytest.mark.parametrize("peer", ["here", "10.0.0.0/40", "", None, "1.2.3.4; drop"])
def test_a_peer_that_is_no_address_is_refused(peer):
    with pytest.raises(BadArgument, match="^peers: "):
        rules.networks([peer])
