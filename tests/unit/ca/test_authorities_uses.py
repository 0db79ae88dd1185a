"""Each use has a CA of its own: a certificate of one use is not accepted for another."""

from datetime import timedelta

import pytest
from askedca import NOW, ask, parsed, request
from cryptography import x509
from saltvirt.ca import answer, ca, policy
from saltvirt.ca.authorities import USES, Authorities, use_of
from saltvirt.core import wire

QEMU = {"qemu-server": request(), "qemu-client": request()}
HOSTS = {"hyper1": {}, "hyper2": {}}


def vouches(trust, leaf):
    """Return whether a CA that a use trusts has signed a certificate and not revoked it."""
    authorities = x509.load_pem_x509_certificates(trust.ca.encode())
    pems = [part + "-----END X509 CRL-----" for part in trust.crl.split("-----END X509 CRL-----")]
    for pem in pems[:-1]:
        crl = x509.load_pem_x509_crl(pem.encode())
        if crl.get_revoked_certificate_by_serial_number(leaf.serial_number):
            return False
    for authority in authorities:
        try:
            leaf.verify_directly_issued_by(authority)
        except Exception:  # any failure means that this CA did not sign it
            continue
        return True
    return False


@pytest.mark.parametrize("purpose", policy.PURPOSES)
def test_a_certificate_for_one_use_is_trusted_for_that_use_alone(place, purpose):
    answer = ask(place, wanted={purpose: request()})

    trusted = {use for use in USES if vouches(answer.trust[use], parsed(answer, purpose))}

    assert trusted == {use_of(purpose)}


def test_the_cas_have_different_keys_and_names(place):
    answer = ask(place)

    certificates = [
        x509.load_pem_x509_certificate(trust.ca.encode()) for trust in answer.trust.values()
    ]

    assert len({certificate.subject.rfc4514_string() for certificate in certificates}) == len(USES)
    assert len({ca._public_bytes(certificate.public_key()) for certificate in certificates}) == len(
        USES
    )


def test_hosts_trust_each_other_at_each_step_of_a_rotation_of_all_cas(place):
    first_answer, authorities = (
        ask(place, wanted={p: request() for p in policy.PURPOSES}),
        Authorities(place.folder),
    )
    leaves = {p: parsed(first_answer, p) for p in policy.PURPOSES}
    authorities.begin_rotation(NOW)
    answers = [ask(place, wanted={})]
    authorities.promote(NOW)
    answers.append(ask(place, wanted={p: request() for p in policy.PURPOSES}))
    for purpose, leaf in leaves.items():
        assert all(vouches(answer.trust[use_of(purpose)], leaf) for answer in answers)
        assert all(
            vouches(answer.trust[use_of(purpose)], parsed(answers[1], purpose))
            for answer in answers
        )
    authorities.finish_rotation(NOW)

    last_answer = ask(place, wanted={})
    for purpose, leaf in leaves.items():
        assert not vouches(last_answer.trust[use_of(purpose)], leaf)
        assert vouches(last_answer.trust[use_of(purpose)], parsed(answers[1], purpose))


def test_a_host_gets_so_many_certificates_in_an_hour_and_no_more(place):
    def asks(host, count, minutes=0):
        for _ in range(count):
            ask(place, host, now=NOW + timedelta(minutes=minutes), options={"requests_per_hour": 3})

    asks("hyper1", 2)
    asks("hyper1", 1, minutes=30)
    with pytest.raises(ca.PkiError, match=r"had certificates 3 times .* it gets more after 01:00"):
        asks("hyper1", 1, minutes=59)
    asks("hyper2", 1, minutes=59)
    ask(place, wanted={}, now=NOW + timedelta(minutes=59), options={"requests_per_hour": 3})
    asks("hyper1", 2, minutes=61)
    with pytest.raises(ca.PkiError, match=r"it gets more after 01:30"):
        asks("hyper1", 1, minutes=62)


def test_the_default_is_60_certificates_an_hour(place):
    for _time in range(60):
        ask(place, "hyper1", wanted=QEMU)

    with pytest.raises(ca.PkiError, match="had certificates 60 times within an hour"):
        ask(place, "hyper1", wanted=QEMU)


