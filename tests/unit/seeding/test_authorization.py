"""A VM's key is accepted from the host that is authorized, once, in time, and from no other."""

import importlib.util
import logging
import time
from pathlib import Path

import keypairs
import pytest
import salt.version
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc.hostcommands import HostUnresponsive
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, MasterError, NameTaken, VirtError
from saltvirt.core.salt import compat
from saltvirt.seeding.master import authorization

PUBLIC = keypairs.named("a guest")[0]
HOST = keypairs.named("a host")


@pytest.fixture
def token(opts, monkeypatch):
    """Authorize hyper1 for web1; return its token as only it can read it."""
    sent = []
    # The host itself keeps its token in tests/cloud/test_virtkey.py.
    monkeypatch.setattr(
        authorization, "act", lambda *words, **more: sent.append((words[1], more["kwarg"]))
    )
    known(opts)

    def give(name="web1", minutes=10, replace=False):
        authorization.grant(Cloud.of(opts), name, "hyper1", minutes=minutes, replace=replace)
        host, words = sent[-1]
        assert host == "hyper1" and HOST[1] not in words["token"]
        return keypair.unseal(words["token"], HOST[1])

    give.sent = sent
    return give


def known(opts):
    """Have hyper1 and hyper2 as hypervisors."""
    for host in ("hyper1", "hyper2"):
        minionkeys.accept(opts, host, HOST[0])
    opts["virt"] = {"hypervisors": ["hyper*"]}


def silent(*_words, **_more):
    """Stand for a host that gives no answer."""
    raise HostUnresponsive("hyper1 does not answer")


def submit(opts, given, name="web1", host="hyper1", key=PUBLIC, now=None):
    """Submit a key as the external pillar does."""
    authorization.accept_key(opts, host, name, key, given, now=now or time.time())


def test_the_host_that_is_authorized_has_its_key_accepted_once(opts, token):
    given = token()

    submit(opts, given)

    assert compat.KeyStore(opts).read("web1") == ("accepted", PUBLIC)
    with pytest.raises(
        MasterError, match="hyper1 is not authorized .* or has used its authorization"
    ):
        submit(opts, given)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"host": "hyper2"}, "hyper2 may not submit a key of 'web1': another host may"),
        ({"name": "web2"}, "hyper1 is not authorized to submit a key of 'web2'"),
        ({"name": "../web1"}, "cannot name a VM"),
        ({"now": 1e12}, "too late"),
        ({"key": "no key"}, "not a public key"),
    ],
)
def test_whoever_else_submits_is_refused(opts, token, change, why):
    given = token()

    with pytest.raises(VirtError, match=why):
        submit(opts, given, **change)

    assert compat.KeyStore(opts).read("web1") == (None, None)


@pytest.mark.parametrize("wrong", [None, "", "x" * 43, 7])
def test_a_wrong_token_is_refused_and_the_right_one_still_works(opts, token, wrong):
    given = token()

    with pytest.raises(MasterError, match="wrong token"):
        submit(opts, wrong)
    submit(opts, given)


def test_another_accepted_key_is_replaced_only_if_that_was_asked_for(opts, token):
    other = keypair.generate()[0]
    minionkeys.accept(opts, "web1", other)
    with pytest.raises(NameTaken, match="'web1' is accepted"):
        token()

    submit(opts, token(replace=True))

    assert compat.KeyStore(opts).read("web1") == ("accepted", PUBLIC)


def test_a_key_accepted_meanwhile_is_not_replaced(opts, token):
    given, other = token(), keypair.generate()[0]
    minionkeys.accept(opts, "web1", other)

    with pytest.raises(NameTaken):
        submit(opts, given)

    assert compat.KeyStore(opts).read("web1") == ("accepted", other)


def test_an_authorization_can_be_revoked(opts, token):
    given = token()
    authorization.revoke(Cloud.of(opts), "web1")

    assert token.sent[-1] == ("hyper1", {"name": "web1", "token": None})
    with pytest.raises(MasterError, match="is not authorized"):
        submit(opts, given)
    with pytest.raises(MasterError, match="no host is authorized"):
        authorization.revoke(Cloud.of(opts), "web1")


def test_an_authorization_of_a_host_that_is_silent_is_revoked_all_the_same(
    opts, token, monkeypatch, caplog
):
    given = token()
    monkeypatch.setattr(authorization, "act", silent)

    authorization.revoke(Cloud.of(opts), "web1")

    assert "hyper1 keeps a token for web1 that is no longer valid" in caplog.text
    with pytest.raises(MasterError, match="is not authorized"):
        submit(opts, given)


def test_an_authorization_is_gone_with_the_vm_of_its_host_and_stays_for_another(opts, token):
    given = token()

    authorization.forget(opts, "web1", "hyper2")
    submit(opts, given)
    given = token(replace=True)
    authorization.forget(opts, "web1", "hyper1")
    authorization.forget(opts, "web1", "hyper1")

    with pytest.raises(MasterError, match="is not authorized"):
        submit(opts, given)


