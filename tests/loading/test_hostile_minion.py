"""What root of a guest can have a real master do by its methods: nothing keeps a host in."""

import json

import pytest
from hostilekit import GUEST, Master
from loadkit import SALT_LINES

# Only this line has a method that stores files by names that a minion chooses.
PLANTING = "3008"


@pytest.fixture(scope="module", params=SALT_LINES)
def master(request, base, place, factories):
    """A master of either Salt that runs, with certificates of two hosts."""
    made = Master(place(base(request.param)), factories(request.param))
    made.line = request.param
    with made.daemon.started():
        for host in ("hyper1", "hyper2"):
            assert "BEGIN CERTIFICATE" in made.certify(host)
        yield made


def plant(master, path):
    """Have the master store a file, as root of a guest does."""
    resources = {path: {"a": 1}}
    load = {"cmd": "_register_resources", "resources": {}, "resource_grains": resources}
    master.call(GUEST, load)


def listed(master):
    """Return ``{host: states of its certificates}``."""
    rows = json.loads(master.run("virt_pki.list", "--out=json").stdout)
    return {row["host"]: row["state"] for row in rows}


@pytest.mark.nightly
def test_planted_files_keep_no_host_from_being_shut_out(master):
    if master.line != PLANTING:
        pytest.skip("this Salt stores no files by a minion's word")
    (master.pki / "libvirt/revoked").mkdir()
    (master.place.folder / "cache/salt-virt-keys").mkdir()
    for path in (
        "../../pki/libvirt/issued/x",
        "../../pki/libvirt/revoked/x",
        "../../pki/libvirt/enrolled/x",
        "../salt-virt-keys/x",
    ):
        plant(master, path)
    planted = [
        *(master.pki / "libvirt" / folder / "x.p" for folder in ("issued", "revoked", "enrolled")),
        master.place.folder / "cache/salt-virt-keys/x.p",
    ]
    assert all(path.exists() for path in planted)
    # As a day later: the next question forgets what is over.
    (master.pki / "libvirt/pruned").write_text("2026-01-01T00:00:00+00:00")
    assert "BEGIN CERTIFICATE" in master.certify("hyper1")

    master.run("virt.disallow", "hyper2")

    assert "was shut out" in master.certify("hyper2")
    assert listed(master) == {"hyper1": "good", "hyper2": "revoked"}
    hosts = json.loads((master.pki / "libvirt/hypervisors.json").read_text())
    assert hosts["disallowed"] == ["hyper2"]
    audited = master.run("virt.audit").stdout
    assert all(str(path) in audited for path in planted)
    assert "Traceback" not in master.run("virt.doctor").stdout
    assert master.run("virt.allow").returncode == 0


def test_a_waiting_key_of_bytes_is_shown_as_none(master):
    key = {"cmd": "_auth", "nonce": "0" * 32, "token": b"x", "pub": b"\xff\xfe\x00bad"}
    # A worker of 3006 stores no such key, and never answers again.
    if master.line == PLANTING:
        master.call(GUEST, {**key, "enc_algo": "OAEP-SHA1", "sig_algo": "PKCS1v15-SHA1"})
    (master.pki / "minions_pre").mkdir(exist_ok=True)
    (master.pki / "minions_pre/badpub1").write_bytes(b"\xff\xfe\x00bad")

    shown = json.loads(master.run("virt.allow", "--out=json").stdout)

    assert shown["waiting"]["badpub1"] == "not a public key"


@pytest.mark.parametrize("pillar", ["virtkey", "libvirt"])
def test_a_question_with_a_long_word_leaves_a_short_line_in_the_log(master, pillar):
    before = master.log.stat().st_size if master.log.exists() else 0

    answer = master.ask_pillar(GUEST, pillar, {"A" * 300_000: 1})

    assert "error" in answer and len(answer) < 10_000
    assert master.log.stat().st_size - before < 10_000
