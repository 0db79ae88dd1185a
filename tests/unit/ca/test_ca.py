"""The CA signs sound certificates, refuses wrong requests, and survives a crash."""

import multiprocessing
import os
import stat
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
from askedca import NOW, ask, parsed, request, subjects
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt.ca import backup, ca, policy, store
from saltvirt.ca.authorities import use_of
from saltvirt.ca.ca import PkiError
from saltvirt.certificates.master import certificates
from sizes import sizes


def test_openssl_verifies_signed_certificates(place, tmp_path):
    answer = ask(place, wanted={p: request() for p in policy.PURPOSES})

    for purpose, role in policy.PURPOSES.items():
        trust = answer.trust[use_of(purpose)]
        (tmp_path / "ca.pem").write_text(trust.ca + trust.crl)
        (tmp_path / "leaf.pem").write_text(answer.certificates[purpose])
        at = str(int(NOW.timestamp()) + 60)
        verify = [
            "openssl",
            "verify",
            "-crl_check",
            "-attime",
            at,
            "-purpose",
            f"ssl{role}",
            "-CAfile",
            tmp_path / "ca.pem",
            tmp_path / "leaf.pem",
        ]
        completed = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stdout + completed.stderr


def test_a_leaf_has_the_right_uses_and_cannot_sign(place):
    leaf = parsed(ask(place))
    extensions = {e.oid._name: e.value for e in leaf.extensions}

    assert extensions["basicConstraints"].ca is False
    assert list(extensions["extendedKeyUsage"]) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert extensions["keyUsage"].digital_signature and not extensions["keyUsage"].key_cert_sign
    assert leaf.serial_number.bit_length() == 128
    assert leaf.not_valid_after_utc - NOW == timedelta(days=90)


def test_the_ca_signs_leaves_only_for_ten_years(place):
    authority = place.authority(NOW)
    constraints = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints)

    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert authority.certificate.not_valid_after_utc - NOW == timedelta(days=3650)
    assert isinstance(authority.key.curve, ec.SECP256R1)
    assert ca.create("old", NOW, kind="rsa").key.key_size == 3072


def test_no_leaf_outlives_its_ca(place):
    late_time = NOW + timedelta(days=3649)
    place.authority(NOW)

    assert parsed(ask(place, now=late_time)).not_valid_after_utc == NOW + timedelta(days=3650)


def test_a_ca_that_has_expired_signs_nothing(place):
    place.authority(NOW)

    with pytest.raises(PkiError, match="has expired at 20.*move the master's folder .* away and s"):
        ask(place, now=NOW + timedelta(days=3651))


def test_a_certificate_has_all_names_and_addresses_of_its_host(place):
    leaf = parsed(ask(place, options={"names": {"hyper1": ["virt.example.org", "198.51.100.7"]}}))

    assert subjects(leaf) == (
        ["hyper1", "hyper1.example.org", "virt.example.org"],
        ["192.0.2.1", "2001:db8::1", "198.51.100.7"],
    )


def test_nothing_that_a_request_asks_for_is_granted(place):
    evil_request = request(
        name="hyper2",
        extensions=[
            x509.SubjectAlternativeName([x509.DNSName("hyper2")]),
            x509.BasicConstraints(ca=True, path_length=None),
        ],
    )

    leaf = parsed(ask(place, wanted={"libvirt-server": evil_request}))

    assert leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "hyper1"
    assert "hyper2" not in subjects(leaf)[0]
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


def test_a_host_gets_no_names_of_another_host(place):
    other_hosts = {"hyper2": {"fqdn": "hyper2.example.org", "ipv4": ["192.0.2.2"]}}
    lies = {"fqdn": "hyper2.example.org", "host": "hyper2", "ipv4": ["192.0.2.2", "192.0.2.1"]}

    leaf = parsed(ask(place, grains=lies, others=other_hosts))

    assert subjects(leaf) == (["hyper1"], ["192.0.2.1"])


@pytest.mark.parametrize("minion_id", ["a/b", "*.example.org", "", "x" * 300, "-a", "a b", "é"])
def test_an_id_that_is_no_host_name_gets_no_certificate(place, minion_id):
    with pytest.raises(PkiError, match="is not a host name"):
        ask(place, minion_id)


WEAK = {
    "short RSA": lambda: rsa.generate_private_key(public_exponent=65537, key_size=1024),
    "odd curve": lambda: ec.generate_private_key(ec.SECP521R1()),
}


@pytest.mark.parametrize("make", WEAK.values(), ids=WEAK)
def test_a_weak_key_is_refused(place, make):
    with pytest.raises(PkiError, match="the request's"):
        ask(place, wanted={"libvirt-server": request(make())})


