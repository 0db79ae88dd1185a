"""One CA for each use: what one signed is good for nothing else, and how older hosts get there."""

from datetime import timedelta

import pytest
from askedca import NOW, ask, parsed, request
from cryptography import x509
from saltvirt.ca import answer, ca, policy, store
from saltvirt.ca.authorities import USES, Authorities, use_of
from saltvirt.core import wire

QEMU = {"qemu-server": request(), "qemu-client": request()}
HOSTS = {"hyper1": {}, "hyper2": {}}


def vouches(trust, leaf):
    """Return whether one of the CAs that a use trusts has signed a certificate, and kept it."""
    by = x509.load_pem_x509_certificates(trust.ca.encode())
    lists = [part + "-----END X509 CRL-----" for part in trust.crl.split("-----END X509 CRL-----")]
    for one in lists[:-1]:
        found = x509.load_pem_x509_crl(one.encode())
        if found.get_revoked_certificate_by_serial_number(leaf.serial_number):
            return False
    for one in by:
        try:
            leaf.verify_directly_issued_by(one)
        except Exception:  # whatever is wrong with it: it is not of this CA
            continue
        return True
    return False


@pytest.mark.parametrize("purpose", policy.PURPOSES)
def test_what_is_signed_for_one_use_is_trusted_there_alone(place, purpose):
    out = ask(place, wanted={purpose: request()})

    trusted = {use for use in USES if vouches(out.trust[use], parsed(out, purpose))}

    assert trusted == {use_of(purpose)}


def test_the_cas_have_different_keys_and_names(place):
    out = ask(place)

    found = [x509.load_pem_x509_certificate(one.ca.encode()) for one in out.trust.values()]

    assert len({one.subject.rfc4514_string() for one in found}) == len(USES)
    assert len({ca._public_bytes(one.public_key()) for one in found}) == len(USES)


def before(place, *hosts, purpose="qemu-client", now=NOW):
    """Sign as a release with one CA for all did; return ``{host: certificate}``."""
    main, out = store.Store(place.folder), {}
    for host in hosts:
        key = ca.read_request(request())
        out[host] = ca.sign(
            main.authority(now),
            key,
            minion_id=host,
            role="client",
            names=[host],
            addresses=[],
            now=now,
            days=90,
        )
        main.note(host, purpose, out[host])
    return out


def others(host):
    """Return the other hypervisors."""
    return {one: grains for one, grains in HOSTS.items() if one != host}


def test_until_all_hosts_have_renewed_the_old_certificates_of_qemu_are_trusted(place):
    old = before(place, *HOSTS)
    first = ask(place, "hyper1", QEMU, others=others("hyper1"))

    assert vouches(first.trust["qemu"], old["hyper2"])
    assert vouches(first.trust["qemu"], parsed(first, "qemu-client"))
    assert not vouches(first.trust["libvirt"], parsed(first, "qemu-client"))

    ask(place, "hyper2", QEMU, others=others("hyper2"))
    last = ask(place, "hyper1", {}, others=others("hyper1"))

    assert not any(vouches(one, leaf) for one in last.trust.values() for leaf in old.values())
    assert vouches(last.trust["qemu"], parsed(first, "qemu-client"))


@pytest.mark.parametrize("gone", ["no hypervisor any more", "over"])
def test_a_host_that_will_not_renew_is_not_waited_for(place, gone):
    when = NOW - timedelta(days=91) if gone == "over" else NOW
    old = before(place, "hyper9", now=when)
    out = ask(place, "hyper1", QEMU, others={"hyper9": {}} if gone == "over" else {})

    assert Authorities(place.folder).is_separate("qemu")
    assert not vouches(out.trust["qemu"], old["hyper9"])
    is_revoked = f"{old['hyper9'].serial_number:032x}" in place.revoked()
    assert is_revoked or gone == "over"


def test_a_rotation_replaces_every_ca_and_nobody_is_untrusted_in_between(place):
    first, all_ = (
        ask(place, wanted={p: request() for p in policy.PURPOSES}),
        Authorities(place.folder),
    )
    leaves = {p: parsed(first, p) for p in policy.PURPOSES}
    all_.begin_rotation(NOW)
    told = [ask(place, wanted={})]
    all_.promote(NOW)
    told.append(ask(place, wanted={p: request() for p in policy.PURPOSES}))
    for purpose, leaf in leaves.items():
        assert all(vouches(one.trust[use_of(purpose)], leaf) for one in told)
        assert all(vouches(one.trust[use_of(purpose)], parsed(told[1], purpose)) for one in told)
    all_.finish_rotation(NOW)

    last = ask(place, wanted={})
    for purpose, leaf in leaves.items():
        assert not vouches(last.trust[use_of(purpose)], leaf)
        assert vouches(last.trust[use_of(purpose)], parsed(told[1], purpose))


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


