"""What the CA writes into a certificate, and which reason the host gets for a refusal."""

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
    "spelling",
    [
        "2001:db8::2%x",
        "2001:0db8::0002%eth0",
        "::ffff:192.0.2.2",
        "::ffff:127.0.0.1",
        "::ffff:192.0.2.2%1",
    ],
)
def test_another_hosts_address_in_another_spelling_is_not_certified(place, spelling):
    leaf = parsed(ask(place, "evil", grains={"ipv6": [spelling]}, others={"victim": VICTIM}))

    assert subjects(leaf) == (["evil"], [])


def test_a_mapped_address_of_the_host_itself_is_its_ipv4_address():
    assert policy.reachable({"ipv6": ["::ffff:192.0.2.9"]}) == ["192.0.2.9"]


@pytest.mark.parametrize("minion_id", ["Victim", "VICTIM"])
def test_an_id_that_names_another_minion_is_refused(place, minion_id):
    with pytest.raises(PkiError) as refused:
        ask(place, minion_id, grains={"fqdn": minion_id}, others={"victim": VICTIM})

    assert "the id 'victim'" in str(refused.value) and "salt-key -d" in str(refused.value)
    assert not (place.folder / "issued").exists()


def test_the_operator_can_allow_an_id(place):
    names = {"Victim": ["Victim"]}

    leaf = parsed(ask(place, "Victim", options={"names": names}, grains={}, others={"victim": {}}))

    assert subjects(leaf)[0] == ["victim"]


def test_grains_of_another_minion_keep_no_host_from_its_certificate(place):
    leaf = parsed(ask(place, "victim", grains={}, others={"liar": {"fqdn": "victim"}}))

    assert subjects(leaf)[0] == ["victim"]


@pytest.mark.parametrize("minion_id", ["victim", "victim.example.org", "Victim.Example.ORG"])
def test_a_host_is_no_rival_of_itself(place, minion_id):
    other_hosts = {"other": {"fqdn": None, "host": "victim2"}, "silent": {}}

    leaf = parsed(ask(place, minion_id, grains=VICTIM, others=other_hosts))

    assert subjects(leaf)[0][0] == minion_id.lower()


def test_an_id_too_long_for_a_certificate_is_refused_with_its_cause(place):
    with pytest.raises(PkiError, match="has 72 characters; a certificate's name holds 64"):
        ask(place, "h" * 60 + ".example.com")


def test_a_configured_name_that_is_not_ascii_is_refused_with_its_cause(place):
    with pytest.raises(PkiError, match="virt:pki:names: hyper1: 'hÿper.example.org'"):
        ask(place, options={"names": {"hyper1": ["hÿper.example.org"]}})


def options(**pki):
    """Return the CA's options from these ``virt:pki`` options."""
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


@pytest.mark.parametrize(("case", "value", "reason"), [(k, *v) for k, v in BAD.items()], ids=BAD)
def test_an_option_of_the_ca_that_cannot_be_used_is_named(case, value, reason):
    name = case.split(",")[0]

    with pytest.raises(BadConfig) as refused:
        options(**{name: value})

    assert str(refused.value) == f"option virt:pki:{name}: {reason}"


def test_valid_options_of_the_ca_stay_valid():
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


def test_other_spellings_of_an_option_are_read_as_meant():
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


def test_a_host_gets_the_reason_of_every_failure(pillar, monkeypatch):
    requests = {"libvirt-client": request()}
    assert (
        "trust" in pillar.ext_pillar("hyper1", {}, certificates=requests, version=2)["libvirt_pki"]
    )

    pillar.__opts__["virt"]["pki"] = {"days": "90d"}
    data = pillar.ext_pillar("hyper1", {}, certificates=requests, version=2)
    assert data == {"libvirt_pki": {"error": f"option virt:pki:days: {BAD['days'][1]}"}}

    def refuse(*_args, **_kwargs):
        raise ValueError("too long\nby far")

    pillar.__opts__["virt"]["pki"] = {}
    monkeypatch.setattr(pillar.answer, "answer", refuse)
    data = pillar.ext_pillar("hyper1", {}, certificates=requests, version=2)
    assert data == {"libvirt_pki": {"error": "no certificate can be made: too long by far"}}


