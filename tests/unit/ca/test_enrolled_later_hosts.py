"""A host that joins later takes its names back from certificates of others; what is once a day."""

import json
from datetime import timedelta

import pytest
from askedca import NOW, ask, parsed, request, subjects
from saltvirt.ca import ca, enrolled
from saltvirt.ca.authorities import Authorities

SQUATTER, LATER = "hyper1.site-a", "hyper1.site-b"
# The first of them says that it is the second one, before that is there.
CLAIM = {"fqdn": LATER, "ipv4": ["10.1.0.1", "10.2.0.1"]}
OWN = {"fqdn": LATER, "ipv4": ["10.2.0.1"]}
BOTH = {"libvirt-server": request(), "qemu-client": request()}


def valid(place, host):
    """Return the serials of a host's certificates that are not revoked."""
    main = Authorities(place.folder)
    return {row["serial"] for row in main.issued() if row["host"] == host} - main.revoked()


def test_a_certificate_with_the_name_of_a_later_host_is_revoked_when_that_joins(place, caplog):
    first = parsed(ask(place, SQUATTER, BOTH, grains=CLAIM))
    assert LATER in subjects(first)[0]

    joined = parsed(ask(place, LATER, grains=OWN, others={SQUATTER: {}}))

    assert valid(place, SQUATTER) == set()
    # What only those certificates had is free for who has it.
    assert subjects(joined) == ([LATER], ["10.2.0.1"])
    assert f"certificates of {SQUATTER} with a name of {LATER}" in caplog.text


def test_the_other_host_gets_a_new_certificate_without_that_name(place):
    ask(place, SQUATTER, grains=CLAIM)
    ask(place, LATER, grains=OWN, others={SQUATTER: {}})

    again = parsed(ask(place, SQUATTER, grains=CLAIM, others={LATER: OWN}))
    ask(place, LATER, grains=OWN, others={SQUATTER: CLAIM})

    assert subjects(again) == ([SQUATTER], ["10.1.0.1"])
    assert len(valid(place, SQUATTER)) == 1


def test_an_older_certificate_of_the_other_host_is_found_too(place):
    """The newest one does not have the name: it was asked for without it."""
    ask(place, SQUATTER, grains=CLAIM)
    newest = parsed(ask(place, SQUATTER, grains={"fqdn": SQUATTER}))

    ask(place, LATER, grains=OWN, others={SQUATTER: {}})

    assert valid(place, SQUATTER) == {f"{newest.serial_number:032x}"}


def test_records_of_an_earlier_release_count_by_the_newest_certificate(place):
    ask(place, SQUATTER, grains=CLAIM)
    main = Authorities(place.folder)
    for row in main.issued():
        path = place.folder / "issued" / f"{row['serial']}.json"
        old = {key: row[key] for key in ("host", "purpose", "serial", "not_after")}
        path.write_text(json.dumps(old))
    path = place.folder / f"enrolled/{SQUATTER}.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps({"subjects": known["subjects"], "asked": known["asked"]}))

    ask(place, LATER, grains=OWN, others={SQUATTER: {}})

    assert valid(place, SQUATTER) == set()


def test_what_a_later_host_only_reports_takes_nothing_from_others(place):
    """Each hypervisor could have the others' certificates revoked by that."""
    ask(place, "hyper1", grains=CLAIM | {"fqdn": "hyper1"})

    ask(place, "hyper9", grains=CLAIM | {"fqdn": "hyper9"}, others={"hyper1": {}})

    assert len(valid(place, "hyper1")) == 1


def test_what_the_operator_gives_a_host_is_taken_back_from_others(place):
    ask(place, "hyper1", grains={"fqdn": "hyper1", "ipv4": ["10.2.0.1"]})
    options = {"names": {"hyper9": ["10.2.0.1"]}}

    joined = ask(place, "hyper9", grains={}, others={"hyper1": {}}, options=options)

    assert valid(place, "hyper1") == set() and joined.addresses == ["10.2.0.1"]


def test_what_the_operator_gives_two_hosts_is_left_to_both(place):
    options = {"names": {"hyper1": ["vip.example.org"], "hyper2": ["vip.example.org", "hyper1"]}}
    for _time in range(2):
        ask(place, "hyper2", grains={}, others={"hyper1": {}}, options=options)
        ask(place, "hyper1", grains={}, others={"hyper2": {}}, options=options)

    assert len(valid(place, "hyper1")) == len(valid(place, "hyper2")) == 2


def test_an_id_that_differs_in_its_letters_alone_takes_nothing(place):
    ask(place, "hyper1", grains={})

    with pytest.raises(ca.PkiError, match="upper and lower case"):
        ask(place, "HYPER1", grains={}, others={"hyper1": {}})

    assert len(valid(place, "hyper1")) == 1


def test_a_host_that_asks_for_thousands_of_names_is_known_to_have_more(place):
    register, known = enrolled.Register(place.folder), enrolled.Enrolled()
    for number in range(20):
        names = [f"hyper1.n{number}-{one}" for one in range(100)]
        until = NOW + timedelta(days=1, seconds=number)
        known = known.with_names([*names, LATER] if number == 0 else names, until, NOW)

    assert len(known.certified) <= 1001 and LATER not in known.certified
    assert enrolled.MORE in known.has(NOW)
    ask(place, SQUATTER, grains=CLAIM)
    register.write(SQUATTER, known)
    ask(place, LATER, grains=OWN, others={SQUATTER: {}})
    assert valid(place, SQUATTER) == set()


def test_a_host_gets_so_many_certificates_in_a_day_and_no_more(place):
    options = {"requests_per_hour": 2, "requests_per_day": 5}
    for hour in (0, 0, 2, 2, 4):
        ask(place, now=NOW + timedelta(hours=hour), options=options)

    with pytest.raises(ca.PkiError, match=r"5 times within a day \(virt:pki:requests_per_day\)"):
        ask(place, now=NOW + timedelta(hours=6), options=options)
    assert ask(place, wanted={}, now=NOW + timedelta(hours=6), options=options).names
    ask(place, now=NOW + timedelta(hours=25), options=options)


@pytest.mark.parametrize(("options", "most"), [({}, 100), ({"requests_per_hour": 150}, 150)])
def test_without_an_option_that_is_100_times_or_as_often_as_in_an_hour(options, most):
    known = enrolled.Enrolled()
    for number in range(most):
        known = known.counted("hyper1", NOW + number * timedelta(minutes=5), options)

    with pytest.raises(ca.PkiError, match=f"{most} times within a"):
        known.counted("hyper1", NOW + most * timedelta(minutes=5), options)


def test_a_damaged_record_of_a_host_is_named(place):
    ask(place)
    (place.folder / "enrolled/hyper1.json").write_text("[]")

    with pytest.raises(ca.PkiError, match=r"hyper1\.json .* cannot be read .* move it away"):
        ask(place, "hyper2", others={"hyper1": {}}, grains={})
