"""What a runner function returns, how it reports a failure, and when it prints a table."""

import io
import multiprocessing
import socket
import weakref
from contextlib import redirect_stdout

import pytest
import salt.version
from salt.utils.event import NamespacedEvent
from saltvirt.cells import cellside, run
from saltvirt.cluster import progress
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.entry import runners

__context__ = {}
__opts__ = {"user": "root", "max_event_size": 1 << 20}
__jid_event__ = None


class Bus:
    """Stand for the master's event bus, which needs a master."""

    def __init__(self):
        self.fired = []

    def fire_event(self, data, tag):
        """Do nothing."""
        self.fired.append(dict(data))


def job(number, printed=None):
    """Return Salt's own event bus of a job; ``printed`` gets its output."""
    show = None if printed is None else lambda suffix, event: printed.append((suffix, event))
    return NamespacedEvent(Bus(), f"salt/run/{number}", print_func=show)


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    __context__.clear()
    monkeypatch.setattr(runners, "__jid_event__", None, raising=False)


@runners.runner_function
def command(name, count=1):
    """Stand for a runner function."""
    if count == 0:
        raise BadArgument("count", "0 is out of range")
    if count < 0:
        error = VirtError("nothing fits")
        error.table = {"hosts": {}}
        raise error
    return {name: count}


@runners.runner_function(outputter="virt_query")
def table():
    """Stand for a runner function with a table as its view."""
    __jid_event__.fire_event({"message": "on its way"}, "progress")
    return {"hyper1": {}}


@runners.runner_function
def emptied(host=None, *entries):
    """Stand for a runner function with a variable number of arguments after another one."""
    return {host: list(entries)}


@runners.runner_function(outputter="virt_table")
def viewed():
    """Stand for a runner function with more in its view than in its answer."""
    if not runners.is_view_wanted(__opts__, runners._job()):
        return runners.Viewed(answer={"a": 1}, view=None)
    return runners.Viewed(answer={"a": 1}, view={"titles": ["NAME"], "rows": [["a"]], "said": []})


@runners.runner_function
def next_host():
    """Stand for a function with a view that is made from its answer."""
    return "hyper1"


@runners.runner_function
def audit():
    """Stand for the function that audits a master."""
    return {"findings": []}


def test_a_master_that_cannot_identify_minions_only_audits_and_shuts_out(
    monkeypatch,
):
    monkeypatch.setattr(salt.version, "__version__", "3006.11")

    assert "Salt 3006.11 on this master gives any minion" in command("a")["error"]
    assert audit() == {"findings": []}
    assert runners._ALWAYS == ("virt.audit", "virt.disallow")


def test_with_cells_arguments_keep_their_positions(monkeypatch):
    """virt.trash_empty has such arguments, for example."""
    monkeypatch.setattr(run, "command", lambda _opts, _job, _jid, call, run_here: run_here(call))
    monkeypatch.setitem(__opts__, "virt", {"cells": {"west": {}}})

    assert emptied("hyper1", "a", "b") == {"hyper1": ["a", "b"]}
    assert emptied(host="hyper1") == {"hyper1": []}
    assert command(name="a") == {"a": 1}


def test_the_answer_is_plain_data_and_a_success():
    assert command("a", __pub_user="root") == {"a": 1}
    assert __context__ == {}


def test_a_failure_is_plain_data_with_an_exit_code_for_salt():
    assert command("a", count=0) == {"error": "count: 0 is out of range", "retcode": 1}
    assert __context__["retcode"] == 1
    assert command("a", count=-1) == {"error": "nothing fits", "hosts": {}, "retcode": 1}