def test_a_master_that_cannot_identify_minions_gives_no_certificates(pillar, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", "3007.3")

    data = pillar.ext_pillar("hyper1", {}, certificates={"libvirt-client": request()}, version=2)

    assert "Salt 3007.3 on this master gives any minion" in data["libvirt_pki"]["error"]


@pytest.mark.parametrize("allow", [[], None, "L@hyper1", "G@virt_hypervisor:True"])
def test_the_list_of_hypervisors_alone_decides_on_certificates(pillar, allow):
    pillar.__opts__["virt"]["pki"] = {"allow": allow}

    data = pillar.ext_pillar("hyper1", {}, certificates={"libvirt-client": request()}, version=2)

    assert data["libvirt_pki"]["error"].startswith("option virt:pki:allow: ")
    assert "salt-run virt.allow" in data["libvirt_pki"]["error"]


CLAIMS = {"virt_hypervisor": True, "fqdn": "guest", "ipv4": ["10.0.0.9"]}


def ext_pillars(pillar, *minions):
    """Return the pillar of these accepted minions; all claim to be hypervisors."""
    for minion in minions:
        (Path(pillar.__opts__["pki_dir"]) / "minions" / minion).write_text("key")
    pillar.__opts__["grains"] = CLAIMS
    requests = {"libvirt-client": request()}
    return {
        minion_id: pillar.ext_pillar(minion_id, {}, certificates=requests, version=2)["libvirt_pki"]
        for minion_id in minions
    }


def test_a_guest_that_claims_to_be_a_hypervisor_gets_nothing(pillar):
    data = ext_pillars(pillar, "guest", "hyper1")

    assert "libvirt-client" in data["hyper1"]["certificates"]
    assert data["guest"] == {
        "error": "guest is not a hypervisor of this master; if it is to be one, run: salt-run "
        "virt.allow guest"
    }
    assert "guest" not in data["hyper1"]["peers"]


def test_an_allowed_host_gets_certificates_and_is_a_peer_until_it_is_shut_out(pillar):
    membership.allow(pillar.__opts__, ["hyper2"])
    pillars_before = ext_pillars(pillar, "hyper1", "hyper2")
    membership.disallow(pillar.__opts__, ["hyper1"])
    pillars_after = ext_pillars(pillar, "hyper1", "hyper2")

    assert "certificates" in pillars_before["hyper2"] and set(
        pillars_before["hyper1"]["peers"]
    ) == {"hyper2"}
    assert set(pillars_before["hyper2"]["peers"]) == {"hyper1"}
    assert "was shut out" in pillars_after["hyper1"]["error"]
    assert "certificates" in pillars_after["hyper2"] and pillars_after["hyper2"]["peers"] == {}


def test_a_suggested_command_quotes_the_minion_id(pillar):
    data = pillar.ext_pillar("web1;reboot", {}, certificates={}, version=1)["libvirt_pki"]

    assert data["error"].endswith("run: salt 'web1;reboot' saltutil.sync_all")


def test_an_address_that_a_host_has_itself_is_left_out_of_its_peers(pillar, monkeypatch):
    membership.allow(pillar.__opts__, ["hyper2"])
    grains = {"hyper2": {"ipv4": ["10.0.0.2", "192.168.122.1"]}}
    monkeypatch.setattr(
        pillar.salt.utils.minions,
        "get_minion_data",
        lambda minion_id, _opts: (minion_id, grains.get(minion_id), None),
    )
    (Path(pillar.__opts__["pki_dir"]) / "minions/hyper2").write_text("key")
    pillar.__opts__["grains"] = {"ipv4": ["10.0.0.1", "192.168.122.1"]}

    data = pillar.ext_pillar("hyper1", {}, certificates={}, version=2)["libvirt_pki"]

    assert data["peers"] == {"hyper2": ["10.0.0.2"]}


def test_a_vm_that_a_glob_matches_gets_no_certificate(pillar):
    pillar.__opts__["virt"] = {"hypervisors": "hyper*"}
    lastseen.record_move(pillar.__opts__, "hyper9", "hyper1")

    data = ext_pillars(pillar, "hyper1", "hyper9")

    assert "certificates" in data["hyper1"] and "hyper9" not in data["hyper1"]["peers"]
    assert "hyper9 is a VM on hyper1" in data["hyper9"]["error"]
    assert "salt-run virt.disallow hyper9" in data["hyper9"]["error"]


def test_vms_in_the_cache_of_a_minion_that_is_no_hypervisor_do_not_count(pillar):
    lastseen.record_move(pillar.__opts__, "hyper1", "guest")

    assert "certificates" in ext_pillars(pillar, "hyper1", "guest")["hyper1"]


def test_an_unreadable_list_of_hypervisors_allows_no_host(pillar):
    membership.allow(pillar.__opts__, ["hyper2"])
    path = membership.folder(pillar.__opts__) / "hypervisors.json"
    path.write_text("{")

    data = ext_pillars(pillar, "hyper1", "hyper2")

    assert {"certificates"}.isdisjoint(data["hyper1"]) and str(path) in data["hyper1"]["error"]
    assert {"certificates"}.isdisjoint(data["hyper2"])
