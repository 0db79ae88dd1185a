"""Which cell a call goes to, also by the prefix of a VM's name; no cell is asked."""

from dataclasses import replace

import pytest
from saltvirt.cells import cellclient, registry, routes
from saltvirt.cells.registry import LOCAL, Cell, CellFailed, Unusable
from saltvirt.cells.routes import Call
from saltvirt.core.errors import BadArgument, BadConfig
from saltvirt.core.options import config
from saltvirt.core.options.config import MasterSettings

URL, FILE = "https://west.example:8000", "/etc/salt/cells/west"
GIVEN = {"url": URL, "credentials": FILE}
CELLS = {
    name: Cell(name=name, url=URL, credentials=FILE, prefix=f"{name[0]}-")
    for name in ("east", "west")
}


def cells(own_prefix="", **entries):
    """Return the cells of a configuration."""
    return registry.from_settings(MasterSettings(cells=entries, cell_prefix=own_prefix))


def test_a_cell_has_the_values_of_its_option():
    cells_by_name = cells(west={**GIVEN, "prefix": "w-", "timeout_s": 5})

    assert cells_by_name == {
        "west": Cell(name="west", url=URL, credentials=FILE, prefix="w-", timeout_s=5)
    }


@pytest.mark.parametrize(
    ("name", "entry", "reason"),
    [
        ("local", GIVEN, "'local' cannot name a cell"),
        ("a/b", GIVEN, "'a/b' cannot name a cell"),
        ("west", {"url": URL}, "virt:cells:west: credentials is missing"),
        ("west", {**GIVEN, "urls": "x"}, "unknown key 'urls'"),
        ("west", {**GIVEN, "url": "http://west:8000"}, "expected https://HOST:PORT"),
        ("west", {**GIVEN, "url": "https://me:word@west"}, "without a user"),
        ("west", {**GIVEN, "url": "https://west:x"}, "expected https://HOST:PORT"),
        ("west", {**GIVEN, "credentials": "west"}, "expected an absolute path, found 'west'"),
        ("west", {**GIVEN, "ca": "west"}, "virt:cells:west:ca: expected an absolute path"),
        ("west", {**GIVEN, "prefix": "-w"}, "'-w' cannot begin a VM's name"),
        ("west", {**GIVEN, "timeout_s": 0}, "expected at least 1"),
        ("west", "https://west", "expected a mapping"),
    ],
)
def test_an_unusable_entry_is_named_and_the_other_cells_work(name, entry, reason):
    settings = MasterSettings(cells={name: entry, "east": {**GIVEN, "prefix": "e-"}})
    cells_by_name = registry.from_settings(settings)
    (unusable,) = (cell for cell in cells_by_name.values() if isinstance(cell, Unusable))

    assert unusable.reason.startswith("option virt:cells") and reason in unusable.reason
    assert "word" not in unusable.reason
    assert registry.find_errors(settings) == [unusable.reason]
    assert cells_by_name["east"] == Cell(name="east", url=URL, credentials=FILE, prefix="e-")
    with pytest.raises(CellFailed) as refused:
        cellclient.ask(unusable, {}, Call(fun="virt.list"))
    assert str(refused.value) == f"cell {unusable.name}: {unusable.reason}"
    assert LOCAL not in cells_by_name and set(cells_by_name) == {"east", unusable.name}


def test_cells_that_are_no_mapping_are_an_error_of_calls_that_name_a_cell():
    opts = {"virt": {"cells": ["west"]}}
    cells_by_name = registry.from_settings(config.master_settings(opts))

    assert (
        routes.resolve_cell(Call(fun="virt.evacuate", arguments={"host": "h1"}), cells_by_name)[0]
        is None
    )
    with pytest.raises(BadConfig, match=r"option virt:cells: expected a mapping"):
        routes.resolve_cell(Call(fun="virt.evacuate", cell="west"), cells_by_name)


