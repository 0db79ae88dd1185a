"""Whom the master has told last is let in while it knows no address of that host."""

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
TOLD = {"h1": ["10.0.0.1"], "h3": ["10.0.0.3", "fd00::3"]}


@pytest.fixture
def last(place):
    """What is kept for the rules of a name."""
    return peeraddresses.LastPeers("salt_virt")


def test_what_was_told_is_known_again(last):
    assert last.of(["h1"]) == {}
    last.keep({**TOLD, "h4": []})

    assert last.of(["h1", "h4", "h9"]) == {"h1": ["10.0.0.1"]}
    assert json.loads(last.path.read_text()) == TOLD
    last.forget()
    assert last.of(["h1"]) == {} and not last.path.parent.exists()
    last.forget()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"h1": 3}', '{"h1": ["x"]}', '{"h1": null}', "\x00"]
)
def test_what_somebody_has_spoilt_lets_nobody_in(last, text):
    last.path.parent.mkdir()
    last.path.write_text(text)

    assert last.of(["h1"]) == {}


@given(st.binary(max_size=40))
def test_whatever_is_there_is_read_to_its_end(tmp_path_factory, data):
    last = peeraddresses.LastPeers("salt_virt")
    last.path = tmp_path_factory.mktemp("p") / "p.json"
    last.path.write_bytes(data)

    assert isinstance(last.of(["h1"]), dict)


@pytest.mark.parametrize(
    ("stay", "unknown", "said"),
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
def test_what_is_not_known_is_said(stay, unknown, said):
    assert peeraddresses.note(stay, unknown) == said


@pytest.mark.parametrize(
    ("peers", "all_peers"),
    [(None, []), ("192.0.2.0/24", ["192.0.2.0/24"]), (["192.0.2.9"], ["192.0.2.9"])],
)
def test_peers_that_yaml_leaves_empty_or_makes_a_text_are_none_or_one(
    place, monkeypatch, peers, all_peers
):
    module, seen = asloaded.module("_states/virt_network.py", test=True), []
    monkeypatch.setattr(enrolment, "peers", lambda _ask: {})

    def look(_backend, _functions, _name, _ports, peers):
        seen.extend(peers)
        raise VirtError("enough")

    monkeypatch.setattr(module.backends, "of", look)
    assert module.firewall_present("salt_virt", PORTS, peers=peers)["comment"] == "enough"
    assert seen == all_peers


@pytest.fixture
def state(space, place, monkeypatch):
    """The state of nftables in a namespace, whose master tells what ``told`` has."""
    module, told = asloaded.module("_states/virt_network.py"), dict(TOLD)
    module.__opts__, module.__salt__ = {"test": False}, {"cmd.run_all": space.run_all}
    monkeypatch.setattr(enrolment, "peers", lambda _ask: told)

    def apply(**given_):
        ret = module.firewall_present("salt_virt", PORTS, **given_)
        assert ret["result"] is True, ret["comment"]
        return ret, space.listed("nftables")

    yield module, told, apply


@pytest.mark.slow
def test_a_host_stays_in_until_it_is_known_again_or_is_shut_out(state, space):
    module, told, apply = state
    apply()
    told["h1"] = []
    ret, shown = apply()
    assert ret["changes"] == {} and "10.0.0.1 may still get in" in ret["comment"]
    assert "10.0.0.1" in shown

    told["h1"] = ["10.0.0.9"]
    ret, shown = apply()
    assert "10.0.0.9" in shown and "10.0.0.1," not in shown and "no address" not in ret["comment"]

    # Another is not known meanwhile.
    told.update(h3=[])
    del told["h1"]
    _ret, shown = apply()
    assert "10.0.0.9" not in shown and "10.0.0.3" in shown

    gone = module.firewall_absent("salt_virt", PORTS)
    assert gone["result"] is True and space.listed("nftables") == ""
    assert not peeraddresses.LastPeers("salt_virt").path.exists()
