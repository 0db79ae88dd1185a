"""A VM's key is accepted only from the authorized host, once, and in time."""

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
    """A function that authorizes hyper1 for web1, and returns its unsealed token."""
    sent = []
    # tests/cloud/test_virtkey.py checks how the host keeps its token.
    monkeypatch.setattr(
        authorization, "act", lambda *words, **options: sent.append((words[1], options["kwarg"]))
    )
    make_known(opts)

    def grant(name="web1", minutes=10, replace=False):
        authorization.grant(Cloud.of(opts), name, "hyper1", minutes=minutes, replace=replace)
        host, kwarg = sent[-1]
        assert host == "hyper1" and HOST[1] not in kwarg["token"]
        return keypair.unseal(kwarg["token"], HOST[1])

    grant.sent = sent
    return grant


def make_known(opts):
    """Make hyper1 and hyper2 known as hypervisors."""
    for host in ("hyper1", "hyper2"):
        minionkeys.accept(opts, host, HOST[0])
    opts["virt"] = {"hypervisors": ["hyper*"]}


def silent(*_words, **_options):
    """Stand for a host that does not answer."""
    raise HostUnresponsive("hyper1 does not answer")


def submit(opts, submitted_token, name="web1", host="hyper1", key=PUBLIC, now=None):
    """Submit a key as the external pillar does."""
    authorization.accept_key(opts, host, name, key, submitted_token, now=now or time.time())


def test_the_host_that_is_authorized_has_its_key_accepted_once(opts, token):
    submitted_token = token()

    submit(opts, submitted_token)

    assert compat.KeyStore(opts).read("web1") == ("accepted", PUBLIC)
    with pytest.raises(MasterError, match="hyper1 has no authorization .* or has used it already"):
        submit(opts, submitted_token)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"host": "hyper2"}, "hyper2 may not submit a key of 'web1': another host may"),
        ({"name": "web2"}, "hyper1 has no authorization to submit a key of 'web2'"),
        ({"name": "../web1"}, "cannot name a VM"),
        ({"now": 1e12}, "too late"),
        ({"key": "no key"}, "not a public key"),
    ],
)
def test_another_submission_is_refused(opts, token, fields, reason):
    submitted_token = token()

    with pytest.raises(VirtError, match=reason):
        submit(opts, submitted_token, **fields)

    assert compat.KeyStore(opts).read("web1") == (None, None)


@pytest.mark.parametrize("wrong_token", [None, "", "x" * 43, 7])
def test_a_wrong_token_is_refused_and_the_right_one_still_works(opts, token, wrong_token):
    submitted_token = token()

    with pytest.raises(MasterError, match="wrong token"):
        submit(opts, wrong_token)
    submit(opts, submitted_token)


def test_another_accepted_key_is_replaced_only_on_request(opts, token):
    other_key = keypair.generate()[0]
    minionkeys.accept(opts, "web1", other_key)
    with pytest.raises(NameTaken, match="'web1' is accepted"):
        token()

    submit(opts, token(replace=True))

    assert compat.KeyStore(opts).read("web1") == ("accepted", PUBLIC)


def test_a_key_accepted_meanwhile_is_not_replaced(opts, token):
    submitted_token, other_key = token(), keypair.generate()[0]
    minionkeys.accept(opts, "web1", other_key)

    with pytest.raises(NameTaken):
        submit(opts, submitted_token)

    assert compat.KeyStore(opts).read("web1") == ("accepted", other_key)


def test_an_authorization_can_be_revoked(opts, token):
    submitted_token = token()
    authorization.revoke(Cloud.of(opts), "web1")

    assert token.sent[-1] == ("hyper1", {"name": "web1", "token": None})
    with pytest.raises(MasterError, match="has no authorization"):
        submit(opts, submitted_token)
    with pytest.raises(MasterError, match="no host is authorized"):
        authorization.revoke(Cloud.of(opts), "web1")


def test_an_authorization_of_a_silent_host_is_revoked_too(opts, token, monkeypatch, caplog):
    submitted_token = token()
    monkeypatch.setattr(authorization, "act", silent)

    authorization.revoke(Cloud.of(opts), "web1")

    assert "hyper1 keeps a token for web1 that is no longer valid" in caplog.text
    with pytest.raises(MasterError, match="has no authorization"):
        submit(opts, submitted_token)


def test_an_authorization_is_removed_with_its_hosts_vm_and_stays_for_another_host(opts, token):
    submitted_token = token()

    authorization.forget(opts, "web1", "hyper2")
    submit(opts, submitted_token)
    submitted_token = token(replace=True)
    authorization.forget(opts, "web1", "hyper1")
    authorization.forget(opts, "web1", "hyper1")

    with pytest.raises(MasterError, match="has no authorization"):
        submit(opts, submitted_token)


@pytest.mark.parametrize("name", ["hyper9", "HYPER9", "hyper1"])
@pytest.mark.parametrize("replace", [False, True])
def test_the_name_of_a_hypervisor_is_never_authorized(opts, token, name, replace):
    with pytest.raises(BadArgument, match=f"a VM cannot be called '{name}'"):
        token(name, replace=replace)

    assert token.sent == []


