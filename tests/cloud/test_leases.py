"""Leases that go with a bridge: renewed there by whoever keeps the network, and given back."""

import json
import subprocess
import time

import pytest
from bridgekit import bare, open_connection
from cloudkit import wait
from labkit import node
from labkit.settings import host as host_of

pytestmark = pytest.mark.nightly
# One for each of those that keep a network, with what they write last.
HOSTS = {
    "hyper10": "/etc/systemd/network/05-salt-virt-br0-eth0.network",
    "hyper11": "/etc/network/interfaces",
    "hyper12": "/etc/NetworkManager/system-connections/salt-virt-br0-eth0.nmconnection",
}
TITLES = {
    "networkd": "systemd-networkd",
    "ifupdown": "ifupdown",
    "networkmanager": "NetworkManager",
}
PRESENT = ("virt.bridge_present", "br0", "ports=[eth0]")


@pytest.fixture(scope="module")
def hosts(cloud):
    """Bare hosts, one for each of those that keep a network, their minions' modules synced."""
    with bare(cloud, *HOSTS):
        assert {host_of(name).network for name in HOSTS} == set(TITLES)
        done = cloud.salt("hyper11", "pkg.install", "bridge-utils", "refresh=True")
        assert done.code == 0, done.out
        yield list(HOSTS)


@pytest.fixture(params=HOSTS)
def host(cloud, hosts, request):
    """One of them, with its lease on eth0; the bridge that a test leaves is removed."""
    name = request.param
    assert list(leased(cloud, name)) == ["eth0"]
    yield name
    apply(cloud, name, "virt.bridge_absent", "br0")
    assert list(leased(cloud, name)) == ["eth0"]


def apply(cloud, name, *words):
    """Apply one state through the master, as users do, and return its result."""
    done = cloud.salt(name, "state.single", *words)
    return next(iter(done.data[name].values()))


def leased(cloud, name):
    """Return ``{link: (address, seconds that it lasts)}`` of the addresses that end."""
    links = json.loads(cloud.sh(name, "ip -j -4 address show scope global"))
    return {
        link["ifname"]: (one["local"], one["valid_life_time"])
        for link in links
        for one in link.get("addr_info", [])
        if one.get("dynamic") and one["valid_life_time"] < 2**32 - 1
    }


def wait_for_renewal(cloud, names, link):
    """Wait until the lease of every host is renewed on a link: its address lasts longer again."""
    least = {name: leased(cloud, name)[link][1] for name in names}
    left = set(names)
    deadline = time.monotonic() + 110  # of leases that last 120 s
    while left:
        assert time.monotonic() < deadline, f"not renewed on {link}: {left}"
        time.sleep(2)
        for name in sorted(left):
            found = leased(cloud, name)
            assert list(found) == [link], f"{name}: {found}"
            if found[link][1] > least[name]:
                left.discard(name)
            least[name] = found[link][1]


def test_leases_are_renewed_on_the_bridge_through_a_reboot_and_on_the_port_again(cloud, hosts):
    had = {name: leased(cloud, name)["eth0"][0] for name in hosts}

    for name in hosts:
        done = apply(cloud, name, *PRESENT)
        assert done["result"] is True, done
        renews = f"its lease is renewed by {TITLES[host_of(name).network]}"
        assert renews in done["changes"]["br0"], done
        again = apply(cloud, name, *PRESENT)
        assert (again["result"], again["changes"]) == (True, {}), again
    wait_for_renewal(cloud, hosts, "br0")

    for name in hosts:
        cloud.reboot(name)
        assert [(link, a) for link, (a, _s) in leased(cloud, name).items()] == [("br0", had[name])]
        assert cloud.sh(name, "ls /sys/class/net/br0/brif").split() == ["eth0"]
        again = apply(cloud, name, *PRESENT)
        assert (again["result"], again["changes"]) == (True, {}), again

    for name in hosts:
        done = apply(cloud, name, "virt.bridge_absent", "br0")
        assert done["result"] is True, done
        assert "br0" not in cloud.sh(name, "ls /sys/class/net").split()
    wait_for_renewal(cloud, hosts, "eth0")
    for name in hosts:
        cloud.reboot(name)
        assert [(link, a) for link, (a, _s) in leased(cloud, name).items()] == [("eth0", had[name])]


