"""The table beside the rules of a backend that says nothing of what is forwarded: real nft."""

import pytest
from firewallkit import LISTED, PORTS, Failing, everything, made, texts
from saltvirt.core.errors import BadArgument
from saltvirt.network.firewall import backends, forwarding, nftables, rules
from saltvirt.network.firewall.backend import FirewallError

# Each loads rules by the real programs.
pytestmark = pytest.mark.slow


def test_what_was_beside_the_rules_of_another_backend_goes(space, place):
    made(space, "iptables").apply()
    assert "table inet salt_virt_forward" in space.listed("nftables")
    work = made(space, "nftables")
    assert work.plan()["table inet salt_virt_forward"] == "removed"

    work.apply()

    assert "salt_virt_forward" not in space.listed("nftables")
    assert not list(place.glob("*_forward*")) and work.plan() == {}


def test_what_is_beside_the_rules_goes_with_whatever_backend_they_are_taken_away(space, place):
    made(space, "iptables").apply()
    gone = made(space, "nftables", peers=[])
    assert "table inet salt_virt_forward" in gone.removal()

    gone.remove()

    assert "salt_virt_forward" not in space.listed("nftables")
    assert not list(place.glob("*_forward*"))


def test_what_is_kept_of_a_table_goes_where_nft_is_gone(space, place, monkeypatch):
    made(space, "iptables").apply()
    with monkeypatch.context() as without:
        without.setattr(nftables.Nftables, "is_installed", False)
        gone = made(space, "iptables", peers=[])
        assert str(place / "nftables-salt_virt_forward.nft") in gone.removal()
        (warning,) = gone.stays_loaded()
        assert warning.startswith("nft is not installed, without which table inet salt_virt_forw")

        gone.remove()

        assert not place.exists() and gone.stays_loaded() == []
    # Once nft is there again it is found and taken away, as the warning says.
    assert "table inet salt_virt_forward" in space.listed("nftables")
    again = made(space, "iptables", peers=[])
    assert list(again.removal()) == ["table inet salt_virt_forward"] and not again.stays_loaded()
    again.remove()
    assert "salt_virt_forward" not in space.listed("nftables")


@pytest.mark.parametrize(
    ("backend", "called"),
    [("nftables", "table inet salt_virt"), ("iptables", "the chain SALT-VIRT")],
)
def test_what_stays_loaded_without_its_program_is_named(space, place, monkeypatch, backend, called):
    made(space, backend).apply()
    work = made(space, backend, peers=[])
    assert work.stays_loaded() == []
    monkeypatch.setattr(type(work.backend), "is_installed", False)

    (warning,) = work.stays_loaded()
    assert f"without which {called} stays until this host boots" in warning


def test_a_table_of_that_name_which_somebody_else_has_made_stays(space, place):
    own = "add table inet salt_virt_forward; add chain inet salt_virt_forward own; "
    own += "add rule inet salt_virt_forward own tcp dport 9 accept"
    made(space, "nftables")
    assert space.run_all(["nft", own])["retcode"] == 0
    before = space.listed("nftables")

    with pytest.raises(FirewallError, match="^table inet salt_virt_forward is there and was not"):
        made(space, "iptables").plan()
    for backend in LISTED:
        assert made(space, backend, peers=[]).removal() == {}
    made(space, "nftables").apply()
    made(space, "nftables").remove()
    assert space.listed("nftables") == before


def test_a_leftover_that_does_not_go_leaves_all_as_it_was(space, place):
    made(space, "iptables").apply()
    rulesets, kept = everything(space), texts(place)
    failing = Failing(space, "delete table inet salt_virt_forward")

    with pytest.raises(FirewallError, match="out of luck"):
        made(failing, "nftables").apply()

    assert everything(space) == rulesets and texts(place) == kept


@pytest.mark.parametrize("backend", [*LISTED, "firewalld"])
def test_the_name_of_what_is_beside_the_rules_is_refused(place, backend):
    work = backends.of(backend, {}, "x_forward", PORTS, [])
    with pytest.raises(BadArgument, match="^name: 'x_forward' is what the table beside 'x' is"):
        work.plan()


@pytest.mark.parametrize("backend", LISTED)
def test_rules_of_an_earlier_release_with_such_a_name_can_be_taken_away(
    space, place, monkeypatch, backend
):
    before = everything(space)
    with monkeypatch.context() as earlier:
        earlier.setattr(rules, "refuse_beside", lambda name: None)
        made(space, backend, name="x_forward").apply()
    gone = made(space, backend, peers=[], name="x_forward")
    assert gone.removal()

    gone.remove()

    assert everything(space) == before and not place.exists()


def test_what_guards_rules_does_not_go_without_them(space, place):
    made(space, "iptables", name="x").apply()
    before = everything(space), texts(place)

    with pytest.raises(BadArgument, match="'x_forward' is what the table beside 'x' is called, wh"):
        made(space, "nftables", peers=[], name="x_forward").removal()
    assert (everything(space), texts(place)) == before


def test_without_nft_a_warning_says_what_is_open_and_the_rules_are_set(space, place, monkeypatch):
    assert made(space, "iptables").warnings() == []
    monkeypatch.setattr(nftables.Nftables, "is_installed", False)
    work = made(space, "iptables")
    work.apply()

    (warning,) = work.warnings()
    assert "nft is not installed" in warning and "the package nftables" in warning
    assert "SALT-VIRT" in space.listed("iptables")


def test_an_nft_that_fails_is_an_error_with_its_words(space, place):
    for act in ("plan", "apply"):
        work = made(Failing(space, "nft list tables"), "iptables")
        with pytest.raises(FirewallError, match="^nft list tables: out of luck; only nft keeps"):
            getattr(work, act)()
    assert "SALT-VIRT" not in space.listed("iptables") and not place.exists()


def test_rules_without_a_table_beside_them_are_named(space, place, monkeypatch):
    assert forwarding.find_unguarded() == []
    made(space, "iptables").apply()
    made(space, "nftables", name="second").apply()
    assert forwarding.find_unguarded() == []

    (place / "nftables-salt_virt_forward.nft").rename(place / "elsewhere")
    assert forwarding.find_unguarded() == ["salt_virt"]
    (place / "elsewhere").rename(place / "nftables-salt_virt_forward.nft")
    monkeypatch.setattr("saltvirt.network.firewall.backend._FOLDERS", str(place))
    assert forwarding.find_unguarded() == ["salt_virt"]
