"""The rich rules of firewalld; a record names those of this project."""

import shutil

import pytest
from firewallkit import texts
from saltvirt.network.firewall import backend, backends, bootunits, rules

PORTS = [16514, "49152-49215"]
ADMINS = 'rule family="ipv4" source address="10.99.0.5" port port="16514" protocol="tcp" accept'


def rich(ports, *peers):
    """Return the rules for these ports and peers."""
    return rules.rich_rules(rules.ports(ports), rules.networks(peers))


class FakeFirewalld:
    """A firewalld with two sets of rules, now and permanent; nft is the real one."""

    def __init__(self):
        self.now, self.later, self.refused, self.space = [], [], None, None

    def run_all(self, argv, **_options):
        """Run firewall-cmd as Salt's ``cmd.run_all`` does."""
        if argv[0].endswith(("/nft", "/ip")):
            return self.space.run_all(argv)
        rules_in_set = self.later if "--permanent" in argv else self.now
        if "--state" in argv:
            return {"retcode": 0, "stdout": "running", "stderr": ""}
        if "--list-rich-rules" in argv:
            return {"retcode": 0, "stdout": "\n".join(rules_in_set), "stderr": ""}
        if len({word.partition("=")[0] for word in argv[1:]} - {"--permanent"}) > 1:
            return {"retcode": 2, "stdout": "", "stderr": "error: argument: not allowed with"}
        for word in argv[1:]:
            verb, _equals, rule = word.partition("=")
            if verb == "--add-rich-rule" and self.refused and self.refused in rule:
                return {"retcode": 1, "stdout": "", "stderr": "Error: INVALID_RULE"}
            self._change(rules_in_set, verb, rule)
        return {"retcode": 0, "stdout": "success", "stderr": ""}

    def _change(self, rules_in_set, verb, rule):
        if verb == "--add-rich-rule" and rule not in rules_in_set:
            rules_in_set.append(rule)
        if (
            verb == "--remove-rich-rule" and rule in rules_in_set
        ):  # firewalld only warns of a missing rule
            rules_in_set.remove(rule)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A host on which firewalld runs."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/firewall-cmd"
    program.touch(mode=0o755)
    monkeypatch.setattr("saltvirt.network.firewall.backend._FOLDERS", str(program.parent))
    monkeypatch.setattr(bootunits, "RULES", tmp_path / "rules")
    return FakeFirewalld()


def work(fake, ports=PORTS, peers=(), name="salt_virt"):
    """Return the rules of a name."""
    return backends.of("firewalld", {"cmd.run_all": fake.run_all}, name, ports, peers)


def test_without_nftables_a_warning_names_guests_with_nat(fake):
    (warning,) = work(fake, peers=["10.0.0.2"]).warnings()

    assert "guests on a NAT network" in warning and "install the package nftables" in warning


def test_forwarded_packets_have_a_table_beside_the_rules(fake, space, rules_folder):
    nft = shutil.which("nft", path="/usr/sbin:/usr/bin")
    (bootunits.RULES.parent / "bin/nft").symlink_to(nft)
    fake.space = space
    listed = ["nft", "list", "table", "inet", "salt_virt_forward"]
    new_rules = work(fake, peers=["10.0.0.2"])
    assert new_rules.plan()["table inet salt_virt_forward"] == "loaded"

    new_rules.apply()

    table = space.run_all(listed)["stdout"]
    assert "hook forward" in table and "hook input" not in table and "10.0.0.2" in table
    assert work(fake, peers=["10.0.0.2"]).plan() == {}
    no_rules = work(fake)
    assert no_rules.removal()["table inet salt_virt_forward"] == "removed"
    no_rules.remove()
    assert space.run_all(listed)["retcode"] != 0 and work(fake).removal() == {}


