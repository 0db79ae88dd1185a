"""A host that joins later has its names revoked for other hosts; limits for a day."""

from datetime import timedelta

import pytest
from askedca import NOW, ask, parsed, request, subjects
from saltvirt.ca import ca, enrolled
from saltvirt.ca.authorities import Authorities

SQUATTER, LATER = "hyper1.site-a", "hyper1.site-b"
# SQUATTER claims the name of LATER before that host joins.
CLAIM = {"fqdn": LATER, "ipv4": ["10.1.0.1", "10.2.0.1"]}
OWN = {"fqdn": LATER, "ipv4": ["10.2.0.1"]}
TWO_REQUESTS = {"libvirt-server": request(), "qemu-client": request()}


def valid_serials(place, host):
    """Return the serials of a host's certificates that are not revoked."""
    main = Authorities(place.folder)
    return {row["serial"] for row in main.issued() if row["host"] == host} - main.revoked()


def test_a_certificate_with_a_later_hosts_name_is_revoked_when_that_host_joins(place, caplog):
    first = parsed(ask(place, SQUATTER, TWO_REQUESTS, grains=CLAIM))
    assert LATER in subjects(first)[0]

    joined = parsed(ask(place, LATER, grains=OWN, others={SQUATTER: {}}))

    assert valid_serials(place, SQUATTER) == set()
    # The address is free again: only the revoked certificates had it.
    assert subjects(joined) == ([LATER], ["10.2.0.1"])
    assert f"certificates of {SQUATTER} with a name of {LATER}" in caplog.text


def test_the_other_host_gets_a_new_certificate_without_that_name(place):
    ask(place, SQUATTER, grains=CLAIM)
    ask(place, LATER, grains=OWN, others={SQUATTER: {}})

    renewed = parsed(ask(place, SQUATTER, grains=CLAIM, others={LATER: OWN}))
    ask(place, LATER, grains=OWN, others={SQUATTER: CLAIM})

    assert subjects(renewed) == ([SQUATTER], ["10.1.0.1"])
    assert len(valid_serials(place, SQUATTER)) == 1


def test_an_older_certificate_of_the_other_host_is_found_too(place):
    """The host's newest certificate was requested without the name."""
    ask(place, SQUATTER, grains=CLAIM)
    newest = parsed(ask(place, SQUATTER, grains={"fqdn": SQUATTER}))

    ask(place, LATER, grains=OWN, others={SQUATTER: {}})

    assert valid_serials(place, SQUATTER) == {f"{newest.serial_number:032x}"}


def test_grains_of_a_later_host_revoke_no_certificates_of_others(place):
    """Otherwise each hypervisor could have the others' certificates revoked."""
    ask(place, "hyper1", grains=CLAIM | {"fqdn": "hyper1"})

    ask(place, "hyper9", grains=CLAIM | {"fqdn": "hyper9"}, others={"hyper1": {}})

    assert len(valid_serials(place, "hyper1")) == 1


def test_names_that_the_operator_gives_a_host_are_revoked_for_others(place):
    ask(place, "hyper1", grains={"fqdn": "hyper1", "ipv4": ["10.2.0.1"]})
    options = {"names": {"hyper9": ["10.2.0.1"]}}

    joined = ask(place, "hyper9", grains={}, others={"hyper1": {}}, options=options)

    assert valid_serials(place, "hyper1") == set() and joined.addresses == ["10.2.0.1"]


def test_names_that_the_operator_gives_two_hosts_stay_valid_for_both(place):
    options = {"names": {"hyper1": ["vip.example.org"], "hyper2": ["vip.example.org", "hyper1"]}}
    for _time in range(2):
        ask(place, "hyper2", grains={}, others={"hyper1": {}}, options=options)
        ask(place, "hyper1", grains={}, others={"hyper2": {}}, options=options)

    assert len(valid_serials(place, "hyper1")) == len(valid_serials(place, "hyper2")) == 2


def test_an_id_that_differs_only_in_case_revokes_nothing(place):
    ask(place, "hyper1", grains={})

    with pytest.raises(ca.PkiError, match="upper and lower case"):
        ask(place, "HYPER1", grains={}, others={"hyper1": {}})

    assert len(valid_serials(place, "hyper1")) == 1


def test_a_host_that_asks_for_thousands_of_names_is_known_to_have_more(place):
    register, host_record = enrolled.Register(place.folder), enrolled.Enrolled()
    for number in range(20):
        names = [f"hyper1.n{number}-{name_number}" for name_number in range(100)]
        until = NOW + timedelta(days=1, seconds=number)
        host_record = host_record.with_names([*names, LATER] if number == 0 else names, until, NOW)

    assert len(host_record.certified) <= 1001 and LATER not in host_record.certified
    assert enrolled.MORE in host_record.certified_names(NOW)
    ask(place, SQUATTER, grains=CLAIM)
    register.write(SQUATTER, host_record)
    ask(place, LATER, grains=OWN, others={SQUATTER: {}})
    assert valid_serials(place, SQUATTER) == set()


def test_a_host_gets_so_many_certificates_in_a_day_and_no_more(place):
    options = {"requests_per_hour": 2, "requests_per_day": 5}
    for hour in (0, 0, 2, 2, 4):
        ask(place, now=NOW + timedelta(hours=hour), options=options)

    with pytest.raises(ca.PkiError, match=r"5 times within a day \(virt:pki:requests_per_day\)"):
        ask(place, now=NOW + timedelta(hours=6), options=options)
    assert ask(place, wanted={}, now=NOW + timedelta(hours=6), options=options).names
    ask(place, now=NOW + timedelta(hours=25), options=options)


@pytest.mark.parametrize(("options", "limit"), [({}, 100), ({"requests_per_hour": 150}, 150)])
def test_the_default_is_100_certificates_a_day_or_the_hourly_limit(options, limit):
    host_record = enrolled.Enrolled()
    for number in range(limit):
        host_record = host_record.with_request(
            "hyper1", NOW + number * timedelta(minutes=5), options
        )

    with pytest.raises(ca.PkiError, match=f"{limit} times within a"):
        host_record.with_request("hyper1", NOW + limit * timedelta(minutes=5), options)


def test_a_damaged_record_of_a_host_is_named(place):
    ask(place)
    (place.folder / "enrolled/hyper1.json").write_text("[]")

    with pytest.raises(ca.PkiError, match=r"hyper1\.json .* cannot be read .* move it away"):
        ask(place, "hyper2", others={"hyper1": {}}, grains={})
