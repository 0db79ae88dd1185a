"""Files that other programs put into a CA's folders, and damaged records: revocation works."""

import json
import stat
from datetime import timedelta

import msgpack
import pytest
from askedca import NOW, ask, parsed, request
from saltvirt.ca import backup, certified
from saltvirt.ca.authorities import Authorities
from saltvirt.certificates.master import certificates

HOSTS = {"hyper1": {}, "hyper2": {}}


@pytest.fixture
def place_of_two(place):
    """A CA that has signed for two hosts, with a foreign file in each folder of records."""
    for host in HOSTS:
        ask(place, host, {"libvirt-client": request()}, grains={})
    for folder in ("issued", "revoked", "enrolled"):
        (place.folder / folder).mkdir(exist_ok=True)
        (place.folder / folder / "evil.p").write_bytes(msgpack.packb({"a": 1}))
    return place


def serial_of(answer):
    """Return the serial of the certificate in an answer, as the record spells it."""
    return f"{parsed(answer).serial_number:032x}"


def test_a_planted_file_is_no_record_and_prevents_no_revocation(place_of_two):
    main = Authorities(place_of_two.folder)
    rows = [row for row in main.issued() if row["host"] == "hyper2"]

    main.revoke(rows, NOW)

    assert len(rows) == 1 and main.revoked() == {rows[0]["serial"]}
    states = {row["host"]: row["state"] for row in certificates.list_certificates(main, NOW)}
    assert states == {"hyper1": "good", "hyper2": "revoked"}


def test_a_day_later_all_hosts_are_answered_beside_planted_files(place_of_two):
    (place_of_two.folder / "pruned").write_text((NOW - timedelta(days=2)).isoformat())

    assert parsed(ask(place_of_two, now=NOW + timedelta(days=2)))


def test_a_damaged_time_of_the_last_pruning_is_replaced(place_of_two):
    mark = place_of_two.folder / "pruned"
    mark.write_bytes(b"\xff")

    ask(place_of_two)

    assert mark.read_text() == NOW.isoformat()


def test_strange_files_and_damaged_records_are_named(place_of_two):
    folder, damaged_serial = place_of_two.folder, "ab" * 16
    (folder / "issued" / f"{damaged_serial}.json").write_text("{}")

    assert certified.find_strange_files(folder) == [
        folder / "issued" / f"{damaged_serial}.json",
        folder / "issued/evil.p",
        folder / "revoked/evil.p",
    ]


DAMAGED = {
    "empty": "",
    "a list": "[]",
    "a number": "7",
    "no host": json.dumps({"purpose": "p", "serial": "cd" * 16, "not_after": NOW.isoformat()}),
    "another serial": json.dumps(
        {"host": "h", "purpose": "p", "serial": "ab" * 16, "not_after": NOW.isoformat()}
    ),
    "no time": json.dumps({"host": "h", "purpose": "p", "serial": "cd" * 16, "not_after": 7}),
    "no zone": json.dumps(
        {"host": "h", "purpose": "p", "serial": "cd" * 16, "not_after": "2026-01-01T00:00:00"}
    ),
    "bytes": b"\xff\xfe",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_passed_over(place, content):
    serial = serial_of(ask(place))
    data = content if isinstance(content, bytes) else content.encode()
    (place.folder / "issued" / f"{'cd' * 16}.json").write_bytes(data)

    assert [row["serial"] for row in place.issued()] == [serial]


@pytest.mark.parametrize("content", [b"", b"\xff", b"2026-01-01T00:00:00", b"yesterday"])
def test_a_revocation_without_a_readable_time_stays(place, content):
    serial = serial_of(ask(place))
    place.revoke([serial], NOW)
    (place.folder / "revoked" / serial).write_bytes(content)

    assert place.revoked() == {serial}
    place.revoke([], NOW)
    assert serial in {f"{number:032x}" for number in certified.revoked_dates(place.folder)}


def test_records_of_revocations_are_readable_by_root_alone(place):
    place.revoke(["ab" * 16], NOW)

    assert stat.S_IMODE((place.folder / "revoked" / ("ab" * 16)).stat().st_mode) == 0o600


def test_a_revocation_is_recorded_though_the_list_cannot_be_written(place, monkeypatch):
    serial = serial_of(ask(place))
    (place.folder / "cakey.pem").unlink()

    with pytest.raises(OSError):
        place.revoke([serial], NOW)

    assert place.revoked() == {serial}


def test_other_cas_revoke_though_one_ca_fails(place):
    ask(place, wanted={"libvirt-client": request(), "vnc-server": request()})
    main = Authorities(place.folder)
    (place.folder / "cakey.pem").unlink()

    with pytest.raises(OSError):
        main.revoke(main.issued(), NOW)

    serials = {row["serial"] for row in main.issued() if row["signer"] == "vnc"}
    assert serials and serials <= main.stores["vnc"].revoked()
    assert "vnc" in {row["signer"] for row in main.issued()}


def test_a_backup_has_no_planted_files(place_of_two):
    backup_files = backup.read_all(place_of_two.folder)

    assert not [name for name in backup_files if name.endswith(".p")]
    assert any(name.startswith("issued/") for name in backup_files)


def test_certificates_of_a_replaced_ca_are_forgotten_once_hosts_no_longer_trust_it(place):
    old = serial_of(ask(place))
    place.revoke([old], NOW)
    place.begin_rotation(NOW)
    place.promote(NOW)
    new = serial_of(ask(place))
    assert place.revoked() == {old}

    place.finish_rotation(NOW)

    assert [row["serial"] for row in place.issued()] == [new] and place.revoked() == set()


def test_a_record_without_its_ca_stays_until_the_certificate_expires(place):
    old = serial_of(ask(place))
    path = place.folder / "issued" / f"{old}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "authority": ""}))
    place.begin_rotation(NOW)
    place.promote(NOW)
    place.finish_rotation(NOW)

    assert [row["serial"] for row in place.issued()] == [old]
