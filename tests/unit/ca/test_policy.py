"""What is written into a certificate, and what the host is told where that cannot be."""

import importlib.util
from pathlib import Path

import pytest
import salt.version
from askedca import ask, parsed, request, subjects
from saltvirt.ca import policy
from saltvirt.ca.ca import PkiError
from saltvirt.cluster import membership
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.errors import BadConfig
from saltvirt.core.options import config

VICTIM = {
    "fqdn": "victim.example.org",
    "host": "victim",
    "ipv4": ["192.0.2.2"],
    "ipv6": ["2001:db8::2"],
}


@pytest.mark.parametrize(
    "said",
    [
        "2001:db8::2%x",
        "2001:0db8::0002%eth0",
        "::ffff:192.0.2.2",
        "::ffff:127.0.0.1",
        "::ffff:192.0.2.2%1",
    ],
)
def test_another_hosts_address_in_another_spelling_is_not_certified(place, said):
    leaf = parsed(ask(place, "evil", grains={"ipv6": [said]}, others={"victim": VICTIM}))

    assert subjects(leaf) == (["evil"], [])


def test_a_mapped_address_of_ones_own_is_the_ipv4_one():
    assert policy.reachable({"ipv6": ["::ffff:192.0.2.9"]}) == ["192.0.2.9"]


@pytest.mark.parametrize("minion_id", ["Victim", "VICTIM"])
def test_an_id_that_names_another_minion_is_refused(place, minion_id):
    with pytest.raises(PkiError) as refused:
        ask(place, minion_id, grains={"fqdn": minion_id}, others={"victim": VICTIM})

    assert "the id 'victim'" in str(refused.value) and "salt-key -d" in str(refused.value)
    assert not (place.folder / "issued").exists()


def test_the_operator_can_say_that_an_id_is_right(place):
    names = {"Victim": ["Victim"]}

    leaf = parsed(ask(place, "Victim", options={"names": names}, grains={}, others={"victim": {}}))

    assert subjects(leaf)[0] == ["victim"]


def test_what_another_minion_says_of_itself_keeps_no_host_from_its_certificate(place):
    leaf = parsed(ask(place, "victim", grains={}, others={"liar": {"fqdn": "victim"}}))

    assert subjects(leaf)[0] == ["victim"]


@pytest.mark.parametrize("minion_id", ["victim", "victim.example.org", "Victim.Example.ORG"])
def test_a_host_is_no_other_of_itself(place, minion_id):
    others = {"other": {"fqdn": None, "host": "victim2"}, "silent": {}}

    leaf = parsed(ask(place, minion_id, grains=VICTIM, others=others))

    assert subjects(leaf)[0][0] == minion_id.lower()


def test_an_id_too_long_for_a_certificate_is_refused_with_its_cause(place):
    with pytest.raises(PkiError, match="has 72 characters; a certificate's name holds 64"):
        ask(place, "h" * 60 + ".example.com")


def test_a_configured_name_that_is_not_ascii_is_refused_with_its_cause(place):
    with pytest.raises(PkiError, match="virt:pki:names: hyper1: 'hÿper.example.org'"):
        ask(place, options={"names": {"hyper1": ["hÿper.example.org"]}})


def options(**pki):
    """Return what the CA takes of these ``virt:pki`` options."""
    return config.pki_options(config.master_settings({"virt": {"pki": pki}}))


BAD = {
    "days": ("90d", "expected a whole number of at least 1, found '90d'"),
    "days, none": (0, "expected a whole number of at least 1, found 0"),
    "days, endless": (float("inf"), "expected a whole number of at least 1, found inf"),
    "names": ("h1", "expected a mapping of hosts to lists, found 'h1'"),
    "names, number": (
        {"h1": ["a", 10]},
        "h1: expected a list of names and addresses, found " "['a', 10]",
    ),
    "organization": (42, "expected text, found 42"),
}


