"""The firewall's rules, loaded by the real nft and iptables in a network namespace of their own."""

import pytest
from firewallkit import LISTED, PEERS, PORTS, Failing, all_rules, rules_of, texts, without_table
from saltvirt.core.errors import BadArgument
from saltvirt.network.firewall import backends, iptables, rules
from saltvirt.network.firewall.backend import FirewallError
from saltvirt.network.managers.tools import PersistenceError

# Each test loads rules by the real programs.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", LISTED)
def test_rules_are_loaded_once_kept_in_a_file_and_taken_away(space, rules_folder, backend):
    without_table(rules_of(space, backend))._unload()
    before = space.listed(backend)
    rules_of(space, backend).apply()

    assert rules_of(space, backend).plan() == {}
    assert "49152" in space.listed(backend)
    assert {path.stat().st_mode & 0o777 for path in rules_folder.iterdir()} == {0o644}
    no_rules = rules_of(space, backend, [16514], [])
    assert set(no_rules.removal().values()) == {"removed"}
    no_rules.remove()
    assert no_rules.removal() == {}
    assert space.listed(backend) == before
    assert not rules_folder.exists()


@pytest.mark.parametrize("backend", LISTED)
def test_other_peers_replace_the_old_ones_and_nothing_else(space, rules_folder, backend):
    work = rules_of(space, backend)
    foreign = {
        "nftables": ["nft", "add", "table", "inet", "foreign"],
        "iptables": ["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "99", "-j", "DROP"],
    }
    assert space.run_all(foreign[backend])["retcode"] == 0
    work.apply()
    new_rules = rules_of(space, backend, peers=["10.0.0.9"])

    assert new_rules.plan() != {}
    new_rules.apply()
    assert new_rules.plan() == {}
    assert "10.0.0.9" in space.listed(backend) and "10.0.0.2" not in space.listed(backend)
    if backend == "iptables":
        assert space.listed(backend).count("-A INPUT -j SALT-VIRT") == 1
    new_rules.remove()
    assert {"nftables": "table inet foreign", "iptables": "--dport 99"}[backend] in (
        space.listed(backend)
    )


@pytest.mark.parametrize("backend", LISTED)
def test_the_file_has_the_loaded_rules(space, rules_folder, backend):
    rules_of(space, backend).apply()
    loaded = space.listed(backend)
    without_table(rules_of(space, backend))._unload()
    assert rules_of(space, backend).plan() != {}

    for path in sorted(rules_folder.iterdir()):
        restore = [f"{path.name.partition('-')[0]}-restore", "--noflush"]
        program = ["nft", "-f"] if path.suffix == ".nft" else restore
        assert space.run_all([*program, str(path)])["retcode"] == 0

    assert space.listed(backend) == loaded
    assert rules_of(space, backend).plan() == {}


@pytest.mark.parametrize("backend", LISTED)
def test_rules_that_cannot_be_kept_are_not_left_loaded(space, rules_folder, backend):
    rules_folder.write_text("a file where the folder would be")

    with pytest.raises(PersistenceError, match=f"^cannot write {rules_folder}/"):
        rules_of(space, backend).apply()

    assert "16514" not in space.listed(backend)


def test_rules_that_nft_refuses_change_nothing(space, rules_folder):
    work = rules_of(space, "nftables")
    work.backend._text = work.backend._text.replace("tcp reset", "tcp nonsense")

    with pytest.raises(FirewallError, match="^nft -c -f .*: .*nonsense"):
        work.apply()

    assert space.listed("nftables") == "" and not rules_folder.exists()


@pytest.mark.parametrize("backend", LISTED)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_change_that_fails_half_way_is_undone(space, rules_folder, backend, is_there):
    old_rules = rules_of(space, backend)
    if is_there:
        old_rules.apply()
    rulesets = all_rules(space)
    files = texts(rules_folder)
    failing = {"nftables": "/nft", "iptables": "/ip6tables-restore"}[backend]
    work = rules_of(Failing(space, failing), backend, [7777], ["10.0.0.9", "fd00::9"])

    with pytest.raises(FirewallError, match="out of luck"):
        work.apply()

    assert all_rules(space) == rulesets
    assert texts(rules_folder) == files
    assert rules_of(space, backend).plan() == {} or not is_there


def test_two_names_live_beside_each_other(space, rules_folder):
    first, second = rules_of(space, "nftables"), rules_of(space, "nftables", [7777], name="second")
    first.apply()
    second.apply()
    assert (first.plan(), second.plan()) == ({}, {})
    second.remove()
    assert first.plan() == {}


@pytest.mark.parametrize("backend", LISTED)
def test_without_systemd_a_note_warns_that_nothing_loads_the_rules_at_boot(
    space, rules_folder, backend
):
    note = rules_of(space, backend).note()

    assert "\n" not in note and "at boot, as systemd does not run here" in note
    assert str(rules_folder) in note


@pytest.mark.parametrize(
    ("backend", "program"),
    [("nftables", "nft"), ("iptables", "iptables"), ("firewalld", "firewall-cmd")],
)
def test_a_host_without_the_program_is_refused_in_one_line_but_can_be_tested(
    rules_folder, monkeypatch, backend, program
):
    monkeypatch.setattr("saltvirt.network.firewall.backend._FOLDERS", str(rules_folder))
    work = backends.of(backend, {}, "salt_virt", PORTS, PEERS)

    assert set(work.plan().values()) & {"loaded", "added"}
    assert backends.of(backend, {}, "salt_virt", PORTS, []).removal() == {}
    with pytest.raises(FirewallError, match=f"^{program} is not installed on this host"):
        work.refuse_missing()


def test_a_saved_chain_that_comes_back_is_named(rules_folder, tmp_path, monkeypatch):
    saved_file = tmp_path / "rules.v4"
    monkeypatch.setattr(iptables.Iptables, "_SAVED", (str(saved_file), str(tmp_path / "none")))
    work = backends.of("iptables", {}, "salt_virt", PORTS, [])
    assert work.kept_by_others() == []

    saved_file.write_text("*filter\n:SALT-VIRT - [0:0]\nCOMMIT\n")

    assert work.kept_by_others()[0].startswith(f"{saved_file} was saved with the chain SALT-VIRT")


@pytest.mark.parametrize("name", ["", None, "a b", "x;y", "1a", "../a", "a-b", "a" * 29])
def test_a_name_that_no_table_can_have_is_refused(name):
    with pytest.raises(BadArgument, match="^name: .* cannot name rules"):
        rules.table_name(name)


def test_a_chain_that_is_loaded_repeatedly_has_one_jump(space, rules_folder):
    rules_of(space, "iptables").apply()
    work = rules_of(space, "iptables")
    texts = without_table(work).boot._units
    commands = [
        line.partition("=")[2].split()
        for text in texts.values()
        for line in text.splitlines()
        if line.startswith("ExecStart=")
    ]

    for argv in commands:
        result = space.run_all([argv[0].removeprefix("-"), *argv[1:]])
        assert argv[0].startswith("-") or result["retcode"] == 0, result

    assert len(commands) == 8
    assert space.listed("iptables").count("-A INPUT -j SALT-VIRT") == 1
    assert rules_of(space, "iptables").plan() == {}


SITE = """table inet mine {
    set peers4 { type ipv4_addr; }
    chain input { type filter hook input priority 0; policy drop; tcp dport 22 accept; }
}
"""


def test_a_foreign_table_is_refused_and_stays(space, rules_folder, tmp_path):
    rules_of(space, "nftables")
    path = tmp_path / "site.nft"
    path.write_text(SITE)
    assert space.run_all(["nft", "-f", str(path)])["retcode"] == 0
    before = space.listed("nftables")
    work = rules_of(space, "nftables", name="mine")

    for method in (work.plan, work.removal):
        with pytest.raises(FirewallError, match="^table inet mine is there and was not"):
            method()
    assert space.listed("nftables") == before and not rules_folder.exists()


def test_a_foreign_chain_is_refused_and_stays(space, rules_folder):
    rules_of(space, "iptables")
    for words in (["-N", "MINE"], ["-A", "MINE", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"]):
        assert space.run_all(["iptables", *words])["retcode"] == 0
    before = space.listed("iptables")
    work = rules_of(space, "iptables", name="mine")

    for method in (work.plan, work.removal):
        with pytest.raises(FirewallError, match="^the chain MINE of iptables is there"):
            method()
    assert space.listed("iptables") == before and not rules_folder.exists()


@pytest.mark.parametrize("backend", LISTED)
def test_our_rules_are_known_again_without_a_file_and_after_a_flush(space, rules_folder, backend):
    flush = {
        "nftables": ["nft", "flush", "table", "inet", "salt_virt"],
        "iptables": ["iptables", "-F"],
    }[backend]
    rules_of(space, backend, peers=[f"10.0.{n}.1" for n in range(20)]).apply()
    loaded = space.listed(backend)
    for path in list(rules_folder.iterdir()):
        path.unlink()
    rules_of(space, backend, [7777], []).plan()

    assert space.run_all(flush)["retcode"] == 0
    rules_of(space, backend, peers=[f"10.0.{n}.1" for n in range(20)]).apply()
    assert space.listed(backend) == loaded
    rules_of(space, backend, [7777], []).removal()


@pytest.mark.parametrize("name", ["filter", "nat", "mangle", "raw", "security", "firewalld"])
def test_the_name_of_a_table_that_may_come_later_is_refused(rules_folder, name):
    with pytest.raises(BadArgument, match="^name: .* choose another, like salt_virt"):
        backends.of("nftables", {}, name, PORTS, []).plan()


@pytest.mark.parametrize("backend", ["ufw", ["nftables"], {"nftables": None}, None])
def test_an_unknown_backend_is_refused(backend):
    with pytest.raises(BadArgument, match="^backend: .*; one of nftables, iptables, firewalld"):
        backends.of(backend, {}, "salt_virt", PORTS, [])


@pytest.mark.parametrize("name", ["input", "INPUT", "Forward", "output", "accept", "reject"])
def test_the_name_of_a_built_in_chain_is_refused(rules_folder, name):
    with pytest.raises(BadArgument, match="^name: .* is built into iptables; choose another"):
        backends.of("iptables", {}, name, PORTS, [])


@pytest.mark.parametrize(
    ("listed", "is_ours"),
    [
        ("-N X\n", True),
        (f"-N X\n-A X -i lo -m comment --comment {'0a' * 12} -j RETURN\n-A X -j DROP\n", True),
        (f'-N X\n-A X -i lo -m comment --comment "{"0a" * 12}" -j RETURN\n', True),
        ("-N X\n-A X -i lo -m comment --comment mine -j RETURN\n", False),
        ("-N X\n-A X -p tcp --dport 22 -j ACCEPT\n", False),
    ],
)
def test_a_chain_of_ours_is_known_by_its_mark(listed, is_ours):
    assert rules.is_our_chain(listed) == is_ours


@pytest.mark.parametrize(
    ("inside", "is_ours"),
    [
        ("", True),
        ("\tset peers4 {\n\t\ttype ipv4_addr\n\t}\n", True),
        ("\tset near4 {\n\t\ttype ipv4_addr\n\t}\n", True),
        ("\tset bogons {\n\t\ttype ipv4_addr\n\t}\n", False),
        ("\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n", False),
        ("\tchain input {\n\t\ttype filter hook input priority -5; policy accept;\n\t}\n", True),
        ("\tchain forward {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n", False),
        ("\tchain input {\n\t\ttcp dport 22 accept\n\t}\n", False),
        (f'\tchain input {{\n\t\tiif "lo" accept comment "{"0a" * 12}"\n\t\tdrop\n\t}}\n', True),
        ('\tchain input {\n\t\tiif "lo" accept comment "loopback"\n\t}\n', False),
    ],
)
def test_a_table_of_ours_is_known_by_its_mark(inside, is_ours):
    assert rules.is_our_table(f"table inet x {{\n{inside}}}\n") == is_ours