def test_a_name_that_has_become_a_hypervisors_is_no_longer_accepted(opts, token):
    submitted_token = token()
    opts["virt"] = {"hypervisors": ["hyper1", "web*"]}

    with pytest.raises(BadArgument, match="a VM cannot be called 'web1'"):
        submit(opts, submitted_token)

    assert compat.KeyStore(opts).read("web1") == (None, None)


def test_only_a_hypervisor_is_authorized_and_only_as_long_as_it_is_one(opts, token):
    minionkeys.accept(opts, "guest", PUBLIC)
    with pytest.raises(BadArgument, match="'guest' is not a hypervisor here"):
        authorization.grant(Cloud.of(opts), "web1", "guest", minutes=10, replace=False)
    with pytest.raises(BadArgument, match="host: 1001 is not text; quote it"):
        authorization.grant(Cloud.of(opts), "web1", 1001, minutes=10, replace=False)
    submitted_token = token()
    membership.disallow(opts, ["hyper1"])

    with pytest.raises(MasterError, match="hyper1 was shut out"):
        submit(opts, submitted_token)

    assert compat.KeyStore(opts).read("web1") == (None, None)
    membership.allow(opts, ["hyper1"])
    submit(opts, submitted_token)


def test_the_master_keeps_no_token_and_logs_none(opts, token, caplog):
    caplog.set_level(logging.DEBUG)
    submitted_token = token()
    (file,) = (authorization._file(opts, "web1").path.parent).iterdir()

    assert submitted_token not in file.read_text() and file.stat().st_mode & 0o077 == 0
    submit(opts, submitted_token)
    assert submitted_token not in caplog.text


def test_a_host_that_cannot_be_reached_gets_no_authorization(opts, monkeypatch):
    monkeypatch.setattr(authorization, "act", silent)
    make_known(opts)

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
    submitted_token = token()

    assert pillar("hyper1", {}) == {}
    for words, reason in (
        (("hyper2", {}, "web1", PUBLIC, submitted_token), "another host may"),
        (("hyper1", {}, "web1", PUBLIC), "wrong token"),  # the call of Salt 3006
        (("hyper1", {}, "web9", PUBLIC, submitted_token), "has no authorization"),
    ):
        answer = pillar(*words)["virtkey"]
        assert reason in answer["error"] and "\n" not in answer["error"]
        assert answer["error"] in caplog.text
    assert pillar("hyper1", {}, "web1", PUBLIC, submitted_token) == {"virtkey": {"web1": True}}
    assert (
        "used it already"
        in pillar("hyper1", {}, "web1", PUBLIC, submitted_token)["virtkey"]["error"]
    )
    assert submitted_token not in caplog.text


def test_the_pillar_reports_whether_a_vm_may_have_a_name(opts, pillar, token, caplog):
    submitted_token = token()

    assert pillar("hyper1", {}, "web1") == {"virtkey": {"reserved": None}}
    for name, reason in (("hyper9", "virt:hypervisors matches it"), ("../a", "cannot name a VM")):
        assert reason in pillar("hyper1", {}, name)["virtkey"]["reserved"]
    # A guest learns neither which minions are hypervisors nor by which globs.
    assert pillar("web7", {}, "hyper1") == pillar("web7", {}, "web1")
    assert pillar("web7", {}, "hyper9") == {"virtkey": {"reserved": None}}
    opts["virt"]["hypervisors"] = "G@a:b"
    assert "option virt:hypervisors" in pillar("hyper1", {}, "web1")["virtkey"]["reserved"]

    opts["virt"]["hypervisors"] = "hyper*"
    assert pillar("hyper1", {}, "web1", PUBLIC, submitted_token) == {"virtkey": {"web1": True}}


def test_a_guests_request_does_not_fill_the_masters_log(pillar, caplog):
    for name in (["x" * 10**6], {"x": "y" * 10**6}, "z" * 10**6):
        assert len(pillar("web7", {}, name)["virtkey"]["reserved"]) < 600

    assert 0 < len(caplog.text) < 3000


def test_a_master_that_cannot_identify_the_minion_takes_no_key(pillar, token, monkeypatch):
    submitted_token = token()
    monkeypatch.setattr(salt.version, "__version__", "3006.11")

    answer = pillar("hyper1", {}, "web1", PUBLIC, submitted_token)

    assert "Salt 3006.11 on this master gives any minion" in answer["virtkey"]["error"]


def test_nothing_is_sealed_for_a_key_that_is_not_accepted(opts):
    waiting_key = Path(opts["pki_dir"]) / "minions_pre/hyper9"
    waiting_key.write_text(keypairs.named("hyper1")[0])

    with pytest.raises(MasterError, match="the master has no accepted key of hyper9"):
        minionkeys.seal_for(opts, "hyper9", "secret")


def test_an_authorization_that_is_interrupted_before_its_host_has_it_is_removed(
    opts, token, monkeypatch
):
    def interrupt(*_words, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(authorization, "act", interrupt)
    with pytest.raises(KeyboardInterrupt):
        token()

    assert authorization.list_unused(opts) == {}


def test_a_damaged_authorization_lets_no_host_submit_a_key_and_is_revoked(opts, token):
    submitted_token = token()
    path = authorization._file(opts, "web1").path
    path.write_text("{")

    with pytest.raises(MasterError, match=f"^{path} cannot be read .*virt.unauthorize web1, then"):
        submit(opts, submitted_token)
    authorization.revoke(Cloud.of(opts), "web1")
    assert not path.exists()