@pytest.mark.parametrize(("case", "value", "why"), [(k, *v) for k, v in BAD.items()], ids=BAD)
def test_an_option_of_the_ca_that_cannot_be_used_is_named(case, value, why):
    name = case.split(",")[0]

    with pytest.raises(BadConfig) as refused:
        options(**{name: value})

    assert str(refused.value) == f"option virt:pki:{name}: {why}"


def test_what_was_good_for_the_ca_stays_good():
    pki = {
        "days": "90",
        "names": {"h1": ["alias.ex", "192.0.2.1"], "h2": None, "h3": ("a",)},
        "organization": None,
        "key_type": "rsa",
    }

    assert options(**pki) == {
        "days": 90,
        "names": {"h1": ["alias.ex", "192.0.2.1"], "h2": [], "h3": ["a"]},
        "key_type": "rsa",
    }


def test_what_can_only_mean_one_thing_is_taken_so():
    assert options(names={"h1": "alias.ex"}) == {"names": {"h1": ["alias.ex"]}}
    assert options(days=10**9) == {"days": 36500}
    assert options(days=None, names=None, organization="", key_type=None) == {}


def test_a_bad_option_of_the_ca_stops_no_other_runner():
    assert config.master_settings({"virt": {"pki": {"days": "90d"}, "wait_s": 5}}).wait_s == 5