def test_another_kind_of_key_is_refused():
    key = ed25519.Ed25519PrivateKey.generate()
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = builder.sign(key, None).public_bytes(serialization.Encoding.PEM).decode()

    with pytest.raises(PkiError, match="neither RSA nor ECDSA"):
        ca.read_request(pem)


SHAPES = [
    {"root": "x"},
    [],
    "libvirt-server",
    {1: 2},
    {"libvirt-server": None},
    {"libvirt-server": "x" * 20000},
]


@pytest.mark.parametrize("requests", SHAPES)
def test_a_question_of_the_wrong_shape_is_refused(place, requests):
    with pytest.raises(PkiError):
        ask(place, wanted=requests)


GOOD = request()


@sizes(quick=250, full=1000)
def test_no_mutated_request_is_signed_or_crashes(size):
    original = ca.read_request(GOOD)
    plain = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    places = st.tuples(st.integers(28, len(GOOD) - 28), st.integers(0, 127))

    @settings(max_examples=size, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changes=st.lists(places, min_size=1, max_size=4))
    def looked_at(changes):
        text = bytearray(GOOD.encode())
        for at, new in changes:
            text[at] = new
        try:
            key = ca.read_request(text.decode())
        except PkiError as refused:
            assert "\n" not in str(refused)
            return
        assert key.public_bytes(*plain) == original.public_bytes(*plain)

    looked_at()