def test_a_refusal_of_firewalld_leaves_the_table_beside_its_rules(fake, space, rules_folder):
    nft = shutil.which("nft", path="/usr/sbin:/usr/bin")
    (bootunits.RULES.parent / "bin/nft").symlink_to(nft)
    fake.space = space
    work(fake, peers=["10.0.0.2"]).apply()
    ruleset, files = space.listed("nftables"), texts(rules_folder)
    fake.refused = "10.0.0.3"

    with pytest.raises(backend.FirewallError, match="^firewall-cmd .*INVALID_RULE"):
        work(fake, peers=["10.0.0.3"]).apply()

    assert space.listed("nftables") == ruleset and texts(rules_folder) == files
    assert work(fake, peers=["10.0.0.2"]).plan() == {}


def test_rules_are_recorded_and_go_with_their_record(fake):
    expected = rich(PORTS, "10.0.0.2", "fd00::2")
    first = work(fake, peers=["10.0.0.2", "fd00::2"])
    record = bootunits.RULES / "firewalld-salt_virt.rules"

    assert first.plan() == {**dict.fromkeys(expected, "added"), str(record): "written"}
    first.apply()
    assert first.plan() == {} and fake.now == fake.later == expected
    assert record.stat().st_mode & 0o777 == 0o644
    assert record.read_text().splitlines()[1:] == expected

    no_rules = work(fake, ports=[16514])
    assert no_rules.removal() == {**dict.fromkeys(expected, "removed"), str(record): "removed"}
    no_rules.remove()
    assert fake.now == fake.later == [] and not bootunits.RULES.exists()
    assert work(fake).removal() == {}


def test_with_other_ports_the_rules_of_the_old_ones_go(fake):
    work(fake, peers=["10.0.0.2", "10.0.0.9"]).apply()
    new_rules = work(fake, [16514, "49152-49279"], ["10.0.0.2"])
    new_rules.apply()

    assert sorted(fake.now) == sorted(fake.later) == rich([16514, "49152-49279"], "10.0.0.2")
    assert new_rules.plan() == {}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_rule_of_the_admin_stays(fake, is_new):
    admin_rules = [ADMINS, *rich([16514], "10.0.0.2")]  # one of them is equal to one of ours
    fake.now, fake.later = admin_rules[:], admin_rules[:]
    if not is_new:
        work(fake, peers=["10.0.0.3"]).apply()
    work(fake, peers=["10.0.0.2"]).apply()
    assert set(fake.later) == {ADMINS, *rich(PORTS, "10.0.0.2")}

    no_rules = work(fake)
    no_rules.removal()
    no_rules.remove()
    assert fake.now == fake.later == admin_rules


def test_two_names_share_a_rule_until_both_are_gone(fake):
    for name in ("first", "second"):
        work(fake, peers=["10.0.0.2"], name=name).apply()
    for name, expected in (("first", rich(PORTS, "10.0.0.2")), ("second", [])):
        no_rules = work(fake, name=name)
        no_rules.removal()
        no_rules.remove()
        assert fake.now == fake.later == expected


def test_a_refusal_of_firewalld_leaves_rules_and_record(fake):
    work(fake, peers=["10.0.0.2"]).apply()
    record = bootunits.RULES / "firewalld-salt_virt.rules"
    before = fake.now[:], fake.later[:], record.read_text()
    fake.refused = "10.0.0.3"

    with pytest.raises(backend.FirewallError, match="^firewall-cmd .*INVALID_RULE"):
        work(fake, peers=["10.0.0.3"]).apply()
    assert (fake.now, fake.later, record.read_text()) == before


def test_the_rules_of_a_killed_run_are_known_as_ours(fake, monkeypatch):
    def run(argv, **options):
        if "--permanent" in argv and argv[-1].startswith("--add-rich-rule="):
            raise SystemExit
        return FakeFirewalld.run_all(fake, argv, **options)

    monkeypatch.setattr(backend.undo.Steps, "run", lambda steps: None)
    monkeypatch.setattr(fake, "run_all", run)
    with pytest.raises(SystemExit):
        work(fake, peers=["10.0.0.2"]).apply()
    assert fake.now and not fake.later
    monkeypatch.setattr(
        fake, "run_all", lambda argv, **options: FakeFirewalld.run_all(fake, argv, **options)
    )

    no_rules = work(fake)
    no_rules.removal()
    no_rules.remove()
    assert fake.now == fake.later == [] and not bootunits.RULES.exists()
