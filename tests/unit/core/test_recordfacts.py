"""What builds, purges and orders write, and read of what other releases have written."""

import json

import onrecord
import pytest
from saltvirt.cluster import orders
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import BuildFacts, MoveOrderFacts, OrderFacts, PurgeFacts

# Since there are records.
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
# What is on record of an order after each phase.
ORDERS = [
    ("placing", {}),
    ("keyed", {"public_key": "k"}),
    ("keyed", {"public_key": "k", "host": None, "order_id": "o1"}),
    ("ordered", {"host": "hyper1", "order_id": "o1"}),
    ("ordered", {"public_key": "k", "host": "hyper1"}),
    ("removing", {"host": "hyper1", "public_key": None, "order_id": "o1"}),
]


def leave(place, purpose, facts, phase="making"):
    """Leave a record as somebody else has written it."""
    if purpose == "move order":
        purpose, phase = "order", orders.MOVING
    path = place / purpose / "web1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"purpose": purpose, "name": "web1", "token": "t1", "phase": phase, "since": 0}
    path.write_text(json.dumps({"version": records.VERSION, **said, "facts": facts}))
    return path


def look(path):
    """Return the record that is there."""
    return records.read_record(path.parent.parent, path.parent.name, "web1")


@pytest.mark.parametrize("purpose", FIRST)
def test_records_of_all_releases_are_read(tmp_path, purpose):
    first, later = (
        look(leave(tmp_path, purpose, one[purpose])).read(SHAPES[purpose]) for one in (FIRST, LATER)
    )

    for name, value in LATER[purpose].items():
        assert getattr(later, name) == value
        assert getattr(first, name) == FIRST[purpose].get(name)


@pytest.mark.parametrize("purpose", FIRST)
def test_what_every_release_has_written_must_be_there(tmp_path, purpose):
    for name in FIRST[purpose]:
        facts = {key: value for key, value in FIRST[purpose].items() if key != name}
        path = leave(tmp_path, purpose, facts)

        with pytest.raises(StorageError, match=f"^the record {path} .*{name} is missing.*move it"):
            look(path)


@pytest.mark.parametrize(("phase", "facts"), ORDERS)
def test_orders_of_the_release_before_are_read(tmp_path, phase, facts):
    told = orders.read_facts(look(leave(tmp_path, "order", facts, phase)))

    for name in ("host", "order_id", "public_key"):
        assert getattr(told, name) == facts.get(name)


def test_of_no_order_and_of_a_moves_there_is_nothing_of_a_deployment(tmp_path):
    assert orders.read_facts(None) == OrderFacts()
    assert (
        orders.read_facts(look(leave(tmp_path, "move order", LATER["move order"]))) == OrderFacts()
    )


@pytest.mark.parametrize(
    ("purpose", "spoilt", "why"),
    [
        ("build", {"vcpus": "two"}, "vcpus is str, not a whole number"),
        ("build", {"begun": "/srv/a"}, "begun is str, not a list"),
        ("purge", {"untouched": {"/srv/a": ["now"]}}, "untouched./srv/a.0. is str, not a whole"),
        ("order", {"host": ["hyper1"]}, "host is list, not text"),
        ("move order", {"target": None}, "target is NoneType, not text"),
    ],
)
def test_what_has_another_type_is_one_line_that_names_file_and_field(
    tmp_path, purpose, spoilt, why
):
    path = leave(tmp_path, purpose, {**FIRST.get(purpose, {}), **spoilt})

    with pytest.raises(StorageError, match=f"^the record {path} cannot be read .{why}.*move it"):
        look(path)
    assert list(records.find_unreadable(tmp_path, path.parent.name)) == ["web1"]


def test_an_order_that_cannot_be_read_is_one_line_and_is_not_taken_over(tmp_path):
    opts = {"cachedir": str(tmp_path)}
    path = leave(orders.folder(opts), "order", {"host": 7}, "ordered")

    with (
        pytest.raises(StorageError, match="host is int, not text"),
        orders.opened(opts, "web1"),
    ):
        pytest.fail("it was opened")
    assert path.exists()


def test_what_a_newer_release_has_noted_stays_and_what_is_given_up_goes(tmp_path):
    facts = {"public_key": "k", "host": "hyper1", "order_id": "o1", "of a newer": [1]}
    leave(tmp_path, "order", facts, "ordered")
    with records.hold_record(tmp_path, "order", "web1") as held:
        orders.enter(held, orders.KEYED, OrderFacts(public_key="k"))

        given_up = {"host": None, "order_id": None, "given_uuid": None, "only_made": False}
        assert held.now.facts == {**facts, **given_up}


def test_the_order_of_a_move_says_of_which_vm_when_that_is_known(tmp_path):
    with records.hold_record(tmp_path, "order", "web1") as held:
        orders.begin_move(held, "t1", MoveOrderFacts(source="hyper1", target="hyper2"))
        assert held.now.facts == {"source": "hyper1", "target": "hyper2"}
        orders.note_uuid(held, "u1")

        assert orders.read_move(held.now).uuid == "u1" and held.now.token == "t1"


def test_what_nobody_could_read_is_not_written(tmp_path):
    with records.hold_record(tmp_path, "order", "web1") as held:
        with pytest.raises(StorageError, match=r"cannot write the record .*host is int, not text"):
            orders.begin(held, orders.PLACING, OrderFacts(host=7))

        assert held.record is None
