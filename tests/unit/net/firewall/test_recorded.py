"""Whom rules let in already is read from the files of every backend, for peers without address."""

import pytest
from firewallkit import PORTS, made
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.net.firewall import recorded, rules

REFRESH = "salt HOST saltutil.refresh_grains"
PEERS = st.lists(
    st.one_of(
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
        st.tuples(st.ip_addresses().map(str), st.integers(8, 30)).map("{0[0]}/{0[1]}".format),
    ),
    max_size=6,
)


def texts(peers):
    """Yield what each backend writes, with networks of its own that let nobody in."""
    ports, near = rules.ports(PORTS), rules.networks(["192.0.2.0/24", "2001:db8::/32"])
    yield rules.nftables("salt_virt", ports, peers, near)[0]
    yield "".join(rules.iptables("SALT-VIRT", ports, peers, one)[0] for one in (4, 6))
    yield "\n".join(rules.rich_rules(ports, peers))


@given(PEERS)
def test_each_backends_file_says_whom_it_lets_in(given_peers):
    peers = rules.networks(given_peers)

    for text in texts(peers):
        assert recorded.peers_in(text) == {*peers[4], *peers[6]}


@given(PEERS, PEERS)
def test_those_that_stay_are_those_that_are_not_wanted(there, wanted):
    stay = recorded.staying(recorded.peers_in(next(texts(rules.networks(there)))), wanted)

    known = rules.networks(wanted)
    assert rules.networks([*wanted, *stay]) == rules.networks([*wanted, *there])
    assert not {*stay} & {*known[4], *known[6]}
    assert (stay == []) == (rules.networks([*wanted, *there]) == known)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_rules_are_in_order_while_a_peers_address_is_not_known(space, place, backend):
    made(space, backend, peers=["10.0.0.1", "10.0.0.3"]).apply()

    stay = recorded.staying(recorded.peers("salt_virt"), ["10.0.0.3"])

    assert stay == ["10.0.0.1"] and recorded.peers("salt") == set()
    assert made(space, backend, peers=["10.0.0.3", *stay]).plan() == {}


@pytest.mark.parametrize(
    ("stay", "unknown", "said"),
    [
        ([], [], ""),
        (["10.0.0.1"], [], ""),
        (
            [],
            ["h1"],
            f"; the master knows no address of h1, until: {REFRESH}",
        ),
        (
            ["10.0.0.1"],
            [f"h{n}" for n in range(7)],
            "; 10.0.0.1 may still get in, as the master knows no address of h0, h1, h2, h3, h4 and "
            f"2 more, until: {REFRESH}",
        ),
    ],
)
def test_what_is_not_known_is_said(stay, unknown, said):
    assert recorded.note(stay, unknown) == said