def test_without_an_option_that_is_60_times(place):
    for _time in range(60):
        ask(place, "hyper1", wanted=QEMU)

    with pytest.raises(ca.PkiError, match="had certificates 60 times within an hour"):
        ask(place, "hyper1", wanted=QEMU)


def test_certificates_that_are_over_are_forgotten_and_the_others_are_not(place):
    old, new = parsed(ask(place)), parsed(ask(place, now=NOW + timedelta(days=80)))
    main = Authorities(place.folder)
    main.revoke(main.issued()[:1], NOW)

    ask(place, wanted={}, now=NOW + timedelta(days=92))

    left = {row["serial"] for row in main.issued()}
    assert f"{new.serial_number:032x}" in left and f"{old.serial_number:032x}" not in left
    assert f"{old.serial_number:032x}" not in main.revoked()


CLAIM = {"fqdn": "hyper1.example.org", "host": "hyper1", "ipv4": ["192.0.2.1"]}


def names(out):
    """Return all that an answer lets a host be called."""
    return {*out.names, *out.addresses}


def test_a_hypervisor_that_claims_what_another_is_certified_for_does_not_take_it_away(place):
    first = names(ask(place, "hyper1", grains=CLAIM))
    stolen = names(ask(place, "evil", grains=CLAIM, others={"hyper1": {}}))
    again = names(ask(place, "hyper1", grains=CLAIM, others={"evil": CLAIM}))

    assert again == first == {"hyper1", "hyper1.example.org", "192.0.2.1"}
    assert stolen == {"evil"}


def test_what_two_new_hypervisors_claim_is_neithers(place):
    out = names(ask(place, "hyper1", grains=CLAIM, others={"evil": {"ipv4": ["192.0.2.1"]}}))

    assert "192.0.2.1" not in out
    assert names(ask(place, "evil", grains=CLAIM, others={"hyper1": CLAIM})) == {"evil"}


def test_a_host_is_certified_for_no_name_that_another_may_get(place):
    squatting = {"fqdn": "hyper9.example.org", "host": "hyper9"}

    assert names(ask(place, "hyper3", grains=squatting)) == {"hyper3"}


@pytest.mark.parametrize(
    "grains", [{"ipv4": 5}, {"ipv4": {"a": 1}, "fqdn": ["x"]}, "x", None, {"host": 1}, [1]]
)
def test_whatever_one_host_says_of_itself_keeps_no_other_from_its_certificate(place, grains):
    assert "hyper1" in names(ask(place, "hyper1", grains=CLAIM, others={"hyper3": grains}))
    assert names(ask(place, "hyper3", grains=grains)) == {"hyper3"}


def test_a_guest_that_claims_a_hypervisors_names_takes_nothing_away(place):
    # What guests say does not come here; their ids do.
    out = ask(place, "hyper1", grains={**CLAIM, "fqdn": "hyper1.web"}, guests=["hyper1.web"])

    assert names(out) == {"hyper1", "192.0.2.1"}


def test_what_a_host_does_not_say_any_more_is_free_for_the_next(place):
    ask(place, "hyper1", grains=CLAIM)
    ask(place, "hyper1", grains={})

    assert "192.0.2.1" in names(ask(place, "hyper2", grains=CLAIM, others={"hyper1": {}}))


def test_what_the_operator_gives_to_a_host_is_nobody_elses(place):
    given = {"names": {"hyper1": ["192.0.2.1"]}}

    taken = names(ask(place, "evil", grains=CLAIM, others={"hyper1": {}}, options=given))

    assert taken == {"evil"}
    own = names(ask(place, "hyper1", grains={}, others={"evil": CLAIM}, options=given))
    assert own == {"hyper1", "192.0.2.1"}


def test_a_host_with_countless_addresses_is_certified_for_some(place):
    grains = {"ipv4": [f"10.0.{high}.{low}" for high in range(8) for low in range(1, 250)]}

    assert len(ask(place, grains=grains).addresses) == 64


def test_the_answer_is_what_the_wire_carries(place):
    out = ask(place)

    assert wire.read_recorded(answer.Answer, wire.plain(out)) == out
