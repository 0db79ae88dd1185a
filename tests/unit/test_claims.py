"""Locks and claims: one builder per name, and a builder that dies leaves a note to clean up."""

import json
import multiprocessing
import os
import signal
import threading

import pytest
from saltvirt import locks, undo
from saltvirt.config import HostSettings
from saltvirt.errors import ClaimRefused, NameTaken, StorageError
from saltvirt.model import Need
from saltvirt.ops import claims

NEED = Need(name="vm1", vcpus=1, memory_mib=128, disk_mib=10)


@pytest.fixture
def host(tmp_path):
    """Settings of a host whose folders are the test's."""
    return HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))


def in_another_process(function, *args):
    """Start a function in a process of its own; it says on the pipe when it is there."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=function, args=(there, *args))
    process.start()
    assert here.recv() == "there"
    return process, here


def hold(pipe, path):
    """Hold a lock until told to end."""
    with locks.held(path):
        pipe.send("there")
        pipe.recv()


def claim_and_wait(pipe, host):
    """Claim, note a file, and wait to be killed."""
    with claims.claimed(host, NEED, lambda: None) as claim:
        claim.will_make("/srv/x.qcow2")
        pipe.send("there")
        pipe.recv()


def test_a_lock_is_one_processs_at_a_time_and_leaves_no_file(tmp_path):
    path = tmp_path / "a" / "lock"
    process, pipe = in_another_process(hold, path)

    assert locks.is_held(path)
    with locks.held(path, wait=False) as handle:
        assert handle is None
    pipe.send("end")
    with locks.held(path) as handle:
        assert handle is not None
    process.join()
    assert not path.exists() and not locks.is_held(path)


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    process, _pipe = in_another_process(hold, tmp_path / "lock")

    os.kill(process.pid, signal.SIGKILL)
    process.join()

    with locks.held(tmp_path / "lock", wait=False) as handle:
        assert handle is not None


def test_a_live_claim_is_seen_and_its_name_is_taken(host):
    process, pipe = in_another_process(claim_and_wait, host)

    assert claims.live(host)["vm1"]["memory_mib"] == 128
    assert claims.stale(host) == {}
    with (
        pytest.raises(NameTaken, match="being built on this host at this moment"),
        claims.claimed(host, NEED, lambda: None),
    ):
        pass
    pipe.send("end")
    process.join()
    assert claims.live(host) == {}
    assert os.listdir(claims.folder(host)) == []


def test_a_killed_builder_leaves_a_note_of_what_it_was_making(host):
    process, _pipe = in_another_process(claim_and_wait, host)

    os.kill(process.pid, signal.SIGKILL)
    process.join()

    assert claims.live(host) == {}
    assert claims.stale(host)["vm1"]["paths"] == ["/srv/x.qcow2"]


def test_a_claim_cut_off_in_the_middle_of_a_write_is_read_as_empty(host):
    claims.folder(host).mkdir(parents=True)
    (claims.folder(host) / "vm1.json").write_text('{"name": "vm1", "pa')

    assert claims.stale(host)["vm1"]["paths"] == []


def test_a_refused_claim_leaves_nothing(host):
    def refuse():
        raise ClaimRefused("vm1", ["no room"])

    with pytest.raises(ClaimRefused), claims.claimed(host, NEED, refuse):
        pass

    assert os.listdir(claims.folder(host)) == []
    assert not (claims.folder(host).parent / "claims.lock").exists()


def test_a_claim_ends_with_an_error_too(host):
    with pytest.raises(RuntimeError), claims.claimed(host, NEED, lambda: None) as claim:
        claim.will_define()
        assert json.loads((claims.folder(host) / "vm1.json").read_text())["defines"] is True
        raise RuntimeError

    assert os.listdir(claims.folder(host)) == []


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    host = HostSettings(state_dir=str(tmp_path / "file" / "state"))

    with pytest.raises(StorageError, match="cannot make the folder"), claims.claimed(
        host, NEED, lambda: None
    ):
        pass


def test_undo_runs_backwards_and_to_the_end(caplog):
    done = []

    def fail(step):
        raise OSError(step)

    with pytest.raises(KeyboardInterrupt), undo.on_failure() as steps:
        steps.then(done.append, "first")
        steps.then(fail, "second")
        steps.then(done.append, "third")
        raise KeyboardInterrupt

    assert done == ["third", "first"]
    assert "undo step fail('second',) failed: second" in caplog.text


def test_success_undoes_nothing():
    done = []

    with undo.on_failure() as steps:
        steps.then(done.append, "first")

    assert done == []


def terminated(pipe, path):
    """Undo a step when told to end."""
    with undo.on_sigterm(), undo.on_failure() as steps:
        path.touch()
        steps.then(path.unlink)
        pipe.send("there")
        pipe.recv()


def test_a_process_that_is_told_to_end_undoes_its_steps_first(tmp_path):
    process, _pipe = in_another_process(terminated, tmp_path / "made")
    assert (tmp_path / "made").exists()

    os.kill(process.pid, signal.SIGTERM)
    process.join()

    assert not (tmp_path / "made").exists()
    assert process.exitcode == 143


def told_twice(pipe, path):
    """Undo two steps when told to end; be told again in the middle of it."""
    with undo.on_sigterm(), undo.on_failure() as steps:
        path.touch()
        steps.then(path.unlink)
        steps.then(os.kill, os.getpid(), signal.SIGTERM)
        pipe.send("there")
        pipe.recv()


def test_a_process_that_is_told_twice_to_end_undoes_all_its_steps(tmp_path):
    process, _pipe = in_another_process(told_twice, tmp_path / "made")

    os.kill(process.pid, signal.SIGTERM)
    process.join()

    assert not (tmp_path / "made").exists()
    assert process.exitcode == 143


def test_a_claim_that_is_being_written_is_waited_for(host):
    path = claims.folder(host) / "busy.json"
    content = {"name": "busy", "vcpus": 2, "memory_mib": 64, "paths": [], "defines": False}
    with locks.held(path) as handle:
        # What a reader sees between the truncation and the end of a write.
        handle.write('{"name": "bu')
        handle.flush()
        later = threading.Timer(0.2, lambda: path.write_text(json.dumps(content)))
        later.start()

        live = claims.live(host)
        later.join()

    assert live == {"busy": content}
