"""No text of strangers can control the operator's terminal, wherever it is shown."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import logging
import unicodedata
from pathlib import Path

import pytest
import salt.config
import salt.output
from hostiletext import HOSTILE, TEXTS, filled, steering
from hypothesis import given
from hypothesis import strategies as st
from salt.utils.event import NamespacedEvent
from saltvirt.checks.audit import auditanswer
from saltvirt.checks.doctor import doctoranswer
from saltvirt.checks.setup import setupanswer
from saltvirt.cluster import progress
from saltvirt.core import errors, findings, terminal, wire
from saltvirt.core.protocol import effects
from saltvirt.entry import runners
from saltvirt.placement import answers, brief, shownvms

ROOT = Path(__file__).resolve().parents[3]
OUTPUTTERS = sorted(path.stem for path in (ROOT / "_output").glob("virt_*.py"))
ANSWERS = [
    kind
    for module in (answers, auditanswer, brief, doctoranswer, effects, setupanswer, shownvms)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    if kind.__module__ == module.__name__
]

__context__ = {}
__opts__ = {}
__jid_event__ = None


@pytest.fixture(scope="module", autouse=True)
def _options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("master")
    __opts__.update(salt.config.master_config(None))
    __opts__.update(
        user="root",
        cachedir=str(folder),
        extension_modules=str(folder),
        outputter_dirs=[str(ROOT / "_output")],
        color=False,
    )


def outputter(name):
    """Load an outputter as Salt's loader does: by its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "_output" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bus:
    """Stand for the master's event bus, which needs a master."""

    def fire_event(self, _data, _tag):
        """Do nothing."""


def on_screen(monkeypatch, data, name, option=None):
    """Return salt-run's output for an answer of a runner function, by Salt's own outputters."""
    printed = []

    def show(suffix, event):
        assert suffix == "ret"
        printed.append(salt.output.out_format(event["return"], event.get("outputter"), __opts__))

    job = NamespacedEvent(Bus(), "salt/run/1", print_func=show)
    monkeypatch.setattr(runners, "__jid_event__", job, raising=False)
    monkeypatch.setattr(runners.compat, "refuse_old_master", lambda: None)
    monkeypatch.setitem(__opts__, "output", option) if option else __opts__.pop("output", None)

    @runners.runner_function(outputter=name)
    def shown():
        return data

    # Salt cannot send half of a surrogate pair, so only that is replaced.
    answer = shown()
    assert answer is data or "\\ud800" in str(answer)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runners._job().print_func("ret", {"return": answer})
    return printed[0] if printed else out.getvalue()


def around(plain):
    """Return the places in which a host's answer occurs in that of a runner."""
    yield plain
    yield {HOSTILE: plain}
    yield {"hyper1": plain, "failed": {HOSTILE: HOSTILE}, "unreachable": [HOSTILE]}
    yield {"error": HOSTILE, "hosts": {HOSTILE: plain}, "helps": [HOSTILE], "retcode": 1}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS, ids=[f"{k.__module__}.{k.__name__}" for k in ANSWERS])
def test_no_answer_of_a_host_steers_the_terminal(monkeypatch, kind):
    plain = wire.plain(filled(kind))
    for data in around(plain):
        for name in (*OUTPUTTERS, None):
            text = on_screen(monkeypatch, data, name)
            assert steering(text) == set(), (name, text)


