"""What the two ends of a move write, and read of what other releases have written."""

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
BEGUN = {"uuid", "target", "was_running", "state", "autostart", "leaves", "paths", "disks"}
MADE = {"uuid", "source", "was_running", "sizes", "virtual", "paths", "images", "folders", *ROOM}
# Since there are records.
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
    assert set(end.record("departure").facts) == BEGUN

    said = end.send()

    left = end.record("departure").facts
    assert set(left) == {*BEGUN, "digests", "signatures", "sizes"}
    keys = ("digests", "autostart", "leaves", "was_running")
    assert said["noted"] == end.state(conn)["noted"] == {key: left[key] for key in keys}


def test_an_arrival_writes_what_each_phase_knows(end, conn):
    paths = end.make(conn)
    said = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    conn.lookupByName("web1").undefine()
    for path in paths:
        path.unlink()

    arrival.prepare(end.context, said, "t1", "hyper1")

    left = end.record("arrival").facts
    assert set(left) == {*MADE, "untouched"} and left["folders"] == [str(end.images)]
    assert list(left["untouched"]) == left["paths"] == list(map(str, paths))
    assert end.state(conn)["noted"] == {}


def test_records_of_earlier_releases_are_read():
    leaving = _record("departure", FIRST_DEPARTURE).read(DepartureFacts)
    coming = _record("arrival", FIRST_ARRIVAL).read(ArrivalFacts)

    assert leaving.disks == FIRST_DEPARTURE["disks"] and leaving.noted.digests is None
    assert (leaving.state, leaving.signatures, leaving.sizes) == (None, None, None)
    assert coming.sizes == FIRST_ARRIVAL["sizes"]
    assert (coming.virtual, coming.untouched) == (None, None)


def _record(purpose, said):
    return records.Record(purpose=purpose, name="web1", token="t1", phase="ready", facts=said)


def test_a_departure_of_another_release_is_gone_on_with(end, conn):
    end.make(conn)
    end.begin()
    begun = {**end.record("departure").facts, "of a newer": [1]}
    del begun["state"]
    place = reservations.folder(end.settings)
    with records.hold_record(place, "departure", "web1") as held:
        held.begin("t1", "planned", **begun)

    end.send()

    left = end.record("departure").facts
    assert left["of a newer"] == [1] and "state" not in left and left["digests"]
    end.step("finish")
    assert end.record("departure") is None


def leave(place, purpose, facts):
    """Leave a record as somebody else has written it."""
    path = place / purpose / "web1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"purpose": purpose, "name": "web1", "token": "t1", "phase": "planned", "facts": facts}
    path.write_text(json.dumps({"version": records.VERSION, **said}))
    return path


@pytest.mark.parametrize(
    ("purpose", "spoilt", "why"),
    [
        ("departure", {"target": None}, "target is NoneType, not text"),
        ("departure", {"signatures": {"/srv/a": ["now"]}}, "signatures./srv/a.0. is str, not a w"),
        ("departure", {"was_running": "yes"}, "was_running is str, not True or False"),
        ("arrival", {"vcpus": "two"}, "vcpus is str, not a whole number"),
        ("arrival", {"images": []}, "images is list, not a mapping"),
    ],
)
def test_what_has_another_type_is_one_line_that_names_file_and_field(end, purpose, spoilt, why):
    place = reservations.folder(end.settings)
    leave(place, purpose, {**getattr(onrecord, purpose)(), **spoilt})

    line = rf"^the record {place}/{purpose}/web1.json cannot be read .{why}.*move it away$"
    with pytest.raises(StorageError, match=line):
        records.read_record(place, purpose, "web1")
    assert list(records.find_unreadable(place, purpose)) == ["web1"]


@pytest.mark.parametrize(
    ("purpose", "first"), [("departure", FIRST_DEPARTURE), ("arrival", FIRST_ARRIVAL)]
)
def test_what_every_release_has_written_must_be_there(end, purpose, first):
    place = reservations.folder(end.settings)
    for name in set(first) - {"disks"}:
        path = leave(place, purpose, {key: first[key] for key in first if key != name})

        with pytest.raises(StorageError, match=f"{name} is missing"):
            records.read_record(place, purpose, "web1")
        path.unlink()


def test_what_nobody_could_read_is_not_written(end, conn):
    end.make(conn)
    with pytest.raises(StorageError, match=r"cannot write the record .*target is int, not text"):
        departure.begin(end.context, "web1", "t1", 10)

    assert end.record("departure") is None
