"""The network of the appliance's user: the text of nft's rules, and what the kernel does."""

import json
import subprocess

import applianceuser
import pytest
from saltvirt.core.errors import SeedError
from saltvirt.seeding import inspection
from saltvirt.seeding.offline import barrier

LISTED = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
        {"ifname": "br0", "addr_info": [{"local": "10.77.2.9", "prefixlen": 16}]},
        {"ifname": "br1", "addr_info": [{"local": "10.77.3.1", "prefixlen": 24}]},
        {
            "ifname": "tun0",
            "addr_info": [{"local": "10.9.0.2", "address": "10.9.0.1", "prefixlen": 32}],
        },
        {"ifname": "eth1", "addr_info": [{"local": "2001:db8::5", "prefixlen": 64}, {}]},
        {"ifname": "eth2"},
    ]
)
# In a network namespace: eth0 is 10.77.2.9/16; the default gateway 10.77.0.1 does not exist.
KERNEL = """
set -e
ip link set lo up
ip link add eth0 type veth peer name nobody
ip link set nobody up
ip address add 10.77.2.9/16 dev eth0
ip link set eth0 up
ip route add default via 10.77.0.1
ip route add 10.78.0.0/16 dev eth0
ip neighbour add 10.77.0.1 lladdr 02:00:00:00:00:01 dev eth0
python3 - "$1" <<'EOF'
import os, sys
sys.path.insert(0, {utils!r})
from saltvirt.seeding.offline import barrier
barrier.put_up([int(sys.argv[1])], ["192.0.2.7"])
barrier.put_up([int(sys.argv[1])], ["192.0.2.7"])
EOF
nft list ruleset | grep -c 'chain output' >&2
exec python3 -c '
import json, os, socket, sys
server = socket.create_server(("127.0.0.1", 8099))
def attempt(address, port=8099):
    with socket.socket() as s:
        s.settimeout(0.3)
        try:
            s.connect((address, port))
            return "reached"
        except TimeoutError:
            return "sent"  # nobody is at the other end
        except OSError as exc:
            return os.strerror(exc.errno)
hosts = ["127.0.0.1", "10.77.2.9", "10.77.9.9", "192.0.2.7", "169.254.169.254", "198.51.100.1"]
hosts.append("10.78.9.9")
before = [attempt(host) for host in hosts]
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
print(json.dumps(dict(before=dict(zip(hosts, before)), after={{h: attempt(h) for h in hosts}})))
' "$1"
"""


def test_name_servers_are_allowed_and_nothing_else_in_this_hosts_networks():
    text = barrier.rules(
        [990, 991], [*barrier.own_networks(LISTED), "192.0.2.7"], ["127.0.0.53", "2001:db8::1"]
    )

    rows = [row.strip() for row in text.splitlines()]
    assert rows[:3] == [
        "table inet salt_virt_appliance",
        "delete table inet salt_virt_appliance",
        "table inet salt_virt_appliance {",
    ]
    assert rows[4:11] == [
        "ip daddr { 127.0.0.53/32 } udp dport 53 accept",
        "ip daddr { 127.0.0.53/32 } tcp dport 53 accept",
        "ip6 daddr { 2001:db8::1/128 } udp dport 53 accept",
        "ip6 daddr { 2001:db8::1/128 } tcp dport 53 accept",
        'oif "lo" reject',
        "ip daddr { 10.9.0.1/32, 10.9.0.2/32, 10.77.0.0/16, 127.0.0.0/8, 169.254.0.0/16, "
        "192.0.2.7/32, 224.0.0.0/4, 255.255.255.255/32 } reject",
        "ip6 daddr { ::1/128, 2001:db8::/64, fe80::/10, ff00::/8 } reject",
    ]
    assert "meta skuid { 990, 991 } jump appliance" in rows


def test_a_host_without_name_servers_has_rules_too():
    text = barrier.rules([990], [], [])

    assert "dport 53" not in text and 'oif "lo" reject' in text


def test_a_route_without_a_gateway_is_on_a_link():
    routes = [
        {"dst": "default", "gateway": "10.0.0.1", "dev": "eth0"},
        {"dst": "default", "dev": "ppp0", "scope": "link"},
        {"dst": "10.78.0.0/16", "dev": "eth0", "scope": "link"},
        {"dst": "192.168.0.0/24", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "eth0"},
        {"dst": "2001:db8:7::/64", "dev": "eth0", "protocol": "ra"},
        {"type": "unreachable", "dst": "10.200.0.0/16"},
        {"dst": "10.5.0.0/16", "nexthops": [{"gateway": "10.0.0.1", "dev": "eth0"}]},
    ]

    assert barrier.own_links(json.dumps(routes)) == ["10.78.0.0/16", "2001:db8:7::/64"]
    assert barrier.own_links("") == []


def test_name_servers_are_read_from_resolv_conf():
    text = "# nameserver 1.1.1.1\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\nnameserver\n"

    assert barrier.resolvers(f"{text}nameserver nonsense\nsearch x") == ["127.0.0.53", "fe80::1"]


@pytest.fixture
def reached():
    """Return which addresses that user and root reach on a host with the rules."""
    user = applianceuser.there()
    utils = barrier.__file__.rpartition("/saltvirt/")[0]
    argv = ["unshare", "--net", "sh", "-c", KERNEL.format(utils=utils), "sh", str(user.uid)]
    process = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stderr.strip() == "1", "loaded twice, there is one table"
    return json.loads(process.stdout)


@pytest.mark.slow
def test_the_user_reaches_the_internet_and_neither_this_host_nor_its_networks(reached):
    assert reached["before"]["127.0.0.1"] == "reached"
    assert reached["before"]["192.0.2.7"] == reached["before"]["198.51.100.1"] == "sent"
    # A network on its link is reached, even without an address of the host in it.
    assert reached["before"]["10.78.9.9"] == "sent"
    assert reached["after"].pop("198.51.100.1") == "sent"
    assert set(reached["after"].values()) <= {"Connection refused", "No route to host"}, reached


def test_without_nft_or_with_one_that_fails_there_is_no_network(tmp_path, monkeypatch):
    monkeypatch.setattr(barrier, "_SBIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ip").write_text("#!/bin/sh\necho '[]'\n")
    (tmp_path / "ip").chmod(0o755)

    with pytest.raises(SeedError, match="nft is missing .* install nftables, or give install_from"):
        barrier.put_up([990], [])

    (tmp_path / "nft").write_text("#!/bin/sh\necho 'Error: no such thing' >&2\nexit 1\n")
    (tmp_path / "nft").chmod(0o755)
    with pytest.raises(SeedError, match="nft failed, and the appliance gets no network .*no such"):
        barrier.put_up([990], [])


@pytest.mark.parametrize(
    ("opts", "addresses"),
    [
        ({"file_client": "local", "master": "salt"}, []),
        ({"master_uri": "tcp://10.0.0.1:4506", "master": "salt"}, ["10.0.0.1"]),
        ({"master_uri": "tcp://[2001:db8::1]:4506", "master": "salt"}, ["2001:db8::1"]),
        ({"master": "10.0.0.2:4506"}, ["10.0.0.2"]),
        (
            {"master_uri": "tcp://10.0.0.1:4506", "master": ["10.0.0.1", "10.0.0.2"]},
            ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
        ),
    ],
)
def test_a_minion_knows_the_addresses_of_its_masters(opts, addresses):
    assert inspection.masters(opts) == addresses


def test_a_master_whose_address_is_not_known_means_no_network():
    with pytest.raises(SeedError, match="master nosuch.invalid is not known, and an appliance"):
        inspection.masters({"master": "nosuch.invalid"})