@pytest.mark.parametrize("outcome", [{"a": 1}, BadArgument("count", "0"), RuntimeError("broken")])
def test_the_answer_for_a_master_above_is_stored(tmp_path, monkeypatch, outcome):
    """Any minion could have written the entries of Salt's own job cache."""

    def called(*_args):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setitem(__opts__, "cachedir", str(tmp_path))
    monkeypatch.setattr(runners, "_dispatch", called)
    job_of_master_above, own_job = job("20261124202137000000"), job("20261124202137000001")
    answers = []
    for event_bus, kwargs in ((job_of_master_above, {"cell": "local"}), (own_job, {})):
        monkeypatch.setattr(runners, "__jid_event__", weakref.proxy(event_bus))
        try:
            answers.append(command("a", **kwargs))
        except RuntimeError:
            answers.append("Exception occurred in runner virt.command: broken")

    assert cellside._read_answer(__opts__, "20261124202137000000") == (answers[0],)
    assert cellside._read_answer(__opts__, "20261124202137000001") is None


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), (("a", 1, 2), {}), (("a",), {"cuont": 2})])
def test_wrong_arguments_of_a_runner_are_an_error_not_a_help_page(args, kwargs):
    answer = command(*args, **kwargs)

    assert answer["retcode"] == 1
    assert answer["error"].startswith("virt.command: ")
    assert "salt-run -d virt.command" in answer["error"]


def test_wrong_arguments_of_another_runner_name_that_one(monkeypatch):
    monkeypatch.setitem(globals(), "__virtualname__", "virt_pki")

    assert command()["error"].startswith("virt_pki.command: ")
    assert "salt-run -d virt_pki.command" in command()["error"]


def test_the_table_goes_to_the_caller_and_the_event_stays_plain(monkeypatch):
    printed = []
    events = job(1, printed)
    monkeypatch.setattr(runners, "__jid_event__", events)

    answer = table()
    ended = {"fun": "runner.virt.query", "return": answer}
    events.fire_event(ended, "ret")

    assert answer == {"hyper1": {}}
    assert ended == {"fun": "runner.virt.query", "return": answer}
    assert printed == [
        ("progress", {"message": "on its way"}),
        ("ret", {**ended, "outputter": "virt_query"}),
    ]


@pytest.mark.parametrize("most_bytes", [5, 1 << 20])
@pytest.mark.parametrize("is_shown", [True, False])
def test_an_answer_too_large_for_events_is_left_out_of_them_for_a_waiting_caller(
    monkeypatch, most_bytes, is_shown
):
    printed = []
    events = job(1, printed if is_shown else None)
    monkeypatch.setattr(runners, "__jid_event__", events)
    monkeypatch.setitem(__opts__, "max_event_size", most_bytes)
    bus = events.event

    answer = table()
    ended = {"fun": "runner.virt.query", "return": answer}
    events.fire_event(ended, "ret")

    is_spared = is_shown and most_bytes == 5
    assert bus.fired[-1]["return"] == ("VALUE_TRIMMED" if is_spared else answer)
    assert bus.fired[0]["message"] == "on its way"
    assert ended["return"] is answer
    assert [event["return"] for suffix, event in printed if suffix == "ret"] == [answer] * is_shown


def test_answers_of_api_and_background_jobs_are_fired_unchanged(monkeypatch):
    """Salt gives such a job a printing event bus as well, in a child without a terminal."""
    monkeypatch.setitem(__opts__, "max_event_size", 5)
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def done():
        runners.__jid_event__ = events = job(1, [])
        answer = table()
        events.fire_event({"fun": "runner.virt.query", "return": answer}, "ret")
        bus = getattr(events.event, "_event", events.event)
        sender.send(bus.fired[-1]["return"])

    child = fork.Process(target=done)
    child.start()
    child.join(20)

    assert receiver.poll() and receiver.recv() == {"hyper1": {}}


