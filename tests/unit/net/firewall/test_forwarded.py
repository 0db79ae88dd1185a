"""A guest on a NAT network has its host's own address, and gets nowhere with it: real packets."""

import pytest
from firewallkit import PORTS, made
from saltvirt.net.firewall import near, rules
from saltvirt.net.firewall.backend import FirewallError

# A host, and behind it by cables a guest of a NAT network and another hypervisor.
CABLES = """set -e
for side in guest peer; do
    unshare -n sh -c 'echo $$; exec sleep 60' >$0/$side 2>&1 &
    while ! [ -s $0/$side ]; do sleep .02; done
    read -r pid <$0/$side
    ip link add to-$side type veth peer name eth0 netns $pid
done
inside() { read -r pid <$0/$1; shift; nsenter -t $pid -n "$@"; }
ip addr add 192.168.122.1/24 dev to-guest; ip addr add 10.0.0.1/24 dev to-peer
ip addr add 10.9.9.1/32 dev to-peer
inside guest ip addr add 192.168.122.7/24 dev eth0; inside peer ip addr add 10.0.0.2/24 dev eth0
inside peer ip addr add 10.0.0.20/24 dev eth0; inside peer ip addr add 203.0.113.5/32 dev eth0
for link in lo to-guest to-peer; do ip link set $link up; done
for side in guest peer; do inside $side ip link set lo up; inside $side ip link set eth0 up; done
inside guest ip route add default via 192.168.122.1
ip route add 203.0.113.5 via 10.0.0.2; inside peer ip route add 10.9.9.1 via 10.0.0.1
echo 1 >/proc/sys/net/ipv4/ip_forward
nft add table ip nat
nft 'add chain ip nat post { type nat hook postrouting priority srcnat; }'
nft add rule ip nat post ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 masquerade
nft add rule ip nat post ip saddr 10.9.9.1 snat to 10.0.0.1
"""
LISTEN = """import socket, time
for port in (16514, 49152, 8443):
    keep = globals().setdefault("all", [])
    keep.append(socket.create_server(("0.0.0.0", port)))
open("{ready}", "w").close()
time.sleep(60)
"""
TRY = "import socket; socket.create_connection(({!r}, {}), timeout={}, source_address={!r})"
ENDS = {"ConnectionRefusedError": "refused", "TimeoutError": "silence"}


class Behind:
    """Who tries the peer's ports: the host, or the guest behind it."""

    def __init__(self, space, folder):
        self._space, self._folder = space, folder

    def _pid(self, side):
        return (self._folder / side).read_text().strip()

    def ends(self, who, number, address="10.0.0.2", source=None, timeout_s=5):
        """Return how a connection to a port of the peer ends: open, refused or silence."""
        inside = ["nsenter", "-t", self._pid(who), "-n"] if who != "host" else []
        code = TRY.format(address, number, timeout_s, source and (source, 0))
        done = self._space.run_all([*inside, "python3", "-c", code])
        if done["retcode"] == 0:
            return "open"
        (end,) = [end for error, end in ENDS.items() if f"\n{error}" in done["stderr"]]
        return end

    def opens(self, who, number):
        """Return whether a connection to a port of the peer is made; otherwise it is refused."""
        end = self.ends(who, number)
        assert end in ("open", "refused")
        return end == "open"


@pytest.fixture
def behind(space, tmp_path):
    """A host with a guest behind it and a peer that listens."""
    done = space.run_all(["sh", "-c", CABLES, str(tmp_path)])
    pids = [path.read_text().strip() for side in ("guest", "peer") if (path := tmp_path / side)]
    try:
        assert done["retcode"] == 0, done
        code = LISTEN.format(ready=tmp_path / "ready")
        peer = ["nsenter", "-t", pids[1], "-n"]
        wait = f"while ! [ -e {tmp_path}/ready ]; do sleep .02; done"
        script = f"{' '.join(peer)} python3 -c \"$0\" >/dev/null 2>&1 & echo $!; {wait}"
        listens = space.run_all(["sh", "-c", script, code])["stdout"].strip()
        pids.append(listens)
        yield Behind(space, tmp_path)
    finally:
        space.run_all(["kill", "-9", *pids])


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_guest_behind_a_host_does_not_pass_for_it(behind, space, place, backend):
    assert behind.opens("guest", 16514), "without the rules it does"

    made(space, backend, PORTS, ["10.0.0.2"]).apply()

    assert {number: behind.opens("guest", number) for number in (16514, 49152, 8443)} == {
        16514: False,
        49152: False,
        8443: True,
    }
    assert behind.opens("host", 16514) and behind.opens("host", 49152)


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_nor_at_an_address_that_the_peer_has_not_told(behind, space, place, backend):
    second = {"address": "10.0.0.20", "timeout_s": 1}
    assert behind.ends("guest", 16514, **second) == "open"

    made(space, backend, PORTS, ["10.0.0.2"]).apply()

    assert {number: behind.ends("guest", number, **second) for number in (16514, 49152, 8443)} == {
        16514: "silence",
        49152: "silence",
        8443: "open",
    }
    # What a host itself sends goes out, also from an address that becomes another.
    assert behind.ends("host", 16514, **second) == "open"
    assert behind.ends("host", 16514, source="10.9.9.1", **second) == "open"
    # What a guest does beyond the networks of its host's peers is its own affair.
    assert behind.ends("guest", 16514, "203.0.113.5") == "open"


def test_a_network_with_a_peer_in_it_is_one_of_this_hosts_own(behind, space, place):
    run = made(space, "nftables").backend._run

    def found(*peers):
        return near.networks(run, rules.networks(peers))

    assert found("10.0.0.2", "fd00::2") == {4: ["10.0.0.0/24"], 6: []}
    assert found("10.0.0.0/8") == {4: ["10.0.0.0/24", "10.9.9.1"], 6: []}
    assert found("203.0.113.5") == found() == {4: [], 6: []}


def test_networks_that_cannot_be_understood_are_one_line():
    with pytest.raises(FirewallError, match="^ip -json address: what it says is not understood"):
        near.networks(lambda _argv: {"stdout": "usage"}, rules.networks(["10.0.0.2"]))
