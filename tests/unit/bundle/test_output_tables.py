"""Tables and sentences of every command: one unit, the terminal's width, nothing cut in two."""

from pathlib import Path

import pytest
from saltvirt.entry import commandhelp, views
from test_output import outputter

ROOT = Path(__file__).resolve().parents[3]

GIB, MIB = 2**30, 2**20
TITLES = ["NAME", "HOST", "STATE", "CPU", "MEMORY", "DISK", "ADDRESS", "AGE"]


@pytest.fixture(autouse=True)
def _of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def shown(rows, titles=TITLES, sizes=("MEMORY", "DISK"), sentences=()):
    """Return the lines of a view."""
    view = {"titles": titles, "rows": rows, "sizes": list(sizes), "said": list(sentences)}
    return outputter("virt_table")(view).splitlines()


def test_all_sizes_of_a_table_have_one_unit():
    web = ["web1", "hyper1", "running", 2, 512 * MIB, 10 * GIB, "10.0.0.7", "3 d"]
    tiny = ["tiny", "hyper12", "was shutdown", 12, 10 * MIB, None, None, None]

    assert shown([web, tiny]) == [
        "NAME  HOST     STATE         CPU  MEMORY  DISK  ADDRESS   AGE",
        "                                     GiB   GiB",
        "web1  hyper1   running         2     0.5  10.0  10.0.0.7  3 d",
        "tiny  hyper12  was shutdown   12    <0.1     -  -         -",
    ]


def test_where_all_is_small_the_unit_is_mib():
    lines = shown([["a", 128 * MIB], ["b", 1023 * MIB]], ["VM", "SIZE"], ["SIZE"])

    assert lines == ["VM  SIZE", "     MiB", "a    128", "b   1023"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_table_is_not_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    reason = "no room: it would take more memory than this host has left to promise to VMs, " * 3

    lines = shown([["web1", "hyper1", reason], ["n" * 30, "h", "x"]], ["NAME", "HOST", "WHY"], ())

    assert max(map(len, lines)) <= columns - 2
    assert " ".join(line[-(columns - 20) :].strip() for line in lines).count("promise") == 3


def test_a_long_name_has_a_line_of_its_own_and_is_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    name = "a-machine-with-a-name-of-many-letters.example.com"

    lines = shown([[name, "h1", "running", "10.1.2.3"]], ["NAME", "HOST", "STATE", "ADDRESS"], ())

    assert name in lines and lines[-1].split() == ["h1", "running", "10.1.2.3"]


@pytest.mark.parametrize(
    "token",
    [
        "salt-run virt.trash_restore hyper1 0123",
        "https://example.com/" + "a" * 90,
        "/srv/" + "b" * 90 + "/disk.qcow2",
        "'/srv/my own images/web 1.qcow2'",
        "`virt.update web1 mem=4g`",
    ],
)
def test_text_to_copy_is_never_broken(monkeypatch, token):
    monkeypatch.setenv("COLUMNS", "44")

    text = outputter("virt_done")({"said": [f"some words before it, and more of these: {token}"]})

    assert any(token in line for line in text.splitlines())


def test_sentences_keep_their_indent():
    assert outputter("virt_done")({"said": ["a", "  b"]}) == "a\n  b"


def test_answers_that_are_no_mappings_are_words_and_lines():
    show = outputter("virt_done")

    assert (show(True), show(["/a", "/b"]), show([]), show("a\nb")) == (
        "done",
        "/a\n/b",
        "none",
        "a\nb",
    )


def test_an_answer_without_a_view_has_no_dashes():
    data = {"hyper1": {"web1": True, "files": ["/a", "/b"], "none": None, "empty": {}}}

    assert outputter("virt_done")(data).splitlines() == [
        "hyper1:",
        "  web1: yes",
        "  files: /a, /b",
        "  none: -",
        "  empty: -",
    ]


@pytest.mark.parametrize("name", ["virt_table", "virt_done"])
def test_an_error_names_the_hosts_that_did_not_answer(name):
    data = {"error": "no hypervisor answers", "unreachable": ["h1"], "last_seen": {"h1": ["web1"]}}

    assert outputter(name)(data).splitlines() == [
        "error: no hypervisor answers",
        "h1: does not answer",
        "h1: had web1 when it was last asked",
    ]


def test_fields_of_hosts_have_units():
    answer = {"hyper1": {"memory": {"limit_mib": 8192, "committed_mib": 512}, "maintenance": False}}

    assert outputter("virt_hosts")(answer).splitlines() == [
        "hyper1",
        "  maintenance: no",
        "  memory: limit 8.0 GiB, promised 512 MiB",
    ]


def test_headings_stand_above_their_rows_after_an_empty_line():
    view = {"titles": ["A", "B"], "rows": [["a", "1"], ["bb", "2"]], "headings": [[1, "Next\x1b"]]}

    lines = outputter("virt_table")(view).splitlines()

    assert lines == ["A   B", "a   1", "", "Next\\x1b", "bb  2"]


@pytest.mark.parametrize("word", [None, "disk", "init", "pool_start"])
def test_help_is_not_wider_than_a_terminal(word):
    view = views.find("virt.help", commandhelp.report(ROOT / "_runners", word), {})

    text = outputter("virt_table" if "rows" in view else "virt_done")(view)

    # Only commands to type are never wrapped.
    wide_lines = [line for line in text.splitlines() if len(line) > 78 and "salt" not in line]
    assert wide_lines == []
    assert "Traceback" not in text and "salt" in text