def test_the_ca_is_made_once_and_kept_to_root(place):
    first = place.authority(NOW).certificate

    assert place.authority(NOW).certificate == first
    assert stat.S_IMODE((place.folder / "cakey.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700


@pytest.mark.slow
def test_an_older_releases_ca_is_adopted(place, tmp_path):
    place.folder.mkdir()
    for argv in (
        ["genrsa", "-out", "cakey.pem", "2048"],
        ["req", "-x509", "-new", "-key", "cakey.pem", "-subj", "/CN=salt", "-out", "cacert.pem"],
    ):
        subprocess.run(["openssl", *argv], check=True, cwd=place.folder, capture_output=True)
    pem_before = (place.folder / "cacert.pem").read_bytes()

    answer = ask(place, now=datetime.now(timezone.utc))

    assert answer.trust["libvirt"].ca.encode() == pem_before
    parsed(answer).verify_directly_issued_by(x509.load_pem_x509_certificate(pem_before))


def test_a_key_of_another_ca_is_refused(place):
    place.authority(NOW)
    store.write(place.folder / "cakey.pem", ca.key_pem(ca.new_key()))

    with pytest.raises(PkiError, match="not the key of its certificate"):
        ask(place)


def test_a_revoked_certificate_is_on_the_list_and_stays_there(place):
    leaf = parsed(ask(place))
    serial = f"{leaf.serial_number:032x}"

    place.revoke([serial], NOW)
    place.revoke([serial], NOW + timedelta(days=1))

    crl = x509.load_pem_x509_crl(place.revocations(NOW).encode())
    assert crl.get_revoked_certificate_by_serial_number(leaf.serial_number)
    assert crl.is_signature_valid(place.authority(NOW).key.public_key())
    assert place.revoked() == {serial}
    assert [entry["host"] for entry in place.issued()] == ["hyper1"]


def test_an_empty_list_is_valid(place):
    empty = x509.load_pem_x509_crl(store.build_crl(place.authority(NOW), {}, 1, NOW))

    assert len(empty) == 0


def ask_many(folder, first):
    """Ask for some hosts' certificates in a process of its own."""
    place = store.Store(folder)
    for number in range(first, first + 25):
        ask(place, f"host{number}")


@pytest.mark.slow
def test_two_hundred_hosts_at_once_get_sound_certificates(place):
    fork = multiprocessing.get_context("fork")
    asking = [fork.Process(target=ask_many, args=(place.folder, n * 25)) for n in range(8)]
    for process in asking:
        process.start()
    for process in asking:
        process.join()

    entries = place.issued()
    assert [p.exitcode for p in asking] == [0] * 8
    assert len({e["serial"] for e in entries}) == len({e["host"] for e in entries}) == 200
    assert not list(place.folder.rglob("*.part"))


def test_a_crash_between_the_ca_files_leaves_a_ca_that_can_be_made(place):
    place.folder.mkdir()
    store.write(place.folder / "cakey.pem", ca.key_pem(ca.new_key()))
    (place.folder / f".cacert.pem.{os.getpid()}.part").write_text("half")

    assert parsed(ask(place))


@pytest.mark.slow
def test_a_backup_restores_all_files_but_only_with_its_passphrase(place, tmp_path):
    ask(place)
    text = backup.pack(backup.read_all(place.folder), "correct horse battery")
    new_store = store.Store(tmp_path / "again")

    with pytest.raises(PkiError, match="passphrase is wrong"):
        backup.unpack(text, "wrong horse battery")
    unpacked = backup.unpack(text, "correct horse battery")
    backup.restore(new_store.folder, unpacked)

    assert "PRIVATE" not in text
    assert backup.read_all(new_store.folder) == backup.read_all(place.folder)
    assert stat.S_IMODE((new_store.folder / "cakey.pem").stat().st_mode) == 0o600
    with pytest.raises(PkiError, match="there is a CA"):
        backup.restore(new_store.folder, unpacked)


@pytest.mark.parametrize("text", ["", "nonsense", "salt-virt-ca-backup:1\na\nb\nc\n"])
def test_text_that_is_no_backup_is_refused(text):
    with pytest.raises(PkiError):
        backup.unpack(text, "correct horse battery")


def test_a_short_passphrase_is_refused(place):
    with pytest.raises(PkiError, match="at least 12"):
        backup.pack({}, "short")


def test_a_backup_cannot_write_outside_the_ca(place, tmp_path):
    ask(place)
    files = {**backup.read_all(place.folder), "../evil": b"x"}

    with pytest.raises(PkiError, match="outside the CA"):
        backup.restore(tmp_path / "new", files)

    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "new" / "cacert.pem").exists()


def test_the_list_shows_the_state_of_every_certificate(place):
    first = parsed(ask(place))
    second = parsed(ask(place, now=NOW + timedelta(days=1)))
    third_certificate = parsed(ask(place, "hyper2", now=NOW))
    place.revoke([f"{third_certificate.serial_number:032x}"], NOW)

    rows = {int(r["serial"], 16): r for r in certificates.list_certificates(place, NOW)}
    late_rows = certificates.list_certificates(place, NOW + timedelta(days=90, hours=1))

    assert rows[first.serial_number]["state"] == "replaced"
    assert (rows[second.serial_number]["state"], rows[second.serial_number]["days_left"]) == (
        "good",
        91,
    )
    assert rows[third_certificate.serial_number]["state"] == "revoked"
    assert [row["state"] for row in late_rows] == ["expired", "good", "revoked"]


def trusted_certificates(answer):
    """Return the certificates that an answer tells a host to trust."""
    return x509.load_pem_x509_certificates(answer.trust["libvirt"].ca.encode())


def test_a_rotation_leaves_every_two_hosts_a_common_trust_at_each_step(place):
    old = parsed(ask(place))
    place.begin_rotation(NOW)
    place.begin_rotation(NOW)
    both_trusted = ask(place, wanted={})
    assert [old.issuer == c.subject for c in trusted_certificates(both_trusted)] == [True, False]

    place.promote(NOW)
    place.promote(NOW)
    renewed = ask(place)
    new = parsed(renewed)
    assert {c.subject for c in trusted_certificates(renewed)} == {
        c.subject for c in trusted_certificates(both_trusted)
    }
    assert new.issuer == trusted_certificates(renewed)[0].subject != old.issuer
    new.verify_directly_issued_by(trusted_certificates(both_trusted)[1])

    place.finish_rotation(NOW)
    assert [c.subject for c in trusted_certificates(ask(place, wanted={}))] == [new.issuer]


def test_a_revoked_certificate_stays_revoked_through_a_rotation(place):
    certificate = parsed(ask(place))
    place.revoke([f"{certificate.serial_number:032x}"], NOW)
    place.begin_rotation(NOW)
    place.promote(NOW)

    text = place.revocations(NOW)
    pieces = [p + "-----END X509 CRL-----" for p in text.split("-----END X509 CRL-----")[:-1]]
    lists = [x509.load_pem_x509_crl(piece.encode()) for piece in pieces]

    assert len({crl.issuer for crl in lists}) == 2
    by_old = next(crl for crl in lists if crl.issuer == certificate.issuer)
    assert by_old.get_revoked_certificate_by_serial_number(certificate.serial_number)


def test_a_rotation_killed_while_it_replaced_the_ca_goes_on(place):
    place.begin_rotation(NOW)
    (place.folder / "previous").mkdir()
    store._write_authority(place.folder / "previous", place.authority(NOW))
    next_key = (place.folder / "next" / "cakey.pem").read_bytes()
    (place.folder / "cakey.pem").write_bytes(next_key)
    with pytest.raises(PkiError, match="not the key"):
        place.authority(NOW)

    place.promote(NOW)

    assert parsed(ask(place)).issuer == trusted_certificates(ask(place, wanted={}))[0].subject