CANDIDATE = {"why": HOSTILE, "fingerprint": HOSTILE, "vm_on": [HOSTILE]}
ROW = {"fits": False, "score": 0.0, "reasons": [HOSTILE], "note": HOSTILE}
INFO = {
    "cpu": {"vcpus_limit": 1, "vcpus_committed": 0},
    "memory": {"limit_mib": 1, "committed_mib": 0},
    "storage": {"limit_mib": 1, "committed_mib": 0},
    "domain_types": {"default": None, "why": HOSTILE},
    "vms": {},
    "unreadable": {HOSTILE: HOSTILE},
}
VM = {
    "cpu": 2,
    "mem": 524288,
    "state": HOSTILE,
    "graphics": {"type": HOSTILE, "listen": HOSTILE, "port": HOSTILE},
    "disks": {HOSTILE: {"file": HOSTILE, "file format": HOSTILE, "error": HOSTILE}},
    "nics": {HOSTILE: {"source": {"bridge": HOSTILE}, "type": HOSTILE}},
    "addresses": [HOSTILE],
    "addresses_from": HOSTILE,
    "login": f"{HOSTILE} ({HOSTILE})",
}
NODE = {"cpus": 4, "phymemory": 8192}
TABLES = {
    "virt_audit": [
        {
            "error": HOSTILE,
            "findings": [{"where": HOSTILE, "check": HOSTILE, "what": HOSTILE, "fix": HOSTILE}],
            "checked": [HOSTILE],
            "ready": HOSTILE,
        }
    ],
    "virt_done": [
        {"said": [HOSTILE]},
        {HOSTILE: {HOSTILE: [HOSTILE]}},
        {"error": HOSTILE, "candidates": {HOSTILE: CANDIDATE}, "failed": {HOSTILE: HOSTILE}},
        HOSTILE,
    ],
    "virt_hosts": [
        {HOSTILE: INFO, "failed": {HOSTILE: HOSTILE}, "duplicates": {HOSTILE: [HOSTILE]}},
        {"hyper1": {HOSTILE: HOSTILE}, "unreachable": [HOSTILE]},
        {"error": HOSTILE, "candidates": {HOSTILE: CANDIDATE}},
    ],
    "virt_images": [
        {HOSTILE: {HOSTILE: {"os": HOSTILE, "users": [], "source": HOSTILE, "format": HOSTILE}}},
        {"failed": {HOSTILE: HOSTILE}, "unreachable": [HOSTILE]},
        {"error": HOSTILE},
    ],
    "virt_lost": [
        {
            "host": HOSTILE,
            "state": HOSTILE,
            "vms": {
                HOSTILE: {
                    "shared_disks": {HOSTILE: [HOSTILE]},
                    "open": [HOSTILE],
                    "also_on": [HOSTILE],
                }
            },
            "moves": {HOSTILE: HOSTILE},
            "unasked": {HOSTILE: HOSTILE},
            "steps": [{"step": HOSTILE, "commands": [HOSTILE]}],
        },
        {"error": HOSTILE},
    ],
    "virt_moves": [
        {
            "moves": {HOSTILE: HOSTILE},
            "stays": {HOSTILE: HOSTILE},
            "failed": {HOSTILE: [HOSTILE]},
            "gone": [HOSTILE],
            "error": HOSTILE,
            "helps": [HOSTILE],
        },
        {"moves": [{"name": HOSTILE, "from": HOSTILE, "to": HOSTILE, "gain": 1.0}]},
    ],
    "virt_plan": [
        {HOSTILE: ROW},
        {HOSTILE: {**ROW, "chosen": True, "vm": HOSTILE, "warnings": [HOSTILE]}},
        {"error": HOSTILE, "hosts": {HOSTILE: ROW}, "candidates": {HOSTILE: CANDIDATE}},
        {"error": HOSTILE, "console_command": HOSTILE, "console": [HOSTILE], "login": HOSTILE},
        {"error": HOSTILE, "console_command": HOSTILE, "console_error": HOSTILE},
        {"name": HOSTILE, "host": HOSTILE, "login": HOSTILE, "warnings": [HOSTILE]},
        {"name": HOSTILE, "from": HOSTILE, "to": HOSTILE, "warning": HOSTILE},
        {
            **{"name": HOSTILE, "from": HOSTILE, "to": HOSTILE, "state": HOSTILE},
            **{"memory_mib": 1, "disks": {HOSTILE: HOSTILE}},
        },
    ],
    "virt_progress": [{"event": {"message": HOSTILE}}, HOSTILE],
    "virt_query": [
        {HOSTILE: {"freecpu": 1, "freemem": 1.0, "node_info": NODE, "vm_info": {HOSTILE: VM}}},
        {HOSTILE: {HOSTILE: {"state": HOSTILE, HOSTILE: HOSTILE}}, "failed": {HOSTILE: HOSTILE}},
        {"error": HOSTILE},
    ],
    "virt_table": [
        {
            "titles": [HOSTILE, HOSTILE],
            "rows": [[HOSTILE, 2**31]],
            "sizes": [HOSTILE],
            "said": [HOSTILE],
        },
        {"error": HOSTILE, "last_seen": {HOSTILE: [HOSTILE]}, "duplicates": {HOSTILE: [HOSTILE]}},
        {HOSTILE: {HOSTILE: [HOSTILE]}, "unreachable": [HOSTILE]},
    ],
    "virt_text": [HOSTILE],
    "virt_vms": [
        {HOSTILE: {HOSTILE: HOSTILE}},
        {HOSTILE: HOSTILE},
        {HOSTILE: {HOSTILE: {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]}}},
        {"vms": {HOSTILE: {"host": HOSTILE, "outcome": HOSTILE, "error": None}}},
        {"vms": {HOSTILE: {"host": HOSTILE, "outcome": {HOSTILE: HOSTILE}, "error": HOSTILE}}},
        {"vms": {HOSTILE: HOSTILE}, "unreachable": [HOSTILE], "error": HOSTILE},
        {"error": HOSTILE, "candidates": {HOSTILE: CANDIDATE}},
    ],
}


def test_each_outputter_has_its_tables():
    assert sorted(TABLES) == OUTPUTTERS


@pytest.mark.parametrize("name", OUTPUTTERS)
def test_an_outputter_by_itself_steers_no_terminal(name):
    """``salt-run jobs.lookup_jid JID --out=virt_query`` prints answers of the job cache so."""
    for data in TABLES[name]:
        text = outputter(name).output(data)
        assert text and steering(text) == set()


