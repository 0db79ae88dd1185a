"""The bridge over a host's only link: it never loses the host. On real links, cut for real."""

import json
import re
import subprocess

import pytest
from bridgekit import bare, open_connection
from cloudkit import wait
from labkit import node

pytestmark = pytest.mark.second
HOST = "hyper7"  # kept by networkd, with a lease, as hyper1
# What comes in over br0 is dropped, what comes in over eth0 is not: the new path alone is cut.
CUT = """nft add table inet cut
nft add chain inet cut i '{ type filter hook input priority 0; }'
nft add rule inet cut i iifname br0 tcp sport 4506 drop"""


@pytest.fixture(scope="module")
def host(cloud):
    """A bare host with one link and a lease, its minion's modules synced."""
    with bare(cloud, HOST):
        yield HOST


@pytest.fixture
def before(cloud, host):
    """The host's network before; it must be the same afterwards, and reachable."""
    seen = network(cloud, host)
    yield seen
    cloud.sh(host, "nft delete table inet cut 2>/dev/null || true")
    apply(cloud, host, "bridge_absent", "br0")
    wait("the old network", lambda: network(cloud, host) == seen, timeout_s=30)


def network(cloud, host):
    """
    Return addresses by link, and the routes, without what a new link changes.

    The metric of a leased route is networkd's, which writes it at the next renewal.
    """
    links = json.loads(cloud.sh(host, "ip -j address"))
    addresses = {
        link["ifname"]: (
            link.get("master"),
            sorted(a["local"] for a in link["addr_info"] if a["scope"] == "global"),
        )
        for link in links
    }
    return addresses, sorted(
        re.sub(r" metric \d+", "", line).strip()
        for line in cloud.sh(host, "ip route; ip -6 route show default").splitlines()
    )


def apply(cloud, host, state, *words):
    """Apply one state through the master, as users do, and return its result."""
    done = cloud.salt(host, "state.single", f"virt.{state}", *words)
    return next(iter(done.data[host].values()))


def test_addresses_and_routes_move_and_the_second_run_changes_nothing(cloud, host, before):
    would = apply(cloud, host, "bridge_present", "br0", "ports=[eth0]", "test=True")
    assert would["result"] is None and "gets 10.77.1.7/16" in would["changes"]["br0"]
    assert network(cloud, host) == before

    words = ("br0", "ports=[eth0]", "mtu=1400")
    done = apply(cloud, host, "bridge_present", *words)

    assert done["result"] is True, done
    addresses, routes = network(cloud, host)
    assert addresses["br0"] == (None, ["10.77.1.7"])
    assert addresses["eth0"] == ("br0", [])
    assert any(route.startswith("default via 10.77.0.2 dev br0") for route in routes)
    assert "mtu 1400" in cloud.sh(host, "ip link show br0")
    # The minion's own grains, by which the master lets it in to others.
    where = ("grains.get", "ip4_interfaces:br0")
    wait("the address", lambda: cloud.salt(host, *where).data[host] == ["10.77.1.7"])
    again = apply(cloud, host, "bridge_present", *words)
    assert (again["result"], again["changes"]) == (True, {})
    cloud.sh(host, "ip link set eth0 mtu 1500")


def test_an_open_connection_lives_through_the_move(cloud, host, before):
    with open_connection(cloud, host, 40):
        done = apply(cloud, host, "bridge_present", "br0", "ports=[eth0]")
        assert done["result"] is True, done


def test_a_cut_path_puts_everything_back(cloud, host, before):
    cloud.sh(host, CUT)

    done = apply(cloud, host, "bridge_present", "br0", "ports=[eth0]", "confirm_timeout=3")

    assert done["result"] is False
    assert done["comment"].startswith("the master 10.77.0.1 cannot be reached over br0 within 3 s")
    assert network(cloud, host) == before
    assert "salt-virt" not in cloud.sh(host, "ls /etc/systemd/network")


def test_a_job_that_is_killed_in_the_middle_puts_everything_back(cloud, host, before):
    cloud.sh(host, CUT)
    argv = ["salt-call", "state.single", "virt.bridge_present", "br0", "ports=[eth0]"]
    job = f"echo $$ > /run/job; exec {' '.join(map(str, argv))}"
    with subprocess.Popen(
        node.enter(cloud.pids[host], ["sh", "-c", job]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ):
        wait("the bridge", lambda: "br0" in network(cloud, host)[0])
        cloud.sh(host, "kill -9 $(cat /run/job)")

    wait("the old network", lambda: network(cloud, host) == before, timeout_s=30)
    assert cloud.salt(host, "test.ping").data == {host: True}


def test_a_step_that_fails_puts_everything_back(cloud, host, before):
    cloud.sh(host, "mv /etc/systemd/network /etc/systemd/kept; touch /etc/systemd/network")

    done = apply(cloud, host, "bridge_present", "br0", "ports=[eth0]")

    cloud.sh(host, "rm /etc/systemd/network; mv /etc/systemd/kept /etc/systemd/network")
    assert done["result"] is False
    assert "cannot write /etc/systemd/network" in done["comment"]
    assert network(cloud, host) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("ports=[eth9]",), "no link 'eth9' on this host; there are: eth0"),
        (("ports=[eth0]", "mtu=9"), "mtu: 9 is out of range"),
        (("ports=[eth0]", "addresses=[10.0.0.1]"), "not an address with its prefix"),
        (("ports=[eth0]", "vlans=[7]"), "vlans: has no effect without vlan_filtering=True"),
        (
            ("ports=[eth0]", "stp=True", "forward_delay=15"),
            "with STP the bridge forwards nothing for 30 s",
        ),
        (("ports=[eth0]", "persist=nobody"), "persist: 'nobody'; one of auto"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(cloud, host, before, words, why):
    done = apply(cloud, host, "bridge_present", "br0", *words)

    assert (done["result"], done["changes"]) == (False, {})
    assert why in done["comment"]
    assert network(cloud, host) == before


def test_vlan_filtering_works_or_says_what_the_kernel_lacks(cloud, host, before):
    done = apply(
        cloud,
        host,
        "bridge_present",
        "br0",
        "ports=[eth0]",
        "vlan_filtering=True",
        "vlans=[10, 20-22]",
    )

    if done["result"]:
        vlans = json.loads(cloud.sh(host, "bridge -j vlan show dev eth0"))[0]["vlans"]
        assert {10, 20} <= {vlan["vlan"] for vlan in vlans}
    else:
        # This kernel has no VLAN filtering: a real failure in the middle of the steps.
        assert done["comment"] == (
            "the kernel refused vlan_filtering=1 of br0: not supported by " "this kernel"
        )
        assert network(cloud, host) == before
