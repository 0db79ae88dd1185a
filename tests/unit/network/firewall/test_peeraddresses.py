"""A host with no address known to the master is let in by its last known addresses."""

import json

import asloaded
import pytest
from firewallkit import PORTS
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.certificates.host import enrolment
from saltvirt.core.errors import VirtError
from saltvirt.network.firewall import peeraddresses

REFRESH = "salt HOST saltutil.refresh_grains"
ADDRESSES = {"h1": ["10.0.0.1"], "h3": ["10.0.0.3", "fd00::3"]}


@pytest.fixture
def last_peers(rules_folder):
    """The record of the last peers of a rule name."""
    return peeraddresses.LastPeers("salt_virt")


def test_recorded_addresses_are_read_again(last_peers):
    assert last_peers.of(["h1"]) == {}
    last_peers.keep({**ADDRESSES, "h4": []})

    assert last_peers.of(["h1", "h4", "h9"]) == {"h1": ["10.0.0.1"]}
    assert json.loads(last_peers.path.read_text()) == ADDRESSES
    last_peers.forget()
    assert last_peers.of(["h1"]) == {} and not last_peers.path.parent.exists()
    last_peers.forget()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"h1": 3}', '{"h1": ["x"]}', '{"h1": null}', "\x00"]
)
def test_a_damaged_record_lets_no_host_in(last_peers, text):
    last_peers.path.parent.mkdir()
    last_peers.path.write_text(text)

    assert last_peers.of(["h1"]) == {}


@given(st.binary(max_size=40))
def test_a_record_with_any_content_is_read(tmp_path_factory, data):
    last_peers = peeraddresses.LastPeers("salt_virt")
    last_peers.path = tmp_path_factory.mktemp("p") / "p.json"
    last_peers.path.write_bytes(data)

    assert isinstance(last_peers.of(["h1"]), dict)


@pytest.mark.parametrize(
    ("stay", "unknown", "expected"),
    [
        ({}, [], ""),
        ({}, ["h1"], f"; the master knows no address of h1, until: {REFRESH}"),
        (
            {"h1": ["10.0.0.1"]},
            [f"h{n}" for n in range(7)],
            "; 10.0.0.1 may still get in, as the master knows no address of h0, h1, h2, h3, h4 and "
            f"2 more, until: {REFRESH}",
        ),
    ],
)
def test_the_note_names_hosts_without_addresses(stay, unknown, expected):
    assert peeraddresses.note(stay, unknown) == expected


@pytest.mark.parametrize(
    ("peers", "all_peers"),
    [(None, []), ("192.0.2.0/24", ["192.0.2.0/24"]), (["192.0.2.9"], ["192.0.2.9"])],
)
def test_peers_that_yaml_leaves_empty_or_makes_a_text_are_none_or_one(
    rules_folder, monkeypatch, peers, all_peers
):
    module, checked_peers = asloaded.module("_states/virt_network.py", test=True), []
    monkeypatch.setattr(enrolment, "peers", lambda _ask: {})

    def note_and_stop(_backend, _functions, _name, _ports, peers):
        checked_peers.extend(peers)
        raise VirtError("enough")

    monkeypatch.setattr(module.backends, "of", note_and_stop)
    assert module.firewall_present("salt_virt", PORTS, peers=peers)["comment"] == "enough"
    assert checked_peers == all_peers


@pytest.fixture
def state(space, rules_folder, monkeypatch):
    """The state of nftables in a namespace; the master reports ``addresses``."""
    module, addresses = asloaded.module("_states/virt_network.py"), dict(ADDRESSES)
    module.__opts__, module.__salt__ = {"test": False}, {"cmd.run_all": space.run_all}
    monkeypatch.setattr(enrolment, "peers", lambda _ask: addresses)

    def apply(**options):
        ret = module.firewall_present("salt_virt", PORTS, **options)
        assert ret["result"] is True, ret["comment"]
        return ret, space.listed("nftables")

    yield module, addresses, apply


@pytest.mark.slow
def test_a_host_stays_in_until_it_is_known_again_or_is_shut_out(state, space):
    module, addresses, apply = state
    apply()
    addresses["h1"] = []
    ret, shown = apply()
    assert ret["changes"] == {} and "10.0.0.1 may still get in" in ret["comment"]
    assert "10.0.0.1" in shown

    addresses["h1"] = ["10.0.0.9"]
    ret, shown = apply()
    assert "10.0.0.9" in shown and "10.0.0.1," not in shown and "no address" not in ret["comment"]

    # Meanwhile the master loses the addresses of another host.
    addresses.update(h3=[])
    del addresses["h1"]
    _ret, shown = apply()
    assert "10.0.0.9" not in shown and "10.0.0.3" in shown

    answer = module.firewall_absent("salt_virt", PORTS)
    assert answer["result"] is True and space.listed("nftables") == ""
    assert not peeraddresses.LastPeers("salt_virt").path.exists()