def test_an_open_connection_lives_while_the_manager_takes_the_bridge_and_gives_it_back(cloud, host):
    with open_connection(cloud, host, 100):
        assert apply(cloud, host, *PRESENT)["result"] is True
        assert apply(cloud, host, "virt.bridge_absent", "br0")["result"] is True


def test_a_job_that_is_killed_when_the_manager_was_told_puts_back_what_it_knew(cloud, host):
    address, path = leased(cloud, host)["eth0"][0], HOSTS[host]
    before = cloud.sh(host, f"cat {path} 2>/dev/null || echo none")
    words = " ".join(("state.single", *PRESENT)).replace("[", "'[").replace("]", "]'")
    job = f"echo $$ > /run/job; exec salt-call {words}"
    told = f"timeout 90 sh -c 'until grep -qs br0 {path}; do :; done'"
    argv = node.enter(cloud.pids[host], ["sh", "-c", job])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(argv, **quiet) as running:
        cloud.sh(host, f"{told}; kill -9 $(cat /run/job)")
        assert running.wait(timeout=30) != 0

    def is_back():
        links = cloud.sh(host, "ls /sys/class/net").split()
        return "br0" not in links and [a for a, _s in leased(cloud, host).values()] == [address]

    wait("the old network", is_back, timeout_s=90)
    assert cloud.sh(host, f"cat {path} 2>/dev/null || echo none") == before
    wait("the minion", lambda: cloud.answers(host))
    wait_for_renewal(cloud, [host], "eth0")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("persist=none",), "is leased, and persist=none does not renew that lease"),
        (("persist=netplan",), "does not renew that lease"),
        (("dhcp=False",), "dhcp: False on a host whose address is leased"),
    ],
)
def test_a_lease_that_nobody_would_renew_is_refused_before_anything_changes(
    cloud, host, words, why
):
    if words == ("persist=netplan",) and host_of(host).network == "networkd":
        pytest.skip("there networkd renews it, for netplan too")
    done = apply(cloud, host, *PRESENT, *words)

    assert (done["result"], done["changes"]) == (False, {})
    assert why in done["comment"]
    assert list(leased(cloud, host)) == ["eth0"]


def test_ifupdown_keeps_a_static_address_and_gives_it_back(cloud, hosts):
    (name,) = [name for name in hosts if host_of(name).network == "ifupdown"]
    cloud.sh(
        name,
        "cp /etc/network/interfaces /run/interfaces; ifdown eth0 >/dev/null 2>&1; "
        "printf 'auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n"
        f"  address {host_of(name).address}/16\n  gateway 10.77.0.2\n' "
        ">/etc/network/interfaces; ifup eth0 >/dev/null 2>&1",
    )
    assert leased(cloud, name) == {}
    try:
        done = apply(cloud, name, *PRESENT)
        assert done["result"] is True, done
        assert "bridge_ports: eth0" in cloud.sh(name, "ifquery br0")
        assert f"address: {host_of(name).address}" in cloud.sh(name, "ifquery br0")
        assert "address" not in cloud.sh(name, "ifquery eth0")
        again = apply(cloud, name, *PRESENT)
        assert (again["result"], again["changes"]) == (True, {}), again

        gone = apply(cloud, name, "virt.bridge_absent", "br0")
        assert gone["result"] is True, gone
        assert f"address: {host_of(name).address}" in cloud.sh(name, "ifquery eth0")
        assert "br0" not in cloud.sh(name, "cat /etc/network/interfaces")
    finally:
        cloud.sh(
            name,
            "ifdown eth0 >/dev/null 2>&1; mv /run/interfaces /etc/network/interfaces; "
            "ifup eth0 >/dev/null 2>&1",
        )


def test_without_a_dhcp_server_that_answers_nothing_changes(cloud, host):
    cloud.service("switch", "dnsmasq", "stop")
    try:
        done = apply(cloud, host, *PRESENT)
    finally:
        cloud.service("switch", "dnsmasq", "start")

    assert (done["result"], done["changes"]) == (False, {})
    assert done["comment"].startswith("no DHCP server answers over eth0")
    assert "br0" not in cloud.sh(host, "ls /sys/class/net").split()