@pytest.fixture
def pillar(opts):
    """The external pillar of a master that has accepted one hypervisor."""
    path = Path(__file__).resolve().parents[3] / "_pillar" / "libvirt.py"
    spec = importlib.util.spec_from_file_location("libvirt_pillar", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (Path(opts["pki_dir"]) / "minions" / "hyper1").write_text("key")
    module.__opts__ = {
        **opts,
        "user": "root",
        "virt": {"hypervisors": "hyper1"},
        "grains": {"fqdn": "hyper1"},
    }
    return module


def test_a_host_is_told_the_cause_whatever_was_wrong(pillar, monkeypatch):
    wanted = {"libvirt-client": request()}
    assert "trust" in pillar.ext_pillar("hyper1", {}, certificates=wanted, version=2)["libvirt_pki"]

    pillar.__opts__["virt"]["pki"] = {"days": "90d"}
    told = pillar.ext_pillar("hyper1", {}, certificates=wanted, version=2)
    assert told == {"libvirt_pki": {"error": f"option virt:pki:days: {BAD['days'][1]}"}}

    def refuse(*_args, **_kwargs):
        raise ValueError("too long\nby far")

    pillar.__opts__["virt"]["pki"] = {}
    monkeypatch.setattr(pillar.answer, "answer", refuse)
    told = pillar.ext_pillar("hyper1", {}, certificates=wanted, version=2)
    assert told == {"libvirt_pki": {"error": "no certificate can be made: too long by far"}}


def test_nobody_gets_certificates_of_a_master_that_cannot_tell_who_asks(pillar, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", "3007.3")

    told = pillar.ext_pillar("hyper1", {}, certificates={"libvirt-client": request()}, version=2)

    assert "Salt 3007.3 on this master gives any minion" in told["libvirt_pki"]["error"]


@pytest.mark.parametrize("allow", [[], None, "L@hyper1", "G@virt_hypervisor:True"])
def test_who_gets_certificates_is_said_in_one_place(pillar, allow):
    pillar.__opts__["virt"]["pki"] = {"allow": allow}

    told = pillar.ext_pillar("hyper1", {}, certificates={"libvirt-client": request()}, version=2)

    assert told["libvirt_pki"]["error"].startswith("option virt:pki:allow: ")
    assert "salt-run virt.allow" in told["libvirt_pki"]["error"]


CLAIMS = {"virt_hypervisor": True, "fqdn": "guest", "ipv4": ["10.0.0.9"]}


def told_to(pillar, *minions):
    """Return what these accepted minions are told; all of them say that they are hypervisors."""
    for minion in minions:
        (Path(pillar.__opts__["pki_dir"]) / "minions" / minion).write_text("key")
    pillar.__opts__["grains"] = CLAIMS
    wanted = {"libvirt-client": request()}
    return {
        one: pillar.ext_pillar(one, {}, certificates=wanted, version=2)["libvirt_pki"]
        for one in minions
    }


def test_a_guest_that_says_it_is_a_hypervisor_gets_nothing(pillar):
    told = told_to(pillar, "guest", "hyper1")

    assert "libvirt-client" in told["hyper1"]["certificates"]
    assert told["guest"] == {
        "error": "guest is not a hypervisor of this master; if it is to be one, run: salt-run "
        "virt.allow guest"
    }
    assert "guest" not in told["hyper1"]["peers"]


def test_whoever_is_allowed_gets_certificates_and_is_a_peer_until_shut_out(pillar):
    membership.allow(pillar.__opts__, ["hyper2"])
    before = told_to(pillar, "hyper1", "hyper2")
    membership.disallow(pillar.__opts__, ["hyper1"])
    after = told_to(pillar, "hyper1", "hyper2")

    assert "certificates" in before["hyper2"] and set(before["hyper1"]["peers"]) == {"hyper2"}
    assert set(before["hyper2"]["peers"]) == {"hyper1"}
    assert "was shut out" in after["hyper1"]["error"]
    assert "certificates" in after["hyper2"] and after["hyper2"]["peers"] == {}


def test_a_command_that_is_suggested_runs_alone_whatever_a_minion_is_called(pillar):
    told = pillar.ext_pillar("web1;reboot", {}, certificates={}, version=1)["libvirt_pki"]

    assert told["error"].endswith("run: salt 'web1;reboot' saltutil.sync_all")


def test_an_address_that_a_host_has_itself_is_not_its_peers(pillar, monkeypatch):
    membership.allow(pillar.__opts__, ["hyper2"])
    said = {"hyper2": {"ipv4": ["10.0.0.2", "192.168.122.1"]}}
    monkeypatch.setattr(
        pillar.salt.utils.minions, "get_minion_data", lambda one, _opts: (one, said.get(one), None)
    )
    (Path(pillar.__opts__["pki_dir"]) / "minions/hyper2").write_text("key")
    pillar.__opts__["grains"] = {"ipv4": ["10.0.0.1", "192.168.122.1"]}

    told = pillar.ext_pillar("hyper1", {}, certificates={}, version=2)["libvirt_pki"]

    assert told["peers"] == {"hyper2": ["10.0.0.2"]}


def test_a_vm_that_a_glob_has_come_to_match_gets_no_certificate(pillar):
    pillar.__opts__["virt"] = {"hypervisors": "hyper*"}
    lastseen.record_move(pillar.__opts__, "hyper9", "hyper1")

    told = told_to(pillar, "hyper1", "hyper9")

    assert "certificates" in told["hyper1"] and "hyper9" not in told["hyper1"]["peers"]
    assert "hyper9 is a VM on hyper1" in told["hyper9"]["error"]
    assert "salt-run virt.disallow hyper9" in told["hyper9"]["error"]


def test_what_somebody_who_is_no_hypervisor_has_said_of_vms_counts_for_nothing(pillar):
    lastseen.record_move(pillar.__opts__, "hyper1", "guest")

    assert "certificates" in told_to(pillar, "hyper1", "guest")["hyper1"]


def test_a_list_that_cannot_be_read_lets_nobody_in(pillar):
    membership.allow(pillar.__opts__, ["hyper2"])
    path = membership.folder(pillar.__opts__) / "hypervisors.json"
    path.write_text("{")

    told = told_to(pillar, "hyper1", "hyper2")

    assert {"certificates"}.isdisjoint(told["hyper1"]) and str(path) in told["hyper1"]["error"]
    assert {"certificates"}.isdisjoint(told["hyper2"])