def unusable_by_prefixes(own_prefix="", **prefixes):
    """Return the reasons of unusable cells with these prefixes by cell, and all cells."""
    entries = {name: {**GIVEN, "prefix": prefix} for name, prefix in prefixes.items()}
    cells_by_name = cells(own_prefix, **entries)
    return {
        name: cell.reason for name, cell in cells_by_name.items() if isinstance(cell, Unusable)
    }, cells_by_name


def test_cells_with_overlapping_prefixes_are_unusable():
    reasons, cells_by_name = unusable_by_prefixes(west="w", east="we")
    assert list(reasons) == ["east"] and "begins like virt:cells:west:prefix" in reasons["east"]
    # The cell with the longer prefix is unusable; the other one keeps its names.
    assert (
        registry.find_cell("web1", cells_by_name, "") == "east"
        and registry.find_cell("wx1", cells_by_name, "") == "west"
    )

    assert set(unusable_by_prefixes(west="w", east="w")[0]) == {"west", "east"}
    for own_prefix, cell in (("w", "we"), ("we", "w"), ("w", "w")):
        reasons, cells_by_name = unusable_by_prefixes(own_prefix, west=cell)
        assert list(reasons) == ["west"] and "virt:cell_prefix" in reasons["west"]


def test_the_prefix_of_a_name_is_that_of_its_cell():
    assert registry.find_cell("w-1", CELLS, "top-") == "west"
    assert registry.find_cell("top-1", CELLS, "top-") == LOCAL
    assert registry.find_cell("web1", CELLS, "top-") is None
    assert registry.may_have("", "web1") and not registry.may_have("w-", "web1")


@pytest.mark.parametrize(
    ("call", "cell", "arguments"),
    [
        (Call(fun="virt.start", arguments={"name": "a"}), None, {"name": "a"}),
        (Call(fun="virt.start", arguments={"name": "a"}, cell="west"), "west", {"name": "a"}),
        (Call(fun="virt.evacuate", arguments={"host": "west/h1"}), "west", {"host": "h1"}),
        (Call(fun="virt.evacuate", arguments={"host": "local/h1"}), LOCAL, {"host": "h1"}),
        (
            Call(fun="virt.migrate", arguments={"name": "a", "target": "west/h1"}, cell="west"),
            "west",
            {"name": "a", "target": "h1"},
        ),
        (Call(fun="virt.cell_job", arguments={"jid": "1"}), LOCAL, {"jid": "1"}),
    ],
)
def test_a_call_is_routed_to_its_cell(call, cell, arguments):
    target_cell, call_in_cell = routes.resolve_cell(call, CELLS)
    assert (target_cell, call_in_cell.arguments) == (cell, arguments)


def test_a_move_between_cells_is_refused():
    call = Call(fun="virt.migrate", arguments={"name": "a", "target": "west/h1"}, cell="east")
    with pytest.raises(BadArgument, match="a call goes to one cell"):
        routes.resolve_cell(call, CELLS)
    with pytest.raises(BadArgument, match="no cell of this master; there are: east, west, local"):
        routes.resolve_cell(Call(fun="virt.start", cell="north"), CELLS)
    for several in (["west"], {"west": 1}):
        with pytest.raises(BadArgument, match="is no cell of this master"):
            routes.resolve_cell(Call(fun="virt.start", cell=several), CELLS)


def arguments_of_cells(*, has_own=True, cell=None, fun="virt.list", **arguments):
    """Return the arguments of the call to each cell."""
    call = Call(fun=fun, arguments=arguments, cell=cell)
    questions = routes.questions(call, CELLS, has_own=has_own)
    return {cell: dict(question.arguments) for cell, question in questions.items()}


def test_a_list_asks_all_cells():
    assert set(arguments_of_cells()) == {LOCAL, "east", "west"}
    assert set(arguments_of_cells(has_own=False)) == {"east", "west"}
    assert set(arguments_of_cells(cell="east,west")) == {"east", "west"}


def test_a_name_is_passed_on_unchanged():
    assert arguments_of_cells(fun="virt.find", name="a")["west"] == {"name": "a"}


