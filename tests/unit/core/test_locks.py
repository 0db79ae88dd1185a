"""Locks between processes, and steps that a process undoes before it ends."""

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from saltvirt.core import locks, undo
from saltvirt.core.errors import StorageError


def in_another_process(function, *args):
    """Start a function in a process of its own, which writes to the pipe when it is ready."""
    fork = multiprocessing.get_context("fork")
    parent_end, child_end = fork.Pipe()
    process = fork.Process(target=function, args=(child_end, *args))
    process.start()
    assert parent_end.recv() == "there"
    return process, parent_end


def hold(pipe, path):
    """Hold a lock until a message arrives."""
    with locks.hold_lock(path):
        pipe.send("there")
        pipe.recv()


def test_a_lock_has_one_holder_at_a_time_and_leaves_no_file(tmp_path):
    path = tmp_path / "a" / "lock"
    process, pipe = in_another_process(hold, path)

    assert locks.is_held(path)
    with locks.hold_lock(path, wait=False) as handle:
        assert handle is None
    pipe.send("end")
    with locks.hold_lock(path) as handle:
        assert handle is not None
    process.join()
    assert not path.exists() and not locks.is_held(path)


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    process, _pipe = in_another_process(hold, tmp_path / "lock")

    os.kill(process.pid, signal.SIGKILL)
    process.join()

    with locks.hold_lock(tmp_path / "lock", wait=False) as handle:
        assert handle is not None


def test_undo_runs_backwards_and_to_the_end(caplog):
    undone = []

    def fail(step):
        raise OSError(step)

    with pytest.raises(KeyboardInterrupt), undo.on_failure() as steps:
        steps.undo_with(undone.append, "first")
        steps.undo_with(fail, "second")
        steps.undo_with(undone.append, "third")
        raise KeyboardInterrupt

    assert undone == ["third", "first"]
    assert "undo step failed: fail(second): second" in caplog.text


def test_success_undoes_nothing():
    undone = []

    with undo.on_failure() as steps:
        steps.undo_with(undone.append, "first")

    assert undone == []


def terminated(pipe, path):
    """Undo a step at a signal."""
    with undo.on_signals(), undo.on_failure() as steps:
        path.touch()
        steps.undo_with(path.unlink)
        pipe.send("there")
        pipe.recv()


def test_a_process_that_gets_sigterm_undoes_its_steps_first(tmp_path):
    process, _pipe = in_another_process(terminated, tmp_path / "made")
    assert (tmp_path / "made").exists()

    os.kill(process.pid, signal.SIGTERM)
    process.join()

    assert not (tmp_path / "made").exists()
    assert process.exitcode == 143


def ended_twice(pipe, path):
    """Undo two steps at a signal, with another signal in the middle."""
    with undo.on_signals(), undo.on_failure() as steps:
        path.touch()
        steps.undo_with(path.unlink)
        steps.undo_with(os.kill, os.getpid(), signal.SIGTERM)
        pipe.send("there")
        pipe.recv()


def test_a_process_that_gets_sigterm_twice_undoes_all_its_steps(tmp_path):
    process, _pipe = in_another_process(ended_twice, tmp_path / "made")

    os.kill(process.pid, signal.SIGTERM)
    process.join()

    assert not (tmp_path / "made").exists()
    assert process.exitcode == 143


def failing_opener(number):
    """Return an opener that fails with this error of a file system."""

    def refuse(path, _flags):
        raise OSError(number, os.strerror(number), str(path))

    return refuse


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "No space left on device; make room"),
        (errno.EDQUOT, "Disk quota exceeded; make room in its quota"),
        (errno.EROFS, "Read-only file system; see why it may only be read"),
        (errno.EIO, "Input/output error$"),
    ],
)
def test_a_lock_that_cannot_be_made_is_one_line(tmp_path, monkeypatch, number, remedy):
    monkeypatch.setattr(locks, "private", failing_opener(number))
    expected = f"^cannot make the lock {tmp_path}/lock: {remedy}"

    with pytest.raises(StorageError, match=expected), locks.hold_lock(tmp_path / "lock"):
        pytest.fail("nobody has it")
    with pytest.raises(StorageError, match=expected):
        locks.lock_for_program(tmp_path / "lock")


def test_a_locks_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "a").write_text("no folder")

    with (
        pytest.raises(StorageError, match="cannot make the lock .*/a/lock: File exists"),
        locks.hold_lock(tmp_path / "a" / "lock"),
    ):
        pytest.fail("nobody has it")


def test_a_missing_permission_for_a_lock_is_explained_by_the_master(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "private", failing_opener(errno.EACCES))

    with pytest.raises(PermissionError), locks.hold_lock(tmp_path / "lock"):
        pytest.fail("nobody has it")


def test_a_lock_that_cannot_be_removed_does_not_hide_the_error(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="the real one"), locks.hold_lock(tmp_path / "lock"):
        monkeypatch.setattr(
            Path, "unlink", lambda *_a, **_k: failing_opener(errno.EROFS)("lock", 0)
        )
        raise StorageError("the real one")

    assert not locks.is_held(tmp_path / "lock")
