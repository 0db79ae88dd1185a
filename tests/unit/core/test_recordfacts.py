"""The records that builds, purges and orders write, and those of other releases that they read."""

import json

import onrecord
import pytest
from saltvirt.cluster import orders
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import BuildFacts, MoveOrderFacts, OrderFacts, PurgeFacts

# The facts of the first release with records.
FIRST = {
    "build": {"uuid": "u1", "paths": ["/srv/a"], **onrecord.ROOM},
    "purge": {"uuid": "u1", "paths": ["/srv/a"]},
    "move order": {"source": None, "target": "hyper2"},
}
LATER = {
    "build": {**FIRST["build"], "secrets": ["/srv/c"], "begun": ["/srv/a"]},
    "purge": {**FIRST["purge"], "untouched": {"/srv/a": [1, 2]}, "volumes": [["ceph", "a"]]},
    "move order": {**FIRST["move order"], "uuid": "u1"},
}
SHAPES = {"build": BuildFacts, "purge": PurgeFacts, "move order": MoveOrderFacts}
# The facts of an order after each phase.
ORDERS = [
    ("placing", {}),
    ("keyed", {"public_key": "k"}),
    ("keyed", {"public_key": "k", "host": None, "order_id": "o1"}),
    ("ordered", {"host": "hyper1", "order_id": "o1"}),
    ("ordered", {"public_key": "k", "host": "hyper1"}),
    ("removing", {"host": "hyper1", "public_key": None, "order_id": "o1"}),
]


def write_record(place, purpose, facts, phase="making"):
    """Write a record as another release does."""
    if purpose == "move order":
        purpose, phase = "order", orders.MOVING
    path = place / purpose / "web1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"purpose": purpose, "name": "web1", "token": "t1", "phase": phase, "since": 0}
    path.write_text(json.dumps({"version": records.VERSION, **fields, "facts": facts}))
    return path


def look(path):
    """Return the record in a file."""
    return records.read_record(path.parent.parent, path.parent.name, "web1")


@pytest.mark.parametrize("purpose", FIRST)
def test_records_of_all_releases_are_read(tmp_path, purpose):
    first, later = (
        look(write_record(tmp_path, purpose, facts_of_release[purpose])).read(SHAPES[purpose])
        for facts_of_release in (FIRST, LATER)
    )

    for name, value in LATER[purpose].items():
        assert getattr(later, name) == value
        assert getattr(first, name) == FIRST[purpose].get(name)


@pytest.mark.parametrize("purpose", FIRST)
def test_fields_that_all_releases_write_are_required(tmp_path, purpose):
    for name in FIRST[purpose]:
        facts = {key: value for key, value in FIRST[purpose].items() if key != name}
        path = write_record(tmp_path, purpose, facts)

        with pytest.raises(StorageError, match=f"^the record {path} .*{name} is missing.*move it"):
            look(path)


@pytest.mark.parametrize(("phase", "facts"), ORDERS)
def test_orders_of_the_release_before_are_read(tmp_path, phase, facts):
    order_facts = orders.read_facts(look(write_record(tmp_path, "order", facts, phase)))

    for name in ("host", "order_id", "public_key"):
        assert getattr(order_facts, name) == facts.get(name)


def test_no_order_and_an_order_of_a_move_have_no_deployment(tmp_path):
    assert orders.read_facts(None) == OrderFacts()
    assert (
        orders.read_facts(look(write_record(tmp_path, "move order", LATER["move order"])))
        == OrderFacts()
    )


@pytest.mark.parametrize(
    ("purpose", "spoilt", "reason"),
    [
        ("build", {"vcpus": "two"}, "vcpus is str, not a whole number"),
        ("build", {"begun": "/srv/a"}, "begun is str, not a list"),
        ("purge", {"untouched": {"/srv/a": ["now"]}}, "untouched./srv/a.0. is str, not a whole"),
        ("order", {"host": ["hyper1"]}, "host is list, not text"),
        ("move order", {"target": None}, "target is NoneType, not text"),
    ],
)
def test_a_wrong_type_is_one_line_with_file_and_field(tmp_path, purpose, spoilt, reason):
    path = write_record(tmp_path, purpose, {**FIRST.get(purpose, {}), **spoilt})

    with pytest.raises(StorageError, match=f"^the record {path} cannot be read .{reason}.*move it"):
        look(path)
    assert list(records.find_unreadable(tmp_path, path.parent.name)) == ["web1"]


def test_an_unreadable_order_is_one_line_and_stays(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    path = write_record(orders.folder(opts), "order", {"host": 7}, "ordered")

    with (
        pytest.raises(StorageError, match="host is int, not text"),
        orders.opened(opts, "web1"),
    ):
        pytest.fail("it was opened")
    assert path.exists()


def test_unknown_fields_of_newer_releases_stay_and_abandoned_ones_go(tmp_path):
    facts = {"public_key": "k", "host": "hyper1", "order_id": "o1", "of a newer": [1]}
    write_record(tmp_path, "order", facts, "ordered")
    with records.hold_record(tmp_path, "order", "web1") as record:
        orders.enter(record, orders.KEYED, OrderFacts(public_key="k"))

        given_up = {"host": None, "order_id": None, "given_uuid": None, "only_made": False}
        assert record.now.facts == {**facts, **given_up}


def test_the_order_of_a_move_has_the_uuid_once_it_is_known(tmp_path):
    with records.hold_record(tmp_path, "order", "web1") as record:
        orders.begin_move(record, "t1", MoveOrderFacts(source="hyper1", target="hyper2"))
        assert record.now.facts == {"source": "hyper1", "target": "hyper2"}
        orders.note_uuid(record, "u1")

        assert orders.read_move(record.now).uuid == "u1" and record.now.token == "t1"


def test_facts_of_a_wrong_type_are_not_written(tmp_path):
    with records.hold_record(tmp_path, "order", "web1") as record:
        with pytest.raises(StorageError, match=r"cannot write the record .*host is int, not text"):
            orders.begin(record, orders.PLACING, OrderFacts(host=7))

        assert record.record is None
