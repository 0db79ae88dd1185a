"""The table of commands on one VM agrees with runners, hosts, and what is derived from it."""

import importlib.util
import inspect
from pathlib import Path

import pytest
from salt.utils.minions import CkMinions
from saltvirt.cells import routes
from saltvirt.checks.audit.master import granted
from saltvirt.cluster import masterconfig
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.core import vmcommands
from saltvirt.core.salt import lookonly

ROOT = Path(__file__).resolve().parents[3]
ROWS = list(vmcommands.existing())
# Functions whose own code locates the VM.
OWN_PROTOCOLS = {"purge", "migrate", "settle", "clone", "rename", "vm_info", "console_log"}
# Arguments of hosts' functions that are this project's own, or lead to other hosts.
RESERVED = {"connection", "username", "password", "replies", "uuid", "only_made", "report", "token"}


def load(folder, file):
    """Load a file of Salt modules."""
    path = ROOT / folder / f"{file}.py"
    spec = importlib.util.spec_from_file_location(f"{folder}.{file}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters(row):
    """Return the parameters of a row's runner function, which its decorator hides from Salt."""
    function = getattr(load("_runners", row.file), row.name)
    # The wrapper keeps the function in its closure, and offers Salt a signature that takes all.
    code = [cell.cell_contents for cell in function.__closure__ if callable(cell.cell_contents)]
    inner = next(one for one in code if hasattr(one, "__wrapped__"))
    return inspect.signature(inspect.unwrap(inner)).parameters


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_command_is_a_function_of_its_file_and_of_hosts(row):
    module = load("_runners", row.file)

    assert all(hasattr(module, name) for name in row.names)
    assert row.vm_argument in parameters(row)
    if row.name not in ("settle",):
        assert row.function in {
            name
            for functions in lookonly.MODULES.values()
            for name in functions.looking() | functions.changing()
        }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_command_has_a_dry_run_if_it_acts_and_a_limit_if_it_takes_several(row):
    if row.name in OWN_PROTOCOLS:
        return
    assert ("dry_run" in parameters(row)) != row.only_looks
    assert ("max_parallel" in parameters(row)) == row.takes_several
    assert ("force" in parameters(row)) <= row.asks_all_hosts
    assert row.outcome or row.answer is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_command_only_looks_where_the_hosts_function_only_looks(row):
    looking = frozenset().union(*(table.looking() for table in lookonly.MODULES.values()))

    if row.name != "settle":
        assert (row.function in looking) == row.only_looks
    assert row.purpose in Purpose.__members__
    assert row.only_looks == (row.purpose == "READ")
    assert row.only_looks or not row.is_quick


def test_no_row_passes_an_argument_that_leads_a_host_elsewhere():
    passed = {word for row in ROWS for word in row.keywords.split()}

    assert not passed & RESERVED


def test_the_lists_that_others_read_have_what_the_table_has():
    assert {row.function for row in ROWS if row.only_looks} <= masterconfig.READ_ONLY
    assert not {row.function for row in ROWS if not row.only_looks} & masterconfig.READ_ONLY
    assert set(routes.NAMED) == {row.function for row in vmcommands.COMMANDS.values()}
    assert routes.NAMED["virt.clone"] == "source"
    assert {row.function for row in ROWS if row.is_quick} <= routes.QUESTIONS
    assert not {row.function for row in ROWS if not row.only_looks} & routes.QUESTIONS


def test_planned_commands_have_no_function_yet():
    planned = [row.name for row in vmcommands.COMMANDS.values() if not row.file]
    offered = {
        name.partition(".")[2]
        for functions in lookonly.RUNNERS.values()
        for name in functions.looking() | functions.changing()
    }

    assert not offered.intersection(planned)


def test_who_may_only_look_does_not_get_a_function_that_changes_by_the_start_of_its_name():
    """Salt takes a grant as a regular expression of how names begin."""
    looking = frozenset().union(*(table.looking() for table in lookonly.RUNNERS.values()))
    changing = frozenset().union(*(table.changing() for table in lookonly.RUNNERS.values()))
    wider = {(look, name) for look in looking for name in changing if name.startswith(look)}

    # These two are older than the table; docs/security.md names them.
    assert {name for look, name in wider if look != "virt.trash"} == set()


def allowed(grants, function, name="web1"):
    """Return whether Salt's own ACL lets a user call a runner function."""
    call = {"arg": [name], "kwarg": {}}
    # Its constructor opens the master's keys, which play no part here.
    checks = CkMinions.__new__(CkMinions)
    return checks.runner_check([{"@runner": grants}], function, call) is True


def test_salt_itself_lets_who_may_only_look_call_nothing_that_acts():
    looking = frozenset().union(*(table.looking() for table in lookonly.RUNNERS.values()))
    grants = sorted(looking - {"virt.trash"})

    assert all(allowed(grants, function) for function in grants)
    for row in ROWS:
        for name in row.names:
            assert allowed(grants, f"virt.{name}") == row.only_looks, name


@pytest.mark.parametrize(("name", "lets"), [("web1", True), ("db", False), (["web1", "db"], False)])
def test_a_list_of_vms_does_not_pass_a_grant_for_one(name, lets):
    grants = [{"virt.stop": {"args": ["web"]}}]

    assert allowed(grants, "virt.stop", name) is lets


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_audit_names_a_grant_of_a_command_that_acts(row):
    for name in row.names:
        grants = granted.describe_grants([f"virt[.]{name}$"], granted.RUNNERS)
        assert bool(grants) != row.only_looks, name


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("web1", []),
        ("web1,web2", []),
        ("web*", ["web*"]),
        ("web[12]", ["web[12]"]),
        (["web1"], ["web1"]),
        (("a", "b*"), ["a", "b*"]),
        (None, []),
        (101, []),
    ],
)
def test_several_vms_are_a_list_or_a_glob_and_no_text_with_commas(value, names):
    assert vmcommands.several_names(value) == names


@pytest.mark.parametrize(
    ("function", "given", "looks"),
    [
        ("virt.update", {"test": True}, True),
        ("virt.update", {"dry_run": True}, True),
        ("virt.update", {"test": False, "cpu": 2}, False),
        ("virt.start", {"dry_run": True}, True),
        ("virt.start", {"test": True}, False),
        ("virt.disk_add", {"test": True}, True),
        ("virt.disk_remove", {"file": True}, False),
        ("virt.move_disk", {"dry_run": True}, True),
        ("virt.get_xml", {}, True),
        ("virt.guest_exec", {"command": ["true"]}, False),
    ],
)
def test_which_calls_of_a_broken_master_look(function, given, looks):
    assert masterconfig.is_read_only(function, given) is looks