@pytest.mark.parametrize("name", ["hyper9", "HYPER9", "hyper1"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_name_that_is_a_hypervisors_is_never_authorized(opts, token, name, replace):
    with pytest.raises(BadArgument, match=f"a VM cannot be called '{name}'"):
        token(name, replace=replace)

    assert token.sent == []


def test_a_name_that_has_become_a_hypervisors_is_not_accepted_any_more(opts, token):
    given = token()
    opts["virt"] = {"hypervisors": ["hyper1", "web*"]}

    with pytest.raises(BadArgument, match="a VM cannot be called 'web1'"):
        submit(opts, given)

    assert compat.KeyStore(opts).read("web1") == (None, None)


def test_only_a_hypervisor_is_authorized_and_only_as_long_as_it_is_one(opts, token):
    minionkeys.accept(opts, "guest", PUBLIC)
    with pytest.raises(BadArgument, match="'guest' is not a hypervisor here"):
        authorization.grant(Cloud.of(opts), "web1", "guest", minutes=10, replace=False)
    with pytest.raises(BadArgument, match="host: 1001 is not text; quote it"):
        authorization.grant(Cloud.of(opts), "web1", 1001, minutes=10, replace=False)
    given = token()
    membership.disallow(opts, ["hyper1"])

    with pytest.raises(MasterError, match="hyper1 was shut out"):
        submit(opts, given)

    assert compat.KeyStore(opts).read("web1") == (None, None)
    membership.allow(opts, ["hyper1"])
    submit(opts, given)


def test_the_master_keeps_no_token_and_logs_none(opts, token, caplog):
    caplog.set_level(logging.DEBUG)
    given = token()
    (note,) = (authorization._file(opts, "web1").path.parent).iterdir()

    assert given not in note.read_text() and note.stat().st_mode & 0o077 == 0
    submit(opts, given)
    assert given not in caplog.text


def test_a_host_that_cannot_be_reached_gets_no_authorization(opts, monkeypatch):
    monkeypatch.setattr(authorization, "act", silent)
    known(opts)

    with pytest.raises(HostUnresponsive):
        authorization.grant(Cloud.of(opts), "web1", "hyper1", minutes=10, replace=False)
    with pytest.raises(MasterError, match="no host is authorized"):
        authorization.revoke(Cloud.of(opts), "web1")


def test_minutes_are_a_number_of_a_day_at_most(opts):
    with pytest.raises(BadArgument, match="minutes"):
        authorization.grant(Cloud.of(opts), "web1", "hyper1", minutes=9999, replace=False)


@pytest.fixture
def pillar(opts):
    """The external pillar as a master loads it."""
    path = Path(__file__).resolve().parents[3] / "_pillar/virtkey.py"
    spec = importlib.util.spec_from_file_location("virtkey_pillar", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.__opts__ = opts
    return module.ext_pillar


def test_the_pillar_answers_in_one_line_and_logs_what_it_refuses(opts, pillar, token, caplog):
    given = token()

    assert pillar("hyper1", {}) == {}
    for words, why in (
        (("hyper2", {}, "web1", PUBLIC, given), "another host may"),
        (("hyper1", {}, "web1", PUBLIC), "wrong token"),  # the call of Salt 3006
        (("hyper1", {}, "web9", PUBLIC, given), "is not authorized"),
    ):
        answer = pillar(*words)["virtkey"]
        assert why in answer["error"] and "\n" not in answer["error"]
        assert answer["error"] in caplog.text
    assert pillar("hyper1", {}, "web1", PUBLIC, given) == {"virtkey": {"web1": True}}
    assert "has used its" in pillar("hyper1", {}, "web1", PUBLIC, given)["virtkey"]["error"]
    assert given not in caplog.text


def test_the_pillar_says_whether_a_vm_may_have_a_name(opts, pillar, token, caplog):
    given = token()

    assert pillar("hyper1", {}, "web1") == {"virtkey": {"reserved": None}}
    for name, why in (("hyper9", "virt:hypervisors matches it"), ("../a", "cannot name a VM")):
        assert why in pillar("hyper1", {}, name)["virtkey"]["reserved"]
    # A guest learns neither who is a hypervisor nor by which globs.
    assert pillar("web7", {}, "hyper1") == pillar("web7", {}, "web1")
    assert pillar("web7", {}, "hyper9") == {"virtkey": {"reserved": None}}
    opts["virt"]["hypervisors"] = "G@a:b"
    assert "option virt:hypervisors" in pillar("hyper1", {}, "web1")["virtkey"]["reserved"]

    opts["virt"]["hypervisors"] = "hyper*"
    assert pillar("hyper1", {}, "web1", PUBLIC, given) == {"virtkey": {"web1": True}}


def test_what_a_guest_asks_for_does_not_fill_the_masters_log(pillar, caplog):
    for name in (["x" * 10**6], {"x": "y" * 10**6}, "z" * 10**6):
        assert len(pillar("web7", {}, name)["virtkey"]["reserved"]) < 600

    assert 0 < len(caplog.text) < 3000


def test_no_key_is_taken_by_a_master_that_cannot_tell_who_asks(pillar, token, monkeypatch):
    given = token()
    monkeypatch.setattr(salt.version, "__version__", "3006.11")

    told = pillar("hyper1", {}, "web1", PUBLIC, given)

    assert "Salt 3006.11 on this master gives any minion" in told["virtkey"]["error"]


def test_nothing_is_sealed_for_a_key_that_nobody_has_accepted(opts):
    waiting = Path(opts["pki_dir"]) / "minions_pre/hyper9"
    waiting.write_text(keypairs.named("hyper1")[0])

    with pytest.raises(MasterError, match="the master has no accepted key of hyper9"):
        minionkeys.seal_for(opts, "hyper9", "secret")


def test_what_is_interrupted_before_its_host_has_heard_of_it_is_taken_back(
    opts, token, monkeypatch
):
    def cut(*_words, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(authorization, "act", cut)
    with pytest.raises(KeyboardInterrupt):
        token()

    assert authorization.list_unused(opts) == {}


def test_a_damaged_authorization_lets_no_host_submit_a_key_and_is_revoked(opts, token):
    given = token()
    path = authorization._file(opts, "web1").path
    path.write_text("{")

    with pytest.raises(MasterError, match=f"^{path} cannot be read .*virt.unauthorize web1, then"):
        submit(opts, given)
    authorization.revoke(Cloud.of(opts), "web1")
    assert not path.exists()
