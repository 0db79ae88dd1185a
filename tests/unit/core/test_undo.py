"""An undo runs to its end despite further signals, and a failed undo is logged."""

import multiprocessing
import os
import signal
import threading
import time

import pytest
from saltvirt.core import undo
from saltvirt.core.errors import VirtError
from saltvirt.entry import runners

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def in_another_process(function, *args):
    """Run a function in a process of its own, with its standard error in a file."""
    parent_end, child_end = multiprocessing.Pipe()

    def run():
        os.dup2(os.open(args[0] / "stderr", os.O_WRONLY | os.O_CREAT), 2)
        # Salt's own script sets this handler.
        signal.signal(signal.SIGINT, lambda *_: exit(0))
        function(child_end, *args)

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    assert parent_end.recv() == "there"
    return process, parent_end


def two_steps(folder, interrupted_by):
    """Return undo steps, in the middle of which an impatient user sends a signal."""
    (folder / "made").touch()
    return [((folder / "made").unlink,), (os.kill, os.getpid(), interrupted_by)]


def wait_for_signal():
    """Wait for a signal; one that comes just before signal.pause() would not end that."""
    while True:
        time.sleep(0.01)


def run_job(pipe, folder, second):
    """Work on a host until a signal arrives."""
    with undo.on_signals(), undo.on_failure() as steps:
        for step in two_steps(folder, second):
            steps.undo_with(*step)
        pipe.send("there")
        wait_for_signal()


def run_runner(pipe, folder, second):
    """Work on a master until a signal arrives; send the runner's answer."""

    @runners.runner_function
    def run():
        with undo.on_failure() as steps:
            for step in two_steps(folder, second):
                steps.undo_with(*step)
            pipe.send("there")
            wait_for_signal()

    globals().update(__opts__={"user": "root"}, __context__={})
    pipe.send(run())


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_a_job_that_gets_two_signals_undoes_all_its_steps(tmp_path, first, second):
    process, _pipe = in_another_process(run_job, tmp_path, second)

    os.kill(process.pid, first)
    process.join(10)

    assert not (tmp_path / "made").exists()
    assert (tmp_path / "stderr").read_text().count("Ending already") == 1
    assert process.exitcode == (0 if first == signal.SIGINT else 128 + first)


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_a_runner_that_gets_two_signals_undoes_all_and_reports_it(tmp_path, first, second):
    process, pipe = in_another_process(run_runner, tmp_path, second)

    os.kill(process.pid, first)
    assert pipe.poll(10)

    assert "interrupted" in pipe.recv()["error"]
    assert not (tmp_path / "made").exists()
    assert (tmp_path / "stderr").read_text().count("Ending already") == 1
    process.join(10)


def test_a_signal_during_an_undo_takes_effect_afterwards():
    undone = []
    before = [signal.getsignal(number) for number in SIGNALS]

    with pytest.raises(SystemExit) as ended, undo.on_signals(), undo.on_failure() as steps:
        steps.undo_with(undone.append, "first")
        steps.undo_with(os.kill, os.getpid(), signal.SIGHUP)
        raise VirtError("no room")

    assert undone == ["first"]
    assert ended.value.code == 128 + signal.SIGHUP
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with undo.on_signals(), undo.undisturbed():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_thread_leaves_the_signals_alone():
    handlers = []

    def work():
        with undo.on_signals(), undo.undisturbed():
            handlers.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert handlers == [[signal.getsignal(number) for number in SIGNALS]]


def test_a_failed_undo_is_logged_with_names_but_no_other_arguments(caplog):
    def discard(opts, name, text):
        raise OSError("no rights")

    with pytest.raises(VirtError), undo.on_failure() as steps:
        steps.undo_with(discard, {"password": "hidden"}, "web1", "two\nlines")
        raise VirtError("no room")

    assert steps.failed == ["discard(web1): no rights"]
    assert "undo step failed: discard(web1): no rights" in caplog.text
    assert "hidden" not in caplog.text