def test_a_call_for_hosts_asks_their_cells():
    assert arguments_of_cells(host="west/h1,west/h2,h3") == {
        "west": {"host": ["h1", "h2"]},
        LOCAL: {"host": ["h3"]},
    }
    assert set(arguments_of_cells(host="*/h1")) == {LOCAL, "east", "west"}
    with pytest.raises(BadArgument, match="is of none of east, west"):
        arguments_of_cells(host="h1", has_own=False)


def test_for_a_page_each_cell_is_asked_for_its_first_rows():
    arguments_by_cell = arguments_of_cells(
        limit=2, offset=3, sort="memory", fields="vms", fun="virt.host_info"
    )
    assert all(
        (arguments["limit"], arguments["offset"]) == (5, 0)
        for arguments in arguments_by_cell.values()
    )
    # The cells send all fields, as the field to sort by is among them.
    assert all(arguments["fields"] is None for arguments in arguments_by_cell.values())
    assert arguments_of_cells(limit=2, offset=3, host="west/*")["west"]["offset"] == 3


def test_a_stream_of_hosts_is_of_this_master_alone():
    with pytest.raises(BadArgument, match="cell=local"):
        arguments_of_cells(stream=True)
    assert "stream" not in arguments_of_cells(stream=False)["west"]


def test_new_names_are_those_of_the_vms():
    many = {"name": "w-{}", "count": 2}
    assert Call(fun="virt.init_many", arguments=many).new_names() == ["w-1", "w-2"]
    listed = {"vms": ["a", {"name": "b"}]}
    assert Call(fun="virt.init_many", arguments=listed).new_names() == ["a", "b"]
    assert Call(fun="virt.clone", arguments={"source": "a", "name": "b"}).new_names() == ["b"]
    renamed = Call(fun="virt.rename", arguments={"name": "a", "new_name": "b"})
    assert (renamed.vm, renamed.new_names()) == ("a", ["b"])
    assert Call(fun="virt.undo", arguments={"name": "b"}).new_names() == ["b"]
    assert Call(fun="virt.start", arguments={"name": "a"}).new_names() == []


@pytest.mark.parametrize(
    ("fun", "data", "renamed"),
    [
        ("start", {"h1": {"a": "started"}}, {"west/h1": {"a": "started"}}),
        (
            "init",
            {"name": "a", "host": "h1"},
            {"name": "a", "host": "west/h1", "cell": "west"},
        ),
        ("init", {"h1": {"fits": True}}, {"west/h1": {"fits": True}}),
        (
            "purge",
            {"h1": {"a": "purged"}, "details": {"a": {"undo": "salt-run virt.undo a"}, "b": 3}},
            {
                "west/h1": {"a": "purged"},
                "details": {"a": {"undo": "salt-run virt.undo a cell=west"}, "b": 3},
            },
        ),
        (
            "migrate",
            {"name": "a", "from": "h1", "to": "h2"},
            {"name": "a", "from": "west/h1", "to": "west/h2", "cell": "west"},
        ),
        (
            "init_many",
            {"built": {"a": "h1"}, "failed": {"b": "no"}},
            {"built": {"a": "west/h1"}, "failed": {"b": "no"}, "cell": "west"},
        ),
        (
            "init_many",
            {"built": {}, "purged": {"a": "h1"}, "left": {"b": "no"}},
            {"built": {}, "purged": {"a": "west/h1"}, "left": {"b": "no"}, "cell": "west"},
        ),
        (
            "evacuate",
            {"host": "h1", "moved": {"a": "h2"}, "stays": {"b": "no"}},
            {"host": "west/h1", "moved": {"a": "west/h2"}, "stays": {"b": "no"}, "cell": "west"},
        ),
        (
            "restore",
            {"moves": {"a": "h1"}, "gone": ["c"], "elsewhere": {"b": "h2"}},
            {
                "moves": {"a": "west/h1"},
                "gone": ["c"],
                "elsewhere": {"b": "west/h2"},
                "cell": "west",
            },
        ),
        (
            "rebalance",
            {"moves": [{"name": "a", "from": "h1", "to": "h2", "gain": 0.1}]},
            {
                "moves": [{"name": "a", "from": "west/h1", "to": "west/h2", "gain": 0.1}],
                "cell": "west",
            },
        ),
        ("settle", {"settled": {"a": "x"}}, {"settled": {"a": "x"}, "cell": "west"}),
        ("console_log", "text", "text"),
        ("get_xml", "text", "text"),
        ("reboot", {"h1": {"web": "x"}}, {"west/h1": {"web": "x"}}),
        ("revert_snapshot", {"h1": {"reverted": "s"}}, {"west/h1": {"reverted": "s"}}),
        (
            "images",
            {"h1": {}, "unreachable": ["h2"], "failed": {"h3": "no"}},
            {"west/h1": {}, "unreachable": ["west/h2"], "failed": {"west/h3": "no"}},
        ),
    ],
)
def test_hosts_in_an_answer_get_the_name_of_their_cell(fun, data, renamed):
    call = Call(fun=f"virt.{fun}")
    assert routes.rename_hosts(call, "west", data) == renamed
    assert routes.rename_hosts(call, LOCAL, data) == data


