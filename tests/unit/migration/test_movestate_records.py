"""What the two ends of a move write on record, and read from records of other releases."""

import json

import onrecord
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.libvirt import reservations
from saltvirt.migration.host import arrival, departure
from saltvirt.vm.show.host import migrationinfo

ROOM = set(onrecord.ROOM)
DEPARTURE_FIELDS = {
    "uuid",
    "target",
    "was_running",
    "state",
    "autostart",
    "leaves",
    "paths",
    "disks",
}
ARRIVAL_FIELDS = {
    "uuid",
    "source",
    "was_running",
    "sizes",
    "virtual",
    "paths",
    "images",
    "folders",
    *ROOM,
}
# The first release with records wrote these.
FIRST_DEPARTURE = {
    "uuid": "u1",
    "target": "hyper2",
    "was_running": True,
    "autostart": False,
    "leaves": True,
    "paths": ["/srv/a"],
    "disks": [["vda", "/srv/a", "copy"]],
}
FIRST_ARRIVAL = {
    "uuid": "u1",
    "source": None,
    "was_running": True,
    "sizes": {"/srv/a": 7, "/srv/b": None},
    "paths": ["/srv/a"],
    "images": {},
    "folders": ["/srv"],
    **onrecord.ROOM,
}


def test_a_departure_writes_what_each_phase_knows(end, conn):
    end.make(conn)
    end.begin()
    assert set(end.record("departure").facts) == DEPARTURE_FIELDS

    answer = end.send()

    facts = end.record("departure").facts
    assert set(facts) == {*DEPARTURE_FIELDS, "digests", "signatures", "sizes"}
    keys = ("digests", "autostart", "leaves", "was_running")
    assert answer["noted"] == end.state(conn)["noted"] == {key: facts[key] for key in keys}


def test_an_arrival_writes_what_each_phase_knows(end, conn):
    paths = end.make(conn)
    info = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    conn.lookupByName("web1").undefine()
    for path in paths:
        path.unlink()

    arrival.prepare(end.context, info, "t1", "hyper1")

    facts = end.record("arrival").facts
    assert set(facts) == {*ARRIVAL_FIELDS, "untouched"} and facts["folders"] == [str(end.images)]
    assert list(facts["untouched"]) == facts["paths"] == list(map(str, paths))
    assert end.state(conn)["noted"] == {}


def test_records_of_earlier_releases_are_read():
    departure_facts = _record("departure", FIRST_DEPARTURE).read(DepartureFacts)
    arrival_facts = _record("arrival", FIRST_ARRIVAL).read(ArrivalFacts)

    assert (
        departure_facts.disks == FIRST_DEPARTURE["disks"] and departure_facts.noted.digests is None
    )
    assert (departure_facts.state, departure_facts.signatures, departure_facts.sizes) == (
        None,
        None,
        None,
    )
    assert arrival_facts.sizes == FIRST_ARRIVAL["sizes"]
    assert (arrival_facts.virtual, arrival_facts.untouched) == (None, None)


def _record(purpose, facts):
    return records.Record(purpose=purpose, name="web1", token="t1", phase="ready", facts=facts)


def test_a_departure_of_another_release_is_continued(end, conn):
    end.make(conn)
    end.begin()
    begun_facts = {**end.record("departure").facts, "of a newer": [1]}
    del begun_facts["state"]
    folder = reservations.folder(end.settings)
    with records.hold_record(folder, "departure", "web1") as record:
        record.begin("t1", "planned", **begun_facts)

    end.send()

    facts = end.record("departure").facts
    assert facts["of a newer"] == [1] and "state" not in facts and facts["digests"]
    end.step("finish")
    assert end.record("departure") is None


def write_record(folder, purpose, facts):
    """Write a record as another release may have written it."""
    path = folder / purpose / "web1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"purpose": purpose, "name": "web1", "token": "t1", "phase": "planned", "facts": facts}
    path.write_text(json.dumps({"version": records.VERSION, **fields}))
    return path


@pytest.mark.parametrize(
    ("purpose", "bad_fields", "reason"),
    [
        ("departure", {"target": None}, "target is NoneType, not text"),
        ("departure", {"signatures": {"/srv/a": ["now"]}}, "signatures./srv/a.0. is str, not a w"),
        ("departure", {"was_running": "yes"}, "was_running is str, not True or False"),
        ("arrival", {"vcpus": "two"}, "vcpus is str, not a whole number"),
        ("arrival", {"images": []}, "images is list, not a mapping"),
    ],
)
def test_a_field_of_another_type_is_one_line_that_names_file_and_field(
    end, purpose, bad_fields, reason
):
    folder = reservations.folder(end.settings)
    write_record(folder, purpose, {**getattr(onrecord, purpose)(), **bad_fields})

    line = rf"^the record {folder}/{purpose}/web1.json cannot be read .{reason}.*move it away$"
    with pytest.raises(StorageError, match=line):
        records.read_record(folder, purpose, "web1")
    assert list(records.find_unreadable(folder, purpose)) == ["web1"]


@pytest.mark.parametrize(
    ("purpose", "first_facts"), [("departure", FIRST_DEPARTURE), ("arrival", FIRST_ARRIVAL)]
)
def test_a_field_that_every_release_writes_is_required(end, purpose, first_facts):
    folder = reservations.folder(end.settings)
    for name in set(first_facts) - {"disks"}:
        path = write_record(
            folder, purpose, {key: first_facts[key] for key in first_facts if key != name}
        )

        with pytest.raises(StorageError, match=f"{name} is missing"):
            records.read_record(folder, purpose, "web1")
        path.unlink()


def test_a_record_that_could_not_be_read_back_is_not_written(end, conn):
    end.make(conn)
    with pytest.raises(StorageError, match=r"cannot write the record .*target is int, not text"):
        departure.begin(end.context, "web1", "t1", 10)

    assert end.record("departure") is None
