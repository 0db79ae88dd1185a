"""A guest on a NAT network has its host's own address, and gets nowhere with it: real packets."""

import pytest
from firewallkit import PORTS, made

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
inside guest ip addr add 192.168.122.7/24 dev eth0; inside peer ip addr add 10.0.0.2/24 dev eth0
for link in lo to-guest to-peer; do ip link set $link up; done
for side in guest peer; do inside $side ip link set lo up; inside $side ip link set eth0 up; done
inside guest ip route add default via 192.168.122.1
echo 1 >/proc/sys/net/ipv4/ip_forward
nft add table ip nat
nft 'add chain ip nat post { type nat hook postrouting priority srcnat; }'
nft add rule ip nat post ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 masquerade
"""
LISTEN = """import socket, time
for port in (16514, 49152, 8443):
    keep = globals().setdefault("all", [])
    keep.append(socket.create_server(("10.0.0.2", port)))
open("{ready}", "w").close()
time.sleep(60)
"""
TRY = "import socket; socket.create_connection(('10.0.0.2', {}), timeout=5)"


class Behind:
    """Who tries the peer's ports: the host, or the guest behind it."""

    def __init__(self, space, folder):
        self._space, self._folder = space, folder

    def _pid(self, side):
        return (self._folder / side).read_text().strip()

    def opens(self, who, number):
        """Return whether a connection to a port of the peer is made; otherwise it is refused."""
        inside = ["nsenter", "-t", self._pid(who), "-n"] if who != "host" else []
        done = self._space.run_all([*inside, "python3", "-c", TRY.format(number)])
        assert done["retcode"] == 0 or "ConnectionRefusedError" in done["stderr"], done
        return done["retcode"] == 0


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
