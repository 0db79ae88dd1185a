"""A host. Cables join to it a guest of a NAT network, a hypervisor, and a VM that is one too."""

SIDES = ("guest", "peer", "nested")
# The guest has its ports 40000 to 40002 forwarded from the host's 8000 to 8002.
CABLES = """set -e
for side in guest peer nested; do
    unshare -n sh -c 'echo $$; exec sleep 900' >$0/$side 2>&1 &
    while ! [ -s $0/$side ]; do sleep .02; done
    read -r pid <$0/$side
    ip link add to-$side type veth peer name eth0 netns $pid
done
inside() { read -r pid <$0/$1; shift; nsenter -t $pid -n "$@"; }
while read -r link here there; do
    ip addr add $here dev to-$link nodad; inside $link ip addr add $there dev eth0 nodad
done <<X
guest 192.168.122.1/24 192.168.122.7/24
guest fd22::1/64 fd22::7/64
peer 10.0.0.1/24 10.0.0.2/24
peer fd00::1/64 fd00::2/64
peer 10.9.9.1/32 203.0.113.5/32
peer 10.9.9.2/32 10.0.0.20/24
peer fd00::9/128 fd00::20/64
nested 10.50.0.1/24 10.50.0.2/24
nested fd50::1/64 fd50::2/64
X
for link in lo to-guest to-peer to-nested; do ip link set $link up; done
for side in guest peer nested; do
    inside $side ip link set lo up; inside $side ip link set eth0 up
done
inside guest ip route add default via 192.168.122.1
inside guest ip route add default via fd22::1
inside nested ip route add default via 10.50.0.1
inside nested ip route add default via fd50::1
ip route add 203.0.113.5 via 10.0.0.2; inside peer ip route add 10.9.9.1 via 10.0.0.1
inside peer ip route add 10.50.0.0/24 via 10.0.0.1; inside peer ip route add fd50::/64 via fd00::1
echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
for one in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$one; done
# Otherwise every other try of the guest fails, as the peer begins to count at any number.
echo 1 >/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal
nft -f - <<X
table inet theirs {
    chain post {
        type nat hook postrouting priority srcnat;
        ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 masquerade
        ip6 saddr fd22::/64 ip6 daddr != fd22::/64 masquerade
        ip saddr 10.9.9.1 snat ip to 10.0.0.1
    }
    chain pre {
        type nat hook prerouting priority dstnat;
$(for n in 0 1 2; do
        echo "ip daddr 10.0.0.1 tcp dport 800$n dnat ip to 192.168.122.7:4000$n"
        echo "ip6 daddr fd00::1 tcp dport 800$n dnat ip6 to [fd22::7]:4000$n"
done)
    }
}
X
"""
LISTEN = """import socket, time
keep = [socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        for port in (16514, 49152, 8443)]
open("{ready}", "w").close()
time.sleep(900)
"""
TRY = "import socket; socket.create_connection(({!r}, {}), timeout={}, source_address={!r})"
ENDS = {"ConnectionRefusedError": "refused", "TimeoutError": "silence"}

# A script that sends a connection request from any address, past the sender's own system.
SPOOF = """import ipaddress, socket, struct, sys
source, sport, target, dport = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
one, other = (ipaddress.ip_address(text).packed for text in (source, target))
tcp = struct.pack("!HHLLBBHHH", sport, dport, 7, 0, 5 << 4, 2, 8192, 0, 0)
text = one + other + struct.pack("!LL", len(tcp), 6) + tcp
total = sum(struct.unpack("!%dH" % (len(text) // 2), text))
total = (total >> 16) + (total & 0xffff)
tcp = tcp[:16] + struct.pack("!H", ~(total + (total >> 16)) & 0xffff) + tcp[18:]
if len(one) == 4:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 7, 0, 64, 6, 0, one, other)
    family = socket.AF_INET
else:
    head = struct.pack("!LHBB16s16s", 6 << 28, len(tcp), 6, 64, one, other)
    family = socket.AF_INET6
socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW).sendto(head + tcp, (target, 0))
"""
# The guest hides the answers from its own system, which would reset the connection.
HIDES = """add table inet hides
add chain inet hides in { type filter hook input priority 0; }
add rule inet hides in tcp dport 40000-40002 tcp flags & (syn | ack) == syn drop
"""
# The peer counts connection requests from an address.
COUNTS = """add table inet counts
add chain inet counts in {{ type filter hook input priority -10; }}
add rule inet counts in ip saddr {} tcp dport 16514 tcp flags & (syn | ack) == syn counter
"""
# The links of the host and of the nested hypervisor become one bridge; nft sees its packets.
BRIDGED = """set -e
ip link add br0 type bridge; ip link set br0 up
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
ip addr flush dev to-peer; ip addr flush dev to-nested
for link in to-peer to-nested; do ip link set $link master br0; done
ip addr add 10.0.0.1/24 dev br0
nsenter -t $0 -n ip addr add 10.0.0.3/24 dev eth0
"""


class Sides:
    """Connections to the peer's ports: from the host, or from a guest or hypervisor behind it."""

    def __init__(self, space, folder):
        self._space, self._folder, self._tries = space, folder, 0

    def pid(self, side):
        """Return the first process of a side's namespace."""
        return (self._folder / side).read_text().strip()

    def run(self, side, *argv):
        """Run a command at a side; return its result."""
        inside = ["nsenter", "-t", self.pid(side), "-n"] if side != "host" else []
        return self._space.run_all([*inside, *argv])

    def ends(self, side, port_number, address="10.0.0.2", source=None, timeout_s=5, port=0):
        """Return how a connection to a port of the peer ends: open, refused or silence."""
        bound = (source or "", port) if source or port else None
        result = self.run(side, "python3", "-c", TRY.format(address, port_number, timeout_s, bound))
        if result["retcode"] == 0:
            return "open"
        (outcome,) = [
            outcome for error, outcome in ENDS.items() if f"\n{error}" in result["stderr"]
        ]
        return outcome

    def opens(self, side, port_number, address="10.0.0.2"):
        """Return whether a connection to a port of the peer is made; otherwise it is refused."""
        outcome = self.ends(side, port_number, address)
        assert outcome in ("open", "refused")
        return outcome == "open"

    def answers(self, address, host):
        """Return how the guest's connection ends if it looks like an answer to the address."""
        port, guest_port = str(8000 + self._tries), 40000 + self._tries
        self._tries += 1  # each is another connection to the kernel
        # After this all hosts on the way know their neighbours: a later loss is by the rules.
        assert self.ends("guest", 8443, address) == "open"
        assert self.run("guest", "nft", HIDES)["retcode"] == 0
        spoofed = self.run("guest", "python3", "-c", SPOOF, address, "16514", host, port)
        assert spoofed["retcode"] == 0, spoofed
        outcome = self.ends("guest", 16514, address, timeout_s=1, port=guest_port)
        assert self.run("guest", "nft", "delete table inet hides")["retcode"] == 0
        return outcome

    def counts(self, address):
        """Count at the peer, from now on, the requests from an address."""
        assert self.run("peer", "nft", COUNTS.format(address))["retcode"] == 0

    @property
    def counted(self):
        """How many packets were counted."""
        words = self.run("peer", "nft", "list table inet counts")["stdout"].split()
        return int(words[words.index("packets") + 1])