def test_only_expired_certificates_are_forgotten(place):
    old, new = parsed(ask(place)), parsed(ask(place, now=NOW + timedelta(days=80)))
    main = Authorities(place.folder)
    main.revoke(main.issued()[:1], NOW)

    ask(place, wanted={}, now=NOW + timedelta(days=92))

    serials = {row["serial"] for row in main.issued()}
    assert f"{new.serial_number:032x}" in serials and f"{old.serial_number:032x}" not in serials
    assert f"{old.serial_number:032x}" not in main.revoked()


CLAIM = {"fqdn": "hyper1.example.org", "host": "hyper1", "ipv4": ["192.0.2.1"]}


def names(answer):
    """Return all names and addresses that an answer certifies for a host."""
    return {*answer.names, *answer.addresses}


def test_a_hypervisor_cannot_take_names_that_another_is_certified_for(place):
    first_names = names(ask(place, "hyper1", grains=CLAIM))
    evil_names = names(ask(place, "evil", grains=CLAIM, others={"hyper1": {}}))
    second_names = names(ask(place, "hyper1", grains=CLAIM, others={"evil": CLAIM}))

    assert second_names == first_names == {"hyper1", "hyper1.example.org", "192.0.2.1"}
    assert evil_names == {"evil"}


def test_an_address_that_two_new_hypervisors_claim_is_certified_for_neither(place):
    answer = names(ask(place, "hyper1", grains=CLAIM, others={"evil": {"ipv4": ["192.0.2.1"]}}))

    assert "192.0.2.1" not in answer
    assert names(ask(place, "evil", grains=CLAIM, others={"hyper1": CLAIM})) == {"evil"}


def test_a_host_is_certified_for_no_name_that_another_may_get(place):
    squatting = {"fqdn": "hyper9.example.org", "host": "hyper9"}

    assert names(ask(place, "hyper3", grains=squatting)) == {"hyper3"}


@pytest.mark.parametrize(
    "grains", [{"ipv4": 5}, {"ipv4": {"a": 1}, "fqdn": ["x"]}, "x", None, {"host": 1}, [1]]
)
def test_no_grains_of_one_host_keep_another_from_its_certificate(place, grains):
    assert "hyper1" in names(ask(place, "hyper1", grains=CLAIM, others={"hyper3": grains}))
    assert names(ask(place, "hyper3", grains=grains)) == {"hyper3"}


def test_a_guest_that_claims_a_hypervisors_names_takes_nothing_away(place):
    # Grains of guests do not reach the CA; their minion ids do.
    answer = ask(place, "hyper1", grains={**CLAIM, "fqdn": "hyper1.web"}, guests=["hyper1.web"])

    assert names(answer) == {"hyper1", "192.0.2.1"}


def test_an_address_that_a_host_no_longer_claims_is_free_for_another(place):
    ask(place, "hyper1", grains=CLAIM)
    ask(place, "hyper1", grains={})

    assert "192.0.2.1" in names(ask(place, "hyper2", grains=CLAIM, others={"hyper1": {}}))


def test_an_address_that_the_operator_gives_to_a_host_is_certified_for_no_other(place):
    options = {"names": {"hyper1": ["192.0.2.1"]}}

    evil_names = names(ask(place, "evil", grains=CLAIM, others={"hyper1": {}}, options=options))

    assert evil_names == {"evil"}
    host_names = names(ask(place, "hyper1", grains={}, others={"evil": CLAIM}, options=options))
    assert host_names == {"hyper1", "192.0.2.1"}


def test_a_host_with_countless_addresses_is_certified_for_some(place):
    grains = {"ipv4": [f"10.0.{high}.{low}" for high in range(8) for low in range(1, 250)]}

    assert len(ask(place, grains=grains).addresses) == 64


def test_an_answer_survives_its_conversion_to_plain_data(place):
    out = ask(place)

    assert wire.read_recorded(answer.Answer, wire.plain(out)) == out
