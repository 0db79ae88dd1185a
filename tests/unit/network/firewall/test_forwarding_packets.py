"""A guest on a NAT network has its host's address, and is kept out all the same: real packets."""

import pytest
from behindkit import BRIDGED, SPOOF
from firewallkit import PORTS, rules_of
from saltvirt.network.firewall import backends, peeraddresses, rules
from saltvirt.network.firewall.backend import FirewallError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_guest_behind_a_host_does_not_pass_for_it(sides, space, rules_folder, backend):
    assert sides.opens("guest", 16514), "without the rules it does"

    rules_of(space, backend, PORTS, ["10.0.0.2"]).apply()

    assert {number: sides.opens("guest", number) for number in (16514, 49152, 8443)} == {
        16514: False,
        49152: False,
        8443: True,
    }
    assert sides.opens("host", 16514) and sides.opens("host", 49152)


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_guest_does_not_pass_at_an_address_that_the_peer_has_not_reported(
    sides, space, rules_folder, backend
):
    second = {"address": "10.0.0.20", "timeout_s": 1}
    assert sides.ends("guest", 16514, **second) == "open"

    rules_of(space, backend, PORTS, ["10.0.0.2"]).apply()

    assert {number: sides.ends("guest", number, **second) for number in (16514, 49152, 8443)} == {
        16514: "silence",
        49152: "silence",
        8443: "open",
    }
    # The host's own packets go out, also from an address that is translated.
    assert sides.ends("host", 16514, **second) == "open"
    assert sides.ends("host", 16514, source="10.9.9.1", **second) == "open"
    # The rules do not concern the guest's packets beyond the networks of its host's peers.
    assert sides.ends("guest", 16514, "203.0.113.5") == "open"


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_host_may_go_out_from_one_of_these_ports_itself(sides, space, rules_folder, backend):
    """The kernel chooses one of 28,000 ports for a connection, and 64 of them are libvirt's."""
    rules_of(space, backend, PORTS, ["10.0.0.99"]).apply()

    assert sides.ends("host", 8443, port=49160, timeout_s=2) == "open"


PEER_ADDRESSES = ["10.0.0.2", "fd00::2"]
NESTED = ["10.50.0.2", "fd50::2"]
# By the version of IP: a peer's address, one that it has not reported, and the host's own.
VERSIONS = {4: ("10.0.0.2", "10.0.0.20", "10.0.0.1"), 6: ("fd00::2", "fd00::20", "fd00::1")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_guest_gets_no_connection_by_a_forged_answer_of_a_peer(
    sides, space, rules_folder, backend, version
):
    peer, unlisted, host = VERSIONS[version]
    assert sides.answers(peer, host) == "open", "without the rules it does"

    rules_of(space, backend, PORTS, PEER_ADDRESSES).apply()

    assert sides.answers(peer, host) == "refused"
    # The source becomes the host's address only on the way out, so no answer can be sent back.
    assert sides.answers(unlisted, host) == "silence"


def test_firewalld_has_the_same_table_beside_it_as_iptables(space, rules_folder):
    rules_of(space, "nftables")
    arguments = ({"cmd.run_all": space.run_all}, "salt_virt", PORTS, PEER_ADDRESSES)
    texts = [backends.of(name, *arguments)._table._text for name in ("firewalld", "iptables")]

    assert texts[0] == texts[1] and rules.holds_back(texts[0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_peer_behind_a_host_gets_to_the_others(sides, space, rules_folder, backend, version):
    peer, _second, _host = VERSIONS[version]
    rules_of(space, backend, PORTS, PEER_ADDRESSES).apply()
    assert not sides.opens("nested", 16514, peer), "it is not told of yet"

    rules_of(space, backend, PORTS, [*PEER_ADDRESSES, *NESTED]).apply()

    assert sides.opens("nested", 16514, peer) and sides.opens("nested", 49152, peer)
    assert not sides.opens("guest", 16514, peer)


def test_a_peer_on_a_bridge_with_filtered_packets_gets_to_the_others(sides, space, rules_folder):
    result = space.run_all(["sh", "-c", BRIDGED, sides.pid("nested")])
    assert result["retcode"] == 0, result
    rules_of(space, "nftables", PORTS, ["10.0.0.2"]).apply()
    assert not sides.opens("nested", 16514), "it is not told of yet"

    rules_of(space, "nftables", PORTS, ["10.0.0.2", "10.0.0.3"]).apply()

    assert sides.opens("nested", 16514)


def test_a_guest_that_takes_the_address_of_a_peer_is_kept_out(sides, space, rules_folder):
    sides.counts("10.50.0.2")
    spoof = ("python3", "-c", SPOOF, "10.50.0.2", "4711", "10.0.0.2", "16514")
    assert sides.run("guest", *spoof)["retcode"] == 0 and sides.counted == 1

    rules_of(space, "nftables", PORTS, [*PEER_ADDRESSES, *NESTED]).apply()

    assert sides.run("guest", *spoof)["retcode"] == 0 and sides.counted == 1
    assert sides.run("nested", *spoof)["retcode"] == 0 and sides.counted == 2


def test_a_peer_behind_nat_is_kept_out_as_the_guests_beside_it(sides, space, rules_folder):
    rules_of(space, "nftables", PORTS, [*PEER_ADDRESSES, "192.168.122.7", "fd22::7"]).apply()

    for peer, _second, host in VERSIONS.values():
        assert sides.ends("guest", 16514, peer, timeout_s=1) == "silence"
        assert sides.answers(peer, host) == "refused"


class WithoutFib:
    """A namespace with a kernel before 5.18; the tests have no such kernel."""

    def __init__(self, space):
        self._space = space

    def run_all(self, argv, **options):
        """Run a command as Salt's ``cmd.run_all`` does."""
        if "fib saddr" in argv[-1]:
            return {"retcode": 1, "stdout": "", "stderr": "Operation not supported"}
        return self._space.run_all(argv, **options)


def test_a_kernel_without_fib_for_forwarded_packets_lets_no_peer_through(
    sides, space, rules_folder
):
    rules_of(WithoutFib(space), "nftables", PORTS, [*PEER_ADDRESSES, *NESTED]).apply()

    assert "fib" not in space.listed("nftables")
    assert not sides.opens("nested", 16514) and not sides.opens("guest", 16514)
    assert sides.opens("host", 16514)


def test_a_network_with_a_peer_in_it_is_one_of_this_hosts_own(sides, space, rules_folder):
    run = rules_of(space, "nftables").backend._run

    def shared_networks(*peers):
        return peeraddresses.shared_networks(run, rules.networks(peers))

    assert shared_networks("10.0.0.2", "fdff::2") == {4: ["10.0.0.0/24"], 6: []}
    assert shared_networks("10.0.0.0/8") == {
        4: ["10.0.0.0/24", "10.9.9.1", "10.9.9.2", "10.50.0.0/24"],
        6: [],
    }
    assert shared_networks("203.0.113.5") == shared_networks() == {4: [], 6: []}


def test_networks_that_cannot_be_understood_are_one_line():
    with pytest.raises(FirewallError, match="^ip -json address: what it says is not understood"):
        peeraddresses.shared_networks(
            lambda _argv: {"stdout": "usage"}, rules.networks(["10.0.0.2"])
        )
