"""The table for forwarded packets beside a backend that has no rules for them: real nft."""

import pytest
from firewallkit import LISTED, PORTS, Failing, all_rules, rules_of, texts
from saltvirt.core.errors import BadArgument
from saltvirt.network.firewall import backends, forwarding, nftables, rules
from saltvirt.network.firewall.backend import FirewallError

# Each test loads rules by the real programs.
pytestmark = pytest.mark.slow


def test_the_table_beside_another_backends_rules_is_removed(space, rules_folder):
    rules_of(space, "iptables").apply()
    assert "table inet salt_virt_forward" in space.listed("nftables")
    nftables_rules = rules_of(space, "nftables")
    assert nftables_rules.plan()["table inet salt_virt_forward"] == "removed"

    nftables_rules.apply()

    assert "salt_virt_forward" not in space.listed("nftables")
    assert not list(rules_folder.glob("*_forward*")) and nftables_rules.plan() == {}


def test_the_table_beside_the_rules_is_removed_with_them_by_any_backend(space, rules_folder):
    rules_of(space, "iptables").apply()
    no_rules = rules_of(space, "nftables", peers=[])
    assert "table inet salt_virt_forward" in no_rules.removal()

    no_rules.remove()

    assert "salt_virt_forward" not in space.listed("nftables")
    assert not list(rules_folder.glob("*_forward*"))


def test_the_files_of_a_table_are_removed_where_nft_is_missing(space, rules_folder, monkeypatch):
    rules_of(space, "iptables").apply()
    with monkeypatch.context() as patch:
        patch.setattr(nftables.Nftables, "is_installed", False)
        no_rules = rules_of(space, "iptables", peers=[])
        assert str(rules_folder / "nftables-salt_virt_forward.nft") in no_rules.removal()
        (warning,) = no_rules.stays_loaded()
        assert warning.startswith("nft is not installed, without which table inet salt_virt_forw")

        no_rules.remove()

        assert not rules_folder.exists() and no_rules.stays_loaded() == []
    # As the warning says, the table is found and removed once nft is installed again.
    assert "table inet salt_virt_forward" in space.listed("nftables")
    no_rules_with_nft = rules_of(space, "iptables", peers=[])
    assert (
        list(no_rules_with_nft.removal()) == ["table inet salt_virt_forward"]
        and not no_rules_with_nft.stays_loaded()
    )
    no_rules_with_nft.remove()
    assert "salt_virt_forward" not in space.listed("nftables")


@pytest.mark.parametrize(
    ("backend", "object_name"),
    [("nftables", "table inet salt_virt"), ("iptables", "the chain SALT-VIRT")],
)
def test_rules_that_stay_loaded_without_their_program_are_named(
    space, rules_folder, monkeypatch, backend, object_name
):
    rules_of(space, backend).apply()
    work = rules_of(space, backend, peers=[])
    assert work.stays_loaded() == []
    monkeypatch.setattr(type(work.backend), "is_installed", False)

    (warning,) = work.stays_loaded()
    assert f"without which {object_name} stays until this host boots" in warning


def test_a_foreign_table_of_that_name_stays(space, rules_folder):
    foreign_table = "add table inet salt_virt_forward; add chain inet salt_virt_forward own; "
    foreign_table += "add rule inet salt_virt_forward own tcp dport 9 accept"
    rules_of(space, "nftables")
    assert space.run_all(["nft", foreign_table])["retcode"] == 0
    before = space.listed("nftables")

    with pytest.raises(FirewallError, match="^table inet salt_virt_forward is there and was not"):
        rules_of(space, "iptables").plan()
    for backend in LISTED:
        assert rules_of(space, backend, peers=[]).removal() == {}
    rules_of(space, "nftables").apply()
    rules_of(space, "nftables").remove()
    assert space.listed("nftables") == before


def test_a_leftover_that_cannot_be_removed_leaves_all_as_it_was(space, rules_folder):
    rules_of(space, "iptables").apply()
    rulesets, files = all_rules(space), texts(rules_folder)
    failing = Failing(space, "delete table inet salt_virt_forward")

    with pytest.raises(FirewallError, match="out of luck"):
        rules_of(failing, "nftables").apply()

    assert all_rules(space) == rulesets and texts(rules_folder) == files


@pytest.mark.parametrize("backend", [*LISTED, "firewalld"])
def test_the_name_of_the_table_beside_the_rules_is_refused(rules_folder, backend):
    work = backends.of(backend, {}, "x_forward", PORTS, [])
    with pytest.raises(BadArgument, match="^name: 'x_forward' is what the table beside 'x' is"):
        work.plan()


@pytest.mark.parametrize("backend", LISTED)
def test_rules_of_an_earlier_release_with_such_a_name_can_be_taken_away(
    space, rules_folder, monkeypatch, backend
):
    before = all_rules(space)
    with monkeypatch.context() as patch:
        patch.setattr(rules, "refuse_beside", lambda name: None)
        rules_of(space, backend, name="x_forward").apply()
    no_rules = rules_of(space, backend, peers=[], name="x_forward")
    assert no_rules.removal()

    no_rules.remove()

    assert all_rules(space) == before and not rules_folder.exists()


def test_the_table_beside_the_rules_is_not_removed_without_them(space, rules_folder):
    rules_of(space, "iptables", name="x").apply()
    before = all_rules(space), texts(rules_folder)

    with pytest.raises(BadArgument, match="'x_forward' is what the table beside 'x' is called, wh"):
        rules_of(space, "nftables", peers=[], name="x_forward").removal()
    assert (all_rules(space), texts(rules_folder)) == before


def test_without_nft_the_rules_are_set_with_a_warning(space, rules_folder, monkeypatch):
    assert rules_of(space, "iptables").warnings() == []
    monkeypatch.setattr(nftables.Nftables, "is_installed", False)
    work = rules_of(space, "iptables")
    work.apply()

    (warning,) = work.warnings()
    assert "nft is not installed" in warning and "the package nftables" in warning
    assert "SALT-VIRT" in space.listed("iptables")


def test_an_nft_that_fails_is_an_error_with_its_words(space, rules_folder):
    for method in ("plan", "apply"):
        work = rules_of(Failing(space, "nft list tables"), "iptables")
        with pytest.raises(FirewallError, match="^nft list tables: out of luck; only nft keeps"):
            getattr(work, method)()
    assert "SALT-VIRT" not in space.listed("iptables") and not rules_folder.exists()


def test_rules_without_a_table_beside_them_are_named(space, rules_folder, monkeypatch):
    assert forwarding.find_unguarded() == []
    rules_of(space, "iptables").apply()
    rules_of(space, "nftables", name="second").apply()
    assert forwarding.find_unguarded() == []

    (rules_folder / "nftables-salt_virt_forward.nft").rename(rules_folder / "elsewhere")
    assert forwarding.find_unguarded() == ["salt_virt"]
    (rules_folder / "elsewhere").rename(rules_folder / "nftables-salt_virt_forward.nft")
    monkeypatch.setattr("saltvirt.network.firewall.backend._FOLDERS", str(rules_folder))
    assert forwarding.find_unguarded() == ["salt_virt"]
