"""What was begun is undone to its end, whoever is impatient; what could not be undone is known."""

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
    """Run a function in a process of its own, with what it writes to standard error in a file."""
    here, there = multiprocessing.Pipe()

    def run():
        os.dup2(os.open(args[0] / "stderr", os.O_WRONLY | os.O_CREAT), 2)
        # Salt's own script does so.
        signal.signal(signal.SIGINT, lambda *_: exit(0))
        function(there, *args)

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    assert here.recv() == "there"
    return process, here


def two_steps(folder, interrupted_by):
    """Return undo steps, in the middle of which an impatient user sends a signal."""
    (folder / "made").touch()
    return [((folder / "made").unlink,), (os.kill, os.getpid(), interrupted_by)]


def rest():
    """Wait for a signal; one that comes just before signal.pause() would not end that."""
    while True:
        time.sleep(0.01)


def a_job(pipe, folder, second):
    """Work on a host until told to end."""
    with undo.on_signals(), undo.on_failure() as steps:
        for step in two_steps(folder, second):
            steps.undo_with(*step)
        pipe.send("there")
        rest()


def a_runner(pipe, folder, second):
    """Work on a master until told to end; say what the runner returns."""

    @runners.runner_function
    def run():
        with undo.on_failure() as steps:
            for step in two_steps(folder, second):
                steps.undo_with(*step)
            pipe.send("there")
            rest()

    globals().update(__opts__={"user": "root"}, __context__={})
    pipe.send(run())


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_a_job_that_is_told_twice_to_end_undoes_all_it_began(tmp_path, first, second):
    process, _pipe = in_another_process(a_job, tmp_path, second)

    os.kill(process.pid, first)
    process.join(10)

    assert not (tmp_path / "made").exists()
    assert (tmp_path / "stderr").read_text().count("Ending already") == 1
    assert process.exitcode == (0 if first == signal.SIGINT else 128 + first)


@pytest.mark.parametrize("second", SIGNALS)
@pytest.mark.parametrize("first", SIGNALS)
def test_a_runner_that_is_told_twice_to_end_undoes_all_and_says_so(tmp_path, first, second):
    process, pipe = in_another_process(a_runner, tmp_path, second)

    os.kill(process.pid, first)
    assert pipe.poll(10)

    assert "interrupted" in pipe.recv()["error"]
    assert not (tmp_path / "made").exists()
    assert (tmp_path / "stderr").read_text().count("Ending already") == 1
    process.join(10)


def test_a_signal_that_comes_while_a_failure_is_undone_takes_effect_afterwards():
    done = []
    before = [signal.getsignal(number) for number in SIGNALS]

    with pytest.raises(SystemExit) as ended, undo.on_signals(), undo.on_failure() as steps:
        steps.undo_with(done.append, "first")
        steps.undo_with(os.kill, os.getpid(), signal.SIGHUP)
        raise VirtError("no room")

    assert done == ["first"]
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
    seen = []

    def work():
        with undo.on_signals(), undo.undisturbed():
            seen.append([signal.getsignal(number) for number in SIGNALS])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [[signal.getsignal(number) for number in SIGNALS]]


def test_what_could_not_be_undone_is_known_without_what_it_was_given_beside_names(caplog):
    def discard(opts, name, text):
        raise OSError("no rights")

    with pytest.raises(VirtError), undo.on_failure() as steps:
        steps.undo_with(discard, {"password": "hidden"}, "web1", "two\nlines")
        raise VirtError("no room")

    assert steps.failed == ["discard(web1): no rights"]
    assert "undo step failed: discard(web1): no rights" in caplog.text
    assert "hidden" not in caplog.text