@pytest.mark.parametrize("text", TEXTS)
def test_escaped_text_is_one_visible_line_that_shows_the_original(text):
    shown = terminal.escape(text)

    assert shown != text and steering(shown, lines=False) == set()
    assert outputter("virt_text").escaped(text) == shown
    assert terminal.escape(shown) == shown


@given(st.text(max_size=20))
def test_the_library_and_the_outputters_escape_alike(text):
    shown = terminal.escape(text)

    assert outputter("virt_text").escaped(text) == shown
    assert all(
        unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown
    )
    if text.isascii() and text.isprintable():
        assert shown == text


def test_the_library_and_the_outputters_name_an_unresponsive_host_alike():
    assert outputter("virt_text").NO_ANSWER == findings.NO_ANSWER


def test_no_two_keys_become_one():
    data = {"a\x1b": 1, r"a\x1b": 2, "a\x9b": 3, r"a\x1b (2)": 4}

    shown = terminal.clean(data)

    assert sorted(shown.values()) == [1, 2, 3, 4]
    assert sorted(outputter("virt_text").visible(data).values()) == [1, 2, 3, 4]


@pytest.mark.parametrize("option", [None, "json", "yaml", "nested", "txt", "raw", "pprint"])
def test_other_outputters_escape_as_well(monkeypatch, option):
    data = {text: {text: [text]} for text in TEXTS if "\ud800" not in text}

    text = on_screen(monkeypatch, data, None, option)

    assert steering(text) == set(), text
    if option == "json":
        # Programs read the exact text there.
        assert json.loads(text) == data


def test_a_program_that_calls_a_runner_gets_the_unescaped_answer(monkeypatch):
    """An orchestration is such a program: it shows nothing."""
    monkeypatch.setattr(runners, "__jid_event__", None, raising=False)
    monkeypatch.setattr(runners.compat, "refuse_old_master", lambda: None)

    @runners.runner_function
    def asked():
        return {HOSTILE: HOSTILE}

    assert asked() == {HOSTILE: HOSTILE}


def test_a_line_of_progress_is_one_visible_line():
    for stage, figures in ((HOSTILE, {}), ("Moving", {"detail": HOSTILE})):
        line = progress.text(HOSTILE, stage, figures)
        assert steering(line, lines=False) == set() and len(line) < 500


ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.VirtError)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_one_visible_line(kind):
    args = {
        errors.BadArgument: [HOSTILE, HOSTILE],
        errors.GuestAnswerRefused: [HOSTILE, HOSTILE],
        errors.HostUnreachable: [HOSTILE, HOSTILE, HOSTILE],
        errors.NoHostFits: [HOSTILE, {HOSTILE: HOSTILE}, HOSTILE],
        errors.ReservationRefused: [HOSTILE, [HOSTILE], HOSTILE],
    }.get(kind, [HOSTILE])

    error = kind(*args)

    assert steering(str(error), lines=False) == set()
    assert steering(error.message, lines=False) == set()
    assert (
        len(str(kind(*args[:-1], args[-1] if kind is errors.NoHostFits else "x" * 99999))) < 99999
    )


def test_a_line_of_the_log_is_one_visible_line(caplog):
    log = logging.getLogger("saltvirt.fleet.anything")

    log.warning("host %s says %s, %d times", HOSTILE, errors.VirtError(HOSTILE), 3)

    assert steering(caplog.messages[-1], lines=False) == set()
    assert caplog.messages[-1].endswith("3 times")


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (
            f"{'word ' * 12}salt-run virt.purge web1 force=True",
            "salt-run virt.purge web1 force=True",
        ),
        (
            f"{'word ' * 13}salt 'hyper 1' virt.update web1 mem=1",
            "salt 'hyper 1' virt.update web1 mem=1",
        ),
        (
            f"error: {'https://example.org/' + 'x' * 100} cannot be fetched",
            "https://example.org/" + "x" * 100,
        ),
        (
            f"{'word ' * 14}/srv/salt-images/a-very-long-name-of.qcow2",
            "/srv/salt-images/a-very-long-name-of.qcow2",
        ),
        (f"{'word ' * 14}`make the bed now` then", "`make the bed now`"),
        (f"{'word ' * 12}salt hyper1 virt.hold for-web on", "salt hyper1 virt.hold for-web on"),
        (f"{'word ' * 12}run salt-run virt.list again", "salt-run virt.list"),
    ],
)
def test_no_command_path_or_url_is_broken(text, token):
    lines = outputter("virt_text").wrapped(text)

    assert [line for line in lines if token in line], lines
    assert all(len(line) <= 80 or line.strip() == token for line in lines)
    assert " ".join(lines).split() == text.split()


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("hyper3.example.org", True),
        ("vm_1", True),
        ("10.0.0.1", True),
        ("hyper 3", False),
        ("hyper3 ", False),
        ("-a", False),
        ("hyper*", False),
        ("hyp\u0435r3", False),
        ("$(id)", False),
        ("", False),
        ("a" * 300, False),
        *((text, False) for text in TEXTS),
    ],
)
def test_which_id_may_be_suggested_in_a_command(text, is_plain):
    assert terminal.is_plain_id(text) is is_plain