def test_an_answer_that_its_table_cannot_show_is_printed_as_salt_would(monkeypatch):
    """Salt itself survives only three kinds of errors, which a hostile cell could exploit."""
    printed = []

    def show(suffix, event):
        if "outputter" in event:
            format("many", ".2f")
        printed.append((suffix, event))

    monkeypatch.setattr(runners, "__jid_event__", NamespacedEvent(Bus(), "a", print_func=show))

    ended = {"fun": "runner.virt.query", "return": command("a")}
    shown = "virt_plan", ended["return"]
    runners._print_by(runners._job(), ended["return"], lambda: shown)
    runners._job().print_func("ret", ended)

    assert printed == [("ret", ended)]


def test_a_job_that_only_called_the_function_is_printed_as_usual(monkeypatch):
    printed = []
    events = job(1, printed)
    monkeypatch.setattr(runners, "__jid_event__", events)

    ended = {"fun": "runner.state.orchestrate", "return": {"outputter": "highstate", **table()}}
    events.fire_event(ended, "ret")

    assert printed[-1] == ("ret", ended)


@runners.runner_function(outputter="virt_query", streams=True)
def streaming(stream=False, fails=False):
    """Stand for a runner function that prints lines."""
    line = progress.lines(__opts__, __jid_event__) if stream else None
    if line is not None:
        line({"host": "hyper1", "answer": {}})
    if fails:
        raise VirtError("nobody answers")
    return {"hyper1": {}}


def events_of_ended_job(events, **options):
    """Call the function in a job, and let Salt end the job."""
    answer = streaming(**options)
    events.fire_event({"fun": "runner.virt.query", "return": answer}, "ret")
    return answer


def test_a_stream_is_printed_line_by_line_and_nothing_after_it(monkeypatch):
    printed = []
    events = job(1, printed)
    monkeypatch.setattr(runners, "__jid_event__", events)

    assert events_of_ended_job(events, stream=True) == {"hyper1": {}}
    assert printed == [
        (
            "stream",
            {"message": '{"host": "hyper1", "answer": {}}', "outputter": "virt_progress"},
        )
    ]


def test_a_failure_of_a_stream_is_a_line_too(monkeypatch):
    printed = []
    events = job(1, printed)
    monkeypatch.setattr(runners, "__jid_event__", events)

    assert events_of_ended_job(events, stream=True, fails=True)["retcode"] == 1
    assert [suffix for suffix, _event in printed] == ["stream", "stream"]
    assert printed[-1][1]["message"] == '{"error": "nobody answers", "retcode": 1}'


@pytest.mark.parametrize("option", ["output", "output_file"])
def test_with_the_callers_own_outputter_all_output_comes_at_the_end(monkeypatch, option):
    printed = []
    events = job(1, printed)
    monkeypatch.setattr(runners, "__jid_event__", events)
    monkeypatch.setitem(__opts__, option, "json")

    events_of_ended_job(events, stream=True)

    assert [(suffix, event["return"]) for suffix, event in printed] == [("ret", {"hyper1": {}})]


def test_without_a_waiting_caller_a_stream_is_plain_data(monkeypatch):
    monkeypatch.setattr(runners, "__jid_event__", job(1))
    assert streaming(stream=True) == {"hyper1": {}}
    monkeypatch.setattr(runners, "__jid_event__", None)
    assert streaming(stream=True) == {"hyper1": {}}