ROWS = {"web1": {"host": "h1", "error": None}, "web2": {"host": None, "error": "no"}, "web3": 5}
RENAMED = {**ROWS, "web1": {"host": "west/h1", "error": None}}


@pytest.mark.parametrize("name", ["web*", ["web1", "web2"]])
def test_the_table_of_several_vms_of_a_cell_has_its_hosts(name):
    call = Call(fun="virt.reset", arguments={"name": name})
    data = {"vms": ROWS, "unreachable": ["h2"]}

    renamed = routes.rename_hosts(call, "west", data)

    assert renamed == {"vms": RENAMED, "unreachable": ["west/h2"], "cell": "west"}
    failed = routes.rename_hosts(call, "west", {"error": "no", **data, "retcode": 1})
    assert failed["vms"] == RENAMED and failed["error"] == "no"


@pytest.mark.parametrize(
    ("fun", "arguments", "vm", "several"),
    [
        ("reset", {"name": "web1"}, "web1", []),
        ("reset", {"name": "web*"}, None, ["web*"]),
        ("reset", {"name": ["web1", "db"]}, None, ["web1", "db"]),
        # These take exactly one VM.
        ("purge", {"name": "web*"}, "web*", []),
        ("undefine", {"name": "web*"}, "web*", []),
        ("clone", {"source": "web1", "name": "web*"}, "web1", []),
        ("list", {"name": "web*"}, None, []),
    ],
)
def test_which_vms_a_call_is_about(fun, arguments, vm, several):
    call = Call(fun=f"virt.{fun}", arguments=arguments)

    assert (call.vm, call.several) == (vm, several)


_JUNK = ("x", None, 5, [1], {"a": 5}, {"a": None}, {"a": {"b": []}}, [[]])
_KEYS = (
    "vms",
    "name",
    "host",
    "unreachable",
    "hosts",
    "failed",
    "built",
    "moves",
    "duplicates",
    "h1",
)


@pytest.mark.parametrize("fun", ["start", "get_disks", "init", "init_many", "evacuate", "settle"])
def test_hosts_in_any_answer_get_the_name_of_their_cell(fun):
    for key in _KEYS:
        for junk in _JUNK:
            assert isinstance(
                routes.rename_hosts(Call(fun=f"virt.{fun}"), "west", {key: junk}), dict
            )


def test_variable_arguments_follow_the_positional_ones():
    call = Call(
        fun="virt.trash_empty", arguments={"host": "h1"}, args=("a", "b"), leading=("host",)
    )
    assert call.as_given() == (["h1", "a", "b"], {})
    assert replace(call, args=()).as_given() == ([], {"host": "h1"})
