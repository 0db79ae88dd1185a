"""Help from docstrings, without hosts: commands by task, by a word, and the usage of one."""

from pathlib import Path

import asloaded
import pytest
from saltvirt.cells import routes
from saltvirt.core import vmcommands
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt import lookonly
from saltvirt.entry import commandhelp, hostcommandtexts, views

ROOT = Path(__file__).resolve().parents[3]
RUNNERS = ROOT / "_runners"
# Names in the table of tasks for planned functions.
PLANNED = {"virt.status", "virt.undo", "virt.console", "virt.top"}


def names(answer):
    """Return the commands of an answer."""
    return [row["name"] for task in answer["tasks"] for row in task["commands"]]


def test_each_command_has_one_task():
    answer = commandhelp.report(RUNNERS)
    runner = {
        name
        for functions in lookonly.RUNNERS.values()
        for name in functions.looking() | functions.changing()
    }
    aliases = {
        alias for text in commandhelp.read_runner(RUNNERS).values() for alias in text.aliases
    }

    shown = names(answer)
    assert len(shown) == len(set(shown))
    assert runner - aliases <= {*shown}
    assert [task["task"] for task in answer["tasks"]][:3] == [
        "Try",
        "Deploy and remove",
        "Every day",
    ]
    unsorted_commands = [task["commands"] for task in answer["tasks"] if task["task"] == "Others"]
    assert unsorted_commands == [], "name it in _TASKS of entry/commandhelp.py, or in _FOR_MASTER"


def test_the_table_of_tasks_names_only_functions():
    named = {
        word if "." in word else f"virt.{word}"
        for _task, *words in commandhelp._TASKS
        for word in " ".join(words).split()
    }
    planned = {row.function for row in vmcommands.COMMANDS.values() if not row.file}

    assert named - {*names(commandhelp.report(RUNNERS))} <= planned | PLANNED


def test_the_texts_of_hosts_are_those_of_their_docstrings():
    texts = hostcommandtexts.read()
    texts_in_source = commandhelp.read_hosts(ROOT / "_modules")

    assert {name: text.sentence for name, text in texts.items()} == {
        name: text.sentence for name, text in texts_in_source.items()
    }, "run: tests/env python3 tools/commandpage.py --write"
    assert {name: " ".join(text.words) for name, text in texts.items()} == {
        name: " ".join(text.words) for name, text in texts_in_source.items()
    }


def test_the_tables_show_which_commands_change_something_and_where_to_type_them():
    rows = {
        row["name"]: row
        for task in commandhelp.report(RUNNERS)["tasks"]
        for row in task["commands"]
    }

    assert rows["virt.stop"]["changes"] is True and rows["virt.stop"]["on"] == "master"
    assert rows["virt.list"]["changes"] is False
    assert rows["virt.pool_delete"] | {"does": ""} == {
        "name": "virt.pool_delete",
        "on": "hosts",
        "changes": True,
        "does": "",
    }


@pytest.mark.parametrize(
    ("word", "with_it", "without"),
    [
        ("disk", "virt.get_disks", "virt.start"),
        ("PLUG", "virt.stop", "virt.start"),
        ("certificate", "virt_pki.list", "virt.list"),
        # The text is not at the beginning of a word.
        ("shot", "virt.snapshot", "virt.start"),
    ],
)
def test_a_word_narrows_the_table(word, with_it, without):
    shown = names(commandhelp.report(RUNNERS, word))

    assert with_it in shown and without not in shown


def test_a_word_matches_at_the_beginning_of_words_only():
    shown = names(commandhelp.report(RUNNERS, "age"))

    # "agent", but neither "image" nor "storage".
    assert "virt.guest_info" in shown and "virt.images" not in shown
    assert "virt.list_pools" not in shown


@pytest.mark.parametrize("word", ["start", "virt.start"])
def test_a_name_shows_how_the_command_is_used(word):
    answer = commandhelp.report(RUNNERS, word)

    command = answer["command"]
    assert command["usage"] == "salt-run virt.start NAME [dry_run=False] [max_parallel=8]"
    assert command["arguments"]["name"].startswith("The VM's name")
    assert command["undo"] == "virt.stop"
    assert "salt-run virt.start centos1" in command["examples"]
    assert "Undo" not in " ".join(command["more"])
    assert "virt.pool_start" in answer["related"] and "virt.start" not in answer["related"]


def test_a_name_in_two_modules_shows_the_first_and_mentions_the_other():
    answer = commandhelp.report(RUNNERS, "list")

    assert answer["command"]["name"] == "virt.list" and "virt_pki.list" in answer["related"]


def test_an_older_name_shows_the_command():
    assert commandhelp.report(RUNNERS, "force_off")["command"]["name"] == "virt.stop"


def test_the_help_of_a_hosts_command_names_its_full_documentation():
    command = commandhelp.report(RUNNERS, "pool_start")["command"]

    assert command["usage"].startswith("salt HOST virt.pool_start NAME")
    assert command["more"] == ["A host has all about it: salt HOST sys.doc virt.pool_start"]


def test_an_unknown_word_is_refused():
    with pytest.raises(BadArgument, match="no command has 'zzz'.*salt-run virt.help"):
        commandhelp.report(RUNNERS, "zzz")


def test_a_new_function_is_shown_before_a_task_names_it(tmp_path):
    (tmp_path / "virt.py").write_text(
        '__virtualname__ = "virt"\n\n\ndef brand_new(name):\n    """Do it."""\n'
    )

    tasks = commandhelp.report(tmp_path)["tasks"]

    assert tasks[-1]["task"] == "Others" and tasks[-1]["commands"][0]["name"] == "virt.brand_new"


def test_each_command_has_a_usage_a_sentence_and_an_example():
    for command in commandhelp.list_commands(RUNNERS):
        assert command.text.name in command.usage
        assert command.text.sentence.endswith("."), command.text.name
        assert command.text.commands or command.is_of_hosts, command.text.name


@pytest.mark.parametrize("word", ["shutdown", "init", "pool_define", "next_host", "virt_pki.list"])
def test_the_view_shows_the_parts_one_below_the_other(word):
    answer = commandhelp.report(RUNNERS, word)

    usage, *other_lines = views.find("virt.help", answer, {})["said"]
    required = answer["command"]["usage"].partition(" [")[0]
    assert usage == required and "" in other_lines


def test_the_runner_needs_no_cloud(opts):
    runner = asloaded.module("_runners/virt_help.py", **opts)
    runner.__opts__, runner.__context__ = {**opts, "virt": {}}, {}

    assert "virt.init" in names(runner.help_())
    assert runner.help_("start")["command"]["name"] == "virt.start"
    assert runner.help_("zzz")["retcode"] == 1
    assert "5 is not text" in runner.help_(5)["error"]


def test_a_master_with_cells_answers_without_them():
    call = routes.Call(fun="virt.help", arguments={"word": None})

    assert routes.resolve_cell(call, {}) == ("local", call)
