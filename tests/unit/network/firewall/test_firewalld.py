"""The rich rules of firewalld: which are ours is what the record of them says."""

import shutil

import pytest
from firewallkit import texts
from saltvirt.network.firewall import backend, backends, bootunits, rules

PORTS = [16514, "49152-49215"]
ADMINS = 'rule family="ipv4" source address="10.99.0.5" port port="16514" protocol="tcp" accept'


def rich(ports, *peers):
    """Return the rules for these ports and peers."""
    return rules.rich_rules(rules.ports(ports), rules.networks(peers))


class Fake:
    """A firewalld that has the sets of rules that it is told of; nft is the real one."""

    def __init__(self):
        self.now, self.later, self.refused, self.space = [], [], None, None

    def run_all(self, argv, **_how):
        """Run firewall-cmd as Salt's ``cmd.run_all`` does."""
        if argv[0].endswith(("/nft", "/ip")):
            return self.space.run_all(argv)
        has = self.later if "--permanent" in argv else self.now
        if "--state" in argv:
            return {"retcode": 0, "stdout": "running", "stderr": ""}
        if "--list-rich-rules" in argv:
            return {"retcode": 0, "stdout": "\n".join(has), "stderr": ""}
        if len({word.partition("=")[0] for word in argv[1:]} - {"--permanent"}) > 1:
            return {"retcode": 2, "stdout": "", "stderr": "error: argument: not allowed with"}
        for word in argv[1:]:
            verb, _equals, rule = word.partition("=")
            if verb == "--add-rich-rule" and self.refused and self.refused in rule:
                return {"retcode": 1, "stdout": "", "stderr": "Error: INVALID_RULE"}
            self._change(has, verb, rule)
        return {"retcode": 0, "stdout": "success", "stderr": ""}

    def _change(self, has, verb, rule):
        if verb == "--add-rich-rule" and rule not in has:
            has.append(rule)
        if verb == "--remove-rich-rule" and rule in has:  # else it only warns
            has.remove(rule)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A host on which firewalld runs."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/firewall-cmd"
    program.touch(mode=0o755)
    monkeypatch.setattr("saltvirt.network.firewall.backend._FOLDERS", str(program.parent))
    monkeypatch.setattr(bootunits, "RULES", tmp_path / "rules")
    return Fake()


def work(fake, ports=PORTS, peers=(), name="salt_virt"):
    """Return the rules of a name."""
    return backends.of("firewalld", {"cmd.run_all": fake.run_all}, name, ports, peers)


def test_without_nftables_it_is_said_that_guests_with_nat_get_through(fake):
    (warning,) = work(fake, peers=["10.0.0.2"]).warnings()

    assert "guests on a NAT network" in warning and "install the package nftables" in warning


def test_what_is_forwarded_is_a_table_beside_the_rules(fake, space, place):
    nft = shutil.which("nft", path="/usr/sbin:/usr/bin")
    (bootunits.RULES.parent / "bin/nft").symlink_to(nft)
    fake.space = space
    listed = ["nft", "list", "table", "inet", "salt_virt_forward"]
    present = work(fake, peers=["10.0.0.2"])
    assert present.plan()["table inet salt_virt_forward"] == "loaded"

    present.apply()

    table = space.run_all(listed)["stdout"]
    assert "hook forward" in table and "hook input" not in table and "10.0.0.2" in table
    assert work(fake, peers=["10.0.0.2"]).plan() == {}
    gone = work(fake)
    assert gone.removal()["table inet salt_virt_forward"] == "removed"
    gone.remove()
    assert space.run_all(listed)["retcode"] != 0 and work(fake).removal() == {}


