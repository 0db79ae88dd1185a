"""The state virt.keys: what is due, what is laid down, and that no answer is never in order."""

import grp
import os
import stat
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from saltvirt.ops import certificates, keys
from saltvirt.pki import ca
from test_pki import GRAINS, ask, place

__all__ = ["place"]


@pytest.fixture
def host(place, tmp_path):
    """A host whose certificates are in order."""
    work = keys.Work(basepath=str(tmp_path / "pki"), host="hyper1", ask=lambda wanted: {
        "libvirt_pki": ask(place, wanted=wanted, now=datetime.now(timezone.utc))})  # fmt: skip
    functions = {"cmd.has_exec": lambda _name: False}
    changes, _comment = work.run(functions)
    assert set(changes) >= set(certificates.DEFAULT_PURPOSES)
    return work, functions


def test_the_second_run_changes_nothing_and_test_says_so(host):
    work, functions = host

    assert work.run(functions) == ({}, "all keys are in order")
    assert work.plan() == ({}, "all keys are in order")


DAMAGE = {
    "key lost": lambda p: p.key.unlink(),
    "certificate lost": lambda p: p.certificate.unlink(),
    "key swapped": lambda p: p.key.write_bytes(ca.key_pem(ca.new_key())),
    "key cut off": lambda p: p.key.write_bytes(p.key.read_bytes()[:50]),
    "key open to others": lambda p: p.key.chmod(0o644),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_was_tampered_with_is_made_anew(host, damage):
    work, functions = host
    place = certificates.places(work.basepath)["libvirt-server"]
    damage(place)

    planned, _comment = work.plan()
    changes, _comment = work.run(functions)

    assert set(planned) == set(changes) == {"libvirt-server"}
    assert stat.S_IMODE(place.key.stat().st_mode) == 0o600
    assert work.run(functions) == ({}, "all keys are in order")


def test_renewal_begins_when_a_third_of_the_life_is_left(host, place):
    work, _functions = host
    info = ask(place, wanted={}, now=datetime.now(timezone.utc))
    where = certificates.places(work.basepath)["libvirt-server"]
    now = datetime.now(timezone.utc)

    assert certificates.due(where, info, now + timedelta(days=59)) is None
    assert "a third of its life" in certificates.due(where, info, now + timedelta(days=61))


def test_a_new_address_or_a_revocation_makes_a_certificate_due(host, place):
    work, _functions = host
    where = certificates.places(work.basepath)["libvirt-server"]
    now = datetime.now(timezone.utc)
    moved = ask(place, wanted={}, now=now, grains={**GRAINS, "ipv4": ["192.0.2.99"]})
    certificate = x509.load_pem_x509_certificate(where.certificate.read_bytes())

    place.revoke([f"{certificate.serial_number:032x}"], now)

    assert certificates.due(where, moved, now) == "the host's names or addresses have changed"
    assert certificates.due(where, ask(place, wanted={}, now=now), now) == "it was revoked"


def renewed(work, functions):
    """Renew everything by force; return the keys and certificates before and after."""
    where = certificates.places(work.basepath)["libvirt-client"]
    before = where.key.read_bytes(), where.certificate.read_bytes()
    replace(work, is_forced=True).run(functions)
    return before, (where.key.read_bytes(), where.certificate.read_bytes())


def test_a_renewal_and_a_new_ca_keep_the_key_so_that_every_reader_finds_a_pair(host, place):
    work, functions = host
    before, after = renewed(work, functions)
    assert after[0] == before[0] and after[1] != before[1]

    now = datetime.now(timezone.utc)
    place.begin_rotation(now)
    work.run(functions)
    place.promote(now)
    changes, _comment = work.run(functions)

    assert changes["libvirt-client"] == "it is not signed by the master's CA"
    where = certificates.places(work.basepath)["libvirt-client"]
    assert where.key.read_bytes() == before[0] and where.certificate.read_bytes() != after[1]


def revoke(where, place):
    """Revoke the certificate."""
    serial = x509.load_pem_x509_certificate(where.certificate.read_bytes()).serial_number
    place.revoke([f"{serial:032x}"], datetime.now(timezone.utc))


def lay_down(where, place, minion_id, kind):
    """Have a key of this kind, certified for this minion, in place of the host's own."""
    key, wanted = certificates.request(minion_id, ca.new_key(kind))
    answer = ask(place, minion_id, wanted={"libvirt-client": wanted},
                 now=datetime.now(timezone.utc))  # fmt: skip
    certificates.lay_down(where, key, answer["certificates"]["libvirt-client"])


DISTRUST = {
    "revoked": revoke,
    "open to others": lambda where, _place: where.key.chmod(0o644),
    "certified with another name": lambda where, place: lay_down(where, place, "other", "ecdsa"),
    "not of this project": lambda where, place: lay_down(where, place, "hyper1", "rsa"),
}


@pytest.mark.parametrize("distrust", DISTRUST.values(), ids=DISTRUST)
def test_a_key_that_cannot_be_trusted_is_not_kept(host, place, distrust):
    where = certificates.places(host[0].basepath)["libvirt-client"]
    distrust(where, place)

    before, after = renewed(*host)

    assert after[0] != before[0] and after[1] != before[1]


@pytest.mark.parametrize(
    ("answered", "why"),
    [({}, "no external pillar"), (None, "no external pillar"),
     ({"libvirt_pki": {"error": "not you"}}, "the master refused: not you")],
)  # fmt: skip
def test_no_answer_is_never_called_in_order(tmp_path, answered, why):
    work = keys.Work(basepath=str(tmp_path), host="hyper1", ask=lambda _wanted: answered)

    with pytest.raises(keys.KeysRefused, match=why):
        work.run({})
    with pytest.raises(keys.KeysRefused, match=why):
        work.plan()
    assert os.listdir(tmp_path) == []


def test_the_group_of_qemu_can_enter_the_folder_of_its_key(host, place):
    work, _functions = host
    where = replace(certificates.places(work.basepath)["qemu-server"], group="daemon", mode=0o640)
    info = ask(place, wanted={}, now=datetime.now(timezone.utc))
    where.key.parent.chmod(0o700)
    os.chown(where.key.parent, -1, 0)
    why = certificates.due(where, info, datetime.now(timezone.utc))
    key, pem = where.key.read_bytes(), where.certificate.read_text()

    certificates.lay_down(where, serialization.load_pem_private_key(key, password=None), pem)

    assert why == f"{where.key.parent} cannot be entered by QEMU's group daemon"
    assert certificates.due(where, info, datetime.now(timezone.utc)) is None
    found = where.key.parent.stat()
    assert (stat.S_IMODE(found.st_mode), grp.getgrgid(found.st_gid).gr_name) == (0o750, "daemon")
