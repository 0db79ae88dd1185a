"""A guest on a NAT network has its host's own address, and gets nowhere with it: real packets."""

import pytest
from behindkit import BRIDGED, SPOOF
from firewallkit import PORTS, made
from saltvirt.network.firewall import backends, peeraddresses, rules
from saltvirt.network.firewall.backend import FirewallError

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_host_may_go_out_from_one_of_these_ports_itself(behind, space, place, backend):
    """The kernel takes one of 28,000 ports for a connection, and 64 of them are libvirt's."""
    made(space, backend, PORTS, ["10.0.0.99"]).apply()

    assert behind.ends("host", 8443, port=49160, timeout_s=2) == "open"


TOLD = ["10.0.0.2", "fd00::2"]
NESTED = ["10.50.0.2", "fd50::2"]
# By the version of IP: a peer's address, one that it has not told, and the host's own.
VERSIONS = {4: ("10.0.0.2", "10.0.0.20", "10.0.0.1"), 6: ("fd00::2", "fd00::20", "fd00::1")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_guest_does_not_ask_by_answering_itself_in_a_peers_name(
    behind, space, place, backend, version
):
    told, second, host = VERSIONS[version]
    assert behind.answers(told, host) == "open", "without the rules it does"

    made(space, backend, PORTS, TOLD).apply()

    assert behind.answers(told, host) == "refused"
    # Its source has become the host's own only where it goes out: nothing can be sent back there.
    assert behind.answers(second, host) == "silence"


def test_what_firewalld_is_given_beside_it_is_what_iptables_is(space, place):
    made(space, "nftables")
    given = ({"cmd.run_all": space.run_all}, "salt_virt", PORTS, TOLD)
    texts = [backends.of(one, *given)._table._text for one in ("firewalld", "iptables")]

    assert texts[0] == texts[1] and rules.holds_back(texts[0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_peer_behind_a_host_gets_to_the_others(behind, space, place, backend, version):
    told, _second, _host = VERSIONS[version]
    made(space, backend, PORTS, TOLD).apply()
    assert not behind.opens("nested", 16514, told), "it is not told of yet"

    made(space, backend, PORTS, [*TOLD, *NESTED]).apply()

    assert behind.opens("nested", 16514, told) and behind.opens("nested", 49152, told)
    assert not behind.opens("guest", 16514, told)


def test_so_does_one_on_a_bridge_whose_packets_the_rules_see(behind, space, place):
    bridged = space.run_all(["sh", "-c", BRIDGED, behind.pid("nested")])
    assert bridged["retcode"] == 0, bridged
    made(space, "nftables", PORTS, ["10.0.0.2"]).apply()
    assert not behind.opens("nested", 16514), "it is not told of yet"

    made(space, "nftables", PORTS, ["10.0.0.2", "10.0.0.3"]).apply()

    assert behind.opens("nested", 16514)


def test_a_guest_that_takes_the_address_of_a_peer_is_kept_out(behind, space, place):
    behind.counts("10.50.0.2")
    spoof = ("python3", "-c", SPOOF, "10.50.0.2", "4711", "10.0.0.2", "16514")
    assert behind.run("guest", *spoof)["retcode"] == 0 and behind.counted == 1

    made(space, "nftables", PORTS, [*TOLD, *NESTED]).apply()

    assert behind.run("guest", *spoof)["retcode"] == 0 and behind.counted == 1
    assert behind.run("nested", *spoof)["retcode"] == 0 and behind.counted == 2


def test_a_peer_behind_nat_is_kept_out_as_the_guests_beside_it(behind, space, place):
    made(space, "nftables", PORTS, [*TOLD, "192.168.122.7", "fd22::7"]).apply()

    for told, _second, host in VERSIONS.values():
        assert behind.ends("guest", 16514, told, timeout_s=1) == "silence"
        assert behind.answers(told, host) == "refused"


class NoWays:
    """A namespace whose kernel is one before 5.18, which is not to be had here."""

    def __init__(self, space):
        self._space = space

    def run_all(self, argv, **how):
        """Run a command as Salt's ``cmd.run_all`` does."""
        if "fib" in argv[-1]:
            return {"retcode": 1, "stdout": "", "stderr": "Operation not supported"}
        return self._space.run_all(argv, **how)


def test_a_kernel_that_does_not_see_ways_lets_nobody_through(behind, space, place):
    made(NoWays(space), "nftables", PORTS, [*TOLD, *NESTED]).apply()

    assert "fib" not in space.listed("nftables")
    assert not behind.opens("nested", 16514) and not behind.opens("guest", 16514)
    assert behind.opens("host", 16514)


def test_a_network_with_a_peer_in_it_is_one_of_this_hosts_own(behind, space, place):
    run = made(space, "nftables").backend._run

    def found(*peers):
        return peeraddresses.shared_networks(run, rules.networks(peers))

    assert found("10.0.0.2", "fdff::2") == {4: ["10.0.0.0/24"], 6: []}
    assert found("10.0.0.0/8") == {
        4: ["10.0.0.0/24", "10.9.9.1", "10.9.9.2", "10.50.0.0/24"],
        6: [],
    }
    assert found("203.0.113.5") == found() == {4: [], 6: []}


def test_networks_that_cannot_be_understood_are_one_line():
    with pytest.raises(FirewallError, match="^ip -json address: what it says is not understood"):
        peeraddresses.shared_networks(
            lambda _argv: {"stdout": "usage"}, rules.networks(["10.0.0.2"])
        )