def test_what_firewalld_refuses_leaves_the_table_beside_its_rules_as_it_was(fake, space, place):
    nft = shutil.which("nft", path="/usr/sbin:/usr/bin")
    (bootunits.RULES.parent / "bin/nft").symlink_to(nft)
    fake.space = space
    work(fake, peers=["10.0.0.2"]).apply()
    loaded, kept = space.listed("nftables"), texts(place)
    fake.refused = "10.0.0.3"

    with pytest.raises(backend.FirewallError, match="^firewall-cmd .*INVALID_RULE"):
        work(fake, peers=["10.0.0.3"]).apply()

    assert space.listed("nftables") == loaded and texts(place) == kept
    assert work(fake, peers=["10.0.0.2"]).plan() == {}


def test_rules_are_recorded_and_go_with_their_record(fake):
    wanted = rich(PORTS, "10.0.0.2", "fd00::2")
    first = work(fake, peers=["10.0.0.2", "fd00::2"])
    record = bootunits.RULES / "firewalld-salt_virt.rules"

    assert first.plan() == {**dict.fromkeys(wanted, "added"), str(record): "written"}
    first.apply()
    assert first.plan() == {} and fake.now == fake.later == wanted
    assert record.stat().st_mode & 0o777 == 0o644
    assert record.read_text().splitlines()[1:] == wanted

    gone = work(fake, ports=[16514])
    assert gone.removal() == {**dict.fromkeys(wanted, "removed"), str(record): "removed"}
    gone.remove()
    assert fake.now == fake.later == [] and not bootunits.RULES.exists()
    assert work(fake).removal() == {}


def test_with_other_ports_the_rules_of_the_old_ones_go(fake):
    work(fake, peers=["10.0.0.2", "10.0.0.9"]).apply()
    changed = work(fake, [16514, "49152-49279"], ["10.0.0.2"])
    changed.apply()

    assert sorted(fake.now) == sorted(fake.later) == rich([16514, "49152-49279"], "10.0.0.2")
    assert changed.plan() == {}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_rule_of_the_admin_stays(fake, is_new):
    own = [ADMINS, *rich([16514], "10.0.0.2")]  # one of them says what we would say
    fake.now, fake.later = own[:], own[:]
    if not is_new:
        work(fake, peers=["10.0.0.3"]).apply()
    work(fake, peers=["10.0.0.2"]).apply()
    assert set(fake.later) == {ADMINS, *rich(PORTS, "10.0.0.2")}

    gone = work(fake)
    gone.removal()
    gone.remove()
    assert fake.now == fake.later == own


def test_two_names_share_a_rule_until_both_are_gone(fake):
    for name in ("first", "second"):
        work(fake, peers=["10.0.0.2"], name=name).apply()
    for name, left in (("first", rich(PORTS, "10.0.0.2")), ("second", [])):
        gone = work(fake, name=name)
        gone.removal()
        gone.remove()
        assert fake.now == fake.later == left


def test_what_firewalld_refuses_leaves_rules_and_record_as_they_were(fake):
    work(fake, peers=["10.0.0.2"]).apply()
    record = bootunits.RULES / "firewalld-salt_virt.rules"
    before = fake.now[:], fake.later[:], record.read_text()
    fake.refused = "10.0.0.3"

    with pytest.raises(backend.FirewallError, match="^firewall-cmd .*INVALID_RULE"):
        work(fake, peers=["10.0.0.3"]).apply()
    assert (fake.now, fake.later, record.read_text()) == before


def test_a_run_that_is_killed_half_way_is_known_for_ours(fake, monkeypatch):
    def run(argv, **how):
        if "--permanent" in argv and argv[-1].startswith("--add-rich-rule="):
            raise SystemExit
        return Fake.run_all(fake, argv, **how)

    monkeypatch.setattr(backend.undo.Steps, "run", lambda steps: None)
    monkeypatch.setattr(fake, "run_all", run)
    with pytest.raises(SystemExit):
        work(fake, peers=["10.0.0.2"]).apply()
    assert fake.now and not fake.later
    monkeypatch.setattr(fake, "run_all", lambda argv, **how: Fake.run_all(fake, argv, **how))

    gone = work(fake)
    gone.removal()
    gone.remove()
    assert fake.now == fake.later == [] and not bootunits.RULES.exists()
