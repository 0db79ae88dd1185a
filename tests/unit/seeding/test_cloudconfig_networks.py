"""A guest's network for cloud-init: each release of it sets the default route."""

import subprocess

import pytest
import yaml
from saltvirt.core.errors import BadArgument
from saltvirt.seeding import cloudconfig, firstboot
from saltvirt.vm import profiles


def network_of(*guest_configs, names=None):
    """Return the network configuration of a guest with some NICs."""
    entries = [
        {"name": name, "bridge": "br0", "mac": f"52:54:00:00:00:0{number}", "guest": guest}
        for number, (name, guest) in enumerate(
            zip(names or [f"eth{n}" for n in range(len(guest_configs))], guest_configs, strict=True)
        )
    ]
    return cloudconfig.network(profiles.nics("web1", {}, None, entries))


def test_a_gateway_outside_the_addresses_is_that_of_the_first_of_its_family():
    network = network_of(
        {"addresses": ["fd00::4/64", "10.77.200.9/32"], "gateway": ["10.77.0.1", "fd01::1"]}
    )

    assert network["config"][0]["subnets"] == [
        {"type": "static", "address": "fd00::4/64", "gateway": "fd01::1"},
        {"type": "static", "address": "10.77.200.9/32", "gateway": "10.77.0.1"},
    ]
    assert cloudconfig.find_gateways_outside(network) == [["fd01::1", "10.77.0.1"]]


NETPLAN = """\
network:
    version: 2
    ethernets:
        eth0:
            addresses:
            - 10.77.200.9/32
            gateway4: 10.77.0.1
            gateway6: fd01::1
            match:
                macaddress: '52:00:00:00:00:01'
"""
NETWORKD = "[Match]\nName=eth0\n\n[Route]\nGateway=10.77.0.1\nGateway=fd01::1\n\n"
ON_LINK = """\
[Match]
Name=eth0

[Route]
Gateway=10.77.0.1
GatewayOnLink=yes

[Route]
Gateway=fd01::1
GatewayOnLink=yes

"""


def test_a_script_in_the_guest_adds_on_link_where_a_release_of_cloud_init_omits_it(tmp_path):
    (tmp_path / "netplan").mkdir()
    (tmp_path / "network").mkdir()
    netplan = tmp_path / "netplan/50-cloud-init.yaml"
    networkd = tmp_path / "network/10-cloud-init-eth0.network"
    other_file = tmp_path / "netplan/99-other.yaml"
    netplan.write_text(NETPLAN)
    networkd.write_text(NETWORKD)
    other_file.write_text(NETPLAN.replace("10.77.0.1", "10.77.011").replace("fd01::1", "fd01::11"))
    unchanged = other_file.read_text()
    script = firstboot.gateways_on_link([["10.77.0.1", "fd01::1"], ["192.168.0.1"]])
    script = script.replace("/etc/netplan", str(tmp_path / "netplan"))
    script = script.replace("/etc/systemd/network", str(tmp_path / "network"))
    script = script.replace("netplan generate", "echo generated")

    for _run in range(2):
        subprocess.run(["sh", "-euc", script], check=True)

    port = yaml.safe_load(netplan.read_text())["network"]["ethernets"]["eth0"]
    assert port["routes"] == [
        {"to": "0.0.0.0/0", "via": "10.77.0.1", "on-link": True},
        {"to": "::/0", "via": "fd01::1", "on-link": True},
    ]
    assert not {"gateway4", "gateway6"} & set(port) and port["match"] == {
        "macaddress": "52:00:00:00:00:01"
    }
    assert networkd.read_text() == ON_LINK
    assert [path.name for path in networkd.parent.iterdir()] == [networkd.name]
    assert other_file.read_text() == unchanged


def test_each_gateway_is_in_the_network_that_has_it():
    addresses = ["10.0.0.4/16", "192.168.1.4/24", "fd00::4/64", "fd01::4/64"]
    network = network_of(
        {"addresses": addresses, "gateway": ["192.168.1.1", "fd01::1"], "dhcp": True}
    )

    subnets = network["config"][0]["subnets"]
    assert subnets[0] == {"type": "dhcp4"}
    assert [subnet.get("gateway") for subnet in subnets[1:]] == [
        None,
        "192.168.1.1",
        None,
        "fd01::1",
    ]


def test_a_link_local_gateway_is_in_no_network_and_on_every_link():
    network = network_of({"addresses": ["fd00::4/64"], "gateway": "fe80::1"})

    assert network["version"] == 1
    assert network["config"][0]["subnets"][0]["gateway"] == "fe80::1"


def test_name_servers_of_a_nic_with_dhcp_alone_need_version_2():
    network = network_of("dhcp", {"dhcp": True, "dns": ["10.0.0.1"], "search": ["example.org"]})

    assert [ethernet["set-name"] for ethernet in network["ethernets"].values()] == ["eth0", "eth1"]
    assert network["ethernets"]["eth1"]["nameservers"] == {
        "addresses": ["10.0.0.1"],
        "search": ["example.org"],
    }
    with_gateway = {"addresses": ["10.0.0.4/16"], "gateway": "10.0.0.1"}
    network = network_of(with_gateway, {"dhcp": True, "dns": ["10.0.0.1"]})
    assert network["version"] == 1, "for the default route"
    assert network["config"][2] == {"type": "nameserver", "address": ["10.0.0.1"], "search": []}


@pytest.mark.parametrize("servers", [{}, {"dns": ["10.0.0.1"]}])
def test_each_nic_has_a_name_that_a_guest_can_give(servers):
    names = ["eth0", "the-network-of-the-office", "lan.7", "lo", "wan"]
    network = network_of(*[{"dhcp": True, **servers}] * 5, names=names)

    links = (
        list(network["ethernets"]) if servers else [device["name"] for device in network["config"]]
    )
    assert links == ["eth0", "eth1", "eth2", "eth3", "wan"]


def test_a_nic_without_any_address_stays_as_it_is():
    assert network_of({"dhcp": False})["config"][0]["subnets"] == [{"type": "manual"}]


@pytest.mark.parametrize(
    ("guest_config", "reason"),
    [
        (
            {"addresses": ["10.0.0.4/16"], "gateway": ["10.0.0.1", "10.0.0.2"]},
            "10.0.0.1 and 10.0.0.2 are both IPv4; a NIC has one gateway of each family",
        ),
        (
            {"addresses": ["10.0.0.4/16"], "gateway": "fd00::1"},
            "fd00::1 is IPv6, and addresses has no IPv6 address",
        ),
        (
            {"addresses": ["10.0.0.4/16", "fd00::4/64"], "gateway": "fd00:0::4"},
            "fd00::4 is the guest's own address",
        ),
        ({"addresses": ["10.0.0.4/16"], "gateway": "0.0.0.0"}, "0.0.0.0 is no address of a router"),
        ({"addresses": ["10.0.0.4/16"], "gateway": "10.0.255.255"}, "own or broadcast address"),
    ],
)
def test_a_gateway_that_gives_no_default_route_is_refused(guest_config, reason):
    with pytest.raises(BadArgument, match=reason):
        network_of(guest_config)
