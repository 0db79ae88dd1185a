"""Which cell a call goes to, and what a name's beginning says; no cell is asked."""

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


def cells(own_prefix="", **given):
    """Return the cells of a configuration."""
    return registry.from_settings(MasterSettings(cells=given, cell_prefix=own_prefix))


def test_a_cell_has_what_its_option_says():
    made = cells(west={**GIVEN, "prefix": "w-", "timeout_s": 5})

    assert made == {"west": Cell(name="west", url=URL, credentials=FILE, prefix="w-", timeout_s=5)}


@pytest.mark.parametrize(
    ("name", "given", "why"),
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
def test_an_entry_that_cannot_be_used_is_named_and_stops_no_other(name, given, why):
    settings = MasterSettings(cells={name: given, "east": {**GIVEN, "prefix": "e-"}})
    made = registry.from_settings(settings)
    (wrong,) = (one for one in made.values() if isinstance(one, Unusable))

    assert wrong.reason.startswith("option virt:cells") and why in wrong.reason
    assert "word" not in wrong.reason
    assert registry.find_errors(settings) == [wrong.reason]
    assert made["east"] == Cell(name="east", url=URL, credentials=FILE, prefix="e-")
    with pytest.raises(CellFailed) as refused:
        cellclient.ask(wrong, {}, Call(fun="virt.list"))
    assert str(refused.value) == f"cell {wrong.name}: {wrong.reason}"
    assert LOCAL not in made and set(made) == {"east", wrong.name}


def test_cells_that_are_no_mapping_are_said_to_whoever_names_one():
    opts = {"virt": {"cells": ["west"]}}
    made = registry.from_settings(config.master_settings(opts))

    assert routes.resolve_cell(Call(fun="virt.evacuate", arguments={"host": "h1"}), made)[0] is None
    with pytest.raises(BadConfig, match=r"option virt:cells: expected a mapping"):
        routes.resolve_cell(Call(fun="virt.evacuate", cell="west"), made)


def clashing(own_prefix="", **prefixes):
    """Return why cells with these prefixes cannot be used, by their names."""
    given = {name: {**GIVEN, "prefix": prefix} for name, prefix in prefixes.items()}
    made = cells(own_prefix, **given)
    return {name: one.reason for name, one in made.items() if isinstance(one, Unusable)}, made


def test_no_name_can_be_of_two_cells():
    wrong, made = clashing(west="w", east="we")
    assert list(wrong) == ["east"] and "begins like virt:cells:west:prefix" in wrong["east"]
    # What begins like both is refused; what begins like one alone is that one's.
    assert (
        registry.find_cell("web1", made, "") == "east"
        and registry.find_cell("wx1", made, "") == "west"
    )

    assert set(clashing(west="w", east="w")[0]) == {"west", "east"}
    for own, cell in (("w", "we"), ("we", "w"), ("w", "w")):
        wrong, made = clashing(own, west=cell)
        assert list(wrong) == ["west"] and "virt:cell_prefix" in wrong["west"]


def test_a_name_says_whose_it_is():
    assert registry.find_cell("w-1", CELLS, "top-") == "west"
    assert registry.find_cell("top-1", CELLS, "top-") == LOCAL
    assert registry.find_cell("web1", CELLS, "top-") is None
    assert registry.may_have("", "web1") and not registry.may_have("w-", "web1")


@pytest.mark.parametrize(
    ("call", "cell", "given"),
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
def test_a_call_says_its_cell(call, cell, given):
    where, aimed = routes.resolve_cell(call, CELLS)
    assert (where, aimed.arguments) == (cell, given)


def test_nothing_goes_from_cell_to_cell():
    call = Call(fun="virt.migrate", arguments={"name": "a", "target": "west/h1"}, cell="east")
    with pytest.raises(BadArgument, match="a call goes to one cell"):
        routes.resolve_cell(call, CELLS)
    with pytest.raises(BadArgument, match="no cell of this master; there are: east, west, local"):
        routes.resolve_cell(Call(fun="virt.start", cell="north"), CELLS)
    for several in (["west"], {"west": 1}):
        with pytest.raises(BadArgument, match="is no cell of this master"):
            routes.resolve_cell(Call(fun="virt.start", cell=several), CELLS)


def asked(*, has_own=True, cell=None, fun="virt.list", **arguments):
    """Return what each cell is asked."""
    call = Call(fun=fun, arguments=arguments, cell=cell)
    found = routes.questions(call, CELLS, has_own=has_own)
    return {cell: dict(one.arguments) for cell, one in found.items()}


def test_all_are_asked_for_all():
    assert set(asked()) == {LOCAL, "east", "west"}
    assert set(asked(has_own=False)) == {"east", "west"}
    assert set(asked(cell="east,west")) == {"east", "west"}


def test_a_name_is_asked_for_as_it_is():
    assert asked(fun="virt.find", name="a")["west"] == {"name": "a"}


def test_hosts_are_asked_for_where_they_are():
    assert asked(host="west/h1,west/h2,h3") == {
        "west": {"host": ["h1", "h2"]},
        LOCAL: {"host": ["h3"]},
    }
    assert set(asked(host="*/h1")) == {LOCAL, "east", "west"}
    with pytest.raises(BadArgument, match="is of none of east, west"):
        asked(host="h1", has_own=False)


def test_a_page_of_all_is_in_what_each_says_first():
    each = asked(limit=2, offset=3, sort="memory", fields="vms", fun="virt.host_info")
    assert all((one["limit"], one["offset"]) == (5, 0) for one in each.values())
    # What it is sorted by comes with it.
    assert all(one["fields"] is None for one in each.values())
    assert asked(limit=2, offset=3, host="west/*")["west"]["offset"] == 3


def test_hosts_of_cells_do_not_come_one_by_one():
    with pytest.raises(BadArgument, match="cell=local"):
        asked(stream=True)
    assert "stream" not in asked(stream=False)["west"]


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
def test_hosts_of_a_cell_are_called_by_it(fun, data, renamed):
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
        # These take one VM, whatever its name is.
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
def test_whatever_a_cell_answers_its_hosts_are_called_by_it(fun):
    for key in _KEYS:
        for junk in _JUNK:
            assert isinstance(
                routes.rename_hosts(Call(fun=f"virt.{fun}"), "west", {key: junk}), dict
            )


def test_what_any_number_is_given_of_stands_behind_what_comes_before_it():
    call = Call(
        fun="virt.trash_empty", arguments={"host": "h1"}, args=("a", "b"), leading=("host",)
    )
    assert call.as_given() == (["h1", "a", "b"], {})
    assert replace(call, args=()).as_given() == ([], {"host": "h1"})