def test_without_output_no_outputter_is_chosen(monkeypatch):
    events = job(1)
    monkeypatch.setattr(runners, "__jid_event__", events)

    table()

    assert events.print_func is None


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_failure_is_shown_though_its_master_has_ended(monkeypatch, tmp_path, is_there, was_there):
    """Salt shows an answer after it has sent it to the master, which may be killed by then."""
    printed = []
    events = job(1, printed)
    events.event.cpush = was_there
    monkeypatch.setattr(runners, "__jid_event__", events)
    monkeypatch.setitem(__opts__, "sock_dir", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as pulls:
        if is_there:
            pulls.bind(str(tmp_path / "master_event_pull.ipc"))
            pulls.listen()

        data = command("a", 0)

    assert [event["return"] for _suffix, event in printed] == (
        [data] if was_there and not is_there else []
    )


def test_a_failure_does_not_affect_later_jobs_of_the_same_client(monkeypatch):
    first, second = job(1), job(2)
    monkeypatch.setattr(runners, "__jid_event__", first)
    command("a", count=0)
    command("a")
    assert __context__["retcode"] == 1, "a runner that went on after a failure has failed"

    monkeypatch.setattr(runners, "__jid_event__", second)
    command("a")
    assert __context__ == {}

    __context__["retcode"] = 3
    command("a")
    assert __context__ == {"retcode": 3}, "that is another's"


def test_each_line_of_progress_is_in_a_file_at_once(monkeypatch, tmp_path):
    class Bus:
        """Salt's event bus, which prints an event if a caller waits for the job."""

        def fire_event(self, data, _tag):
            print(data["message"])

    shown = progress.callback({}, Bus(), "vm")
    path = tmp_path / "out"
    with path.open("w") as out, redirect_stdout(out):
        shown("Starting")
        assert path.read_text() == "vm: Starting\n"
        shown("Waiting")
        assert path.read_text() == "vm: Starting\nvm: Waiting\n"
    with redirect_stdout(out):
        progress._flush()  # the reader is gone


def test_progress_without_its_event_bus_disturbs_nothing(monkeypatch):
    events = job(1, [])
    monkeypatch.setattr(runners, "__jid_event__", weakref.proxy(events))
    assert runners._job().base == "salt/run/1"
    shown = progress.callback({}, runners._job(), "vm")
    shown("Starting")
    del events

    with redirect_stdout(io.StringIO()):
        shown("Waiting")
        progress.callback({}, runners._job(), "vm")("Waiting")
    assert runners._job() is None
    assert command("a") == {"a": 1}


@pytest.mark.parametrize(
    ("function", "answer", "outputter", "shown"),
    [
        (viewed, {"a": 1}, "virt_table", {"titles": ["NAME"], "rows": [["a"]], "said": []}),
        (next_host, "hyper1", "virt_done", {"said": ["hyper1"]}),
        (lambda: command("a"), {"a": 1}, "virt_done", {"a": 1}),
    ],
)
def test_a_terminal_shows_the_view_and_programs_get_the_answer(
    monkeypatch, function, answer, outputter, shown
):
    assert function() == answer
    printed = []
    current_job = job("20261124202137000000", printed)
    monkeypatch.setattr(runners, "__jid_event__", weakref.proxy(current_job))

    returned = function()
    current_job.print_func("ret", {"return": returned})

    assert returned == answer
    assert printed == [("ret", {"return": shown, "outputter": outputter})]


def test_with_the_callers_own_outputter_the_answer_itself_is_shown(monkeypatch):
    printed = []
    current_job = job("20261124202137000000", printed)
    monkeypatch.setattr(runners, "__jid_event__", weakref.proxy(current_job))
    monkeypatch.setitem(__opts__, "output", "yaml")

    ours_answer = viewed()
    current_job.print_func("ret", {"return": ours_answer})

    assert [event["return"] for _suffix, event in printed] == [{"a": 1}]


def test_a_cells_part_of_an_answer_has_no_view(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "command", lambda _opts, _job, _jid, call, run_here: run_here(call))
    monkeypatch.setitem(__opts__, "virt", {"cells": {"west": {}}})
    monkeypatch.setitem(__opts__, "cachedir", str(tmp_path))
    monkeypatch.setattr(runners, "_is_of_cloud", lambda _function: True)
    printed = []
    current_job = job("20261124202137000000", printed)
    monkeypatch.setattr(runners, "__jid_event__", weakref.proxy(current_job))

    for cell in ({}, {"cell": "local"}):
        answer = viewed(**cell)
        current_job.print_func("ret", {"return": answer})

    assert [event["return"].get("titles") for _suffix, event in printed] == [None, ["NAME"]]
