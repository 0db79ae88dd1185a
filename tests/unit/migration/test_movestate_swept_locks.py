"""The lock of a killed job is stale; the next look at a host's moves removes it."""

import contextlib
from pathlib import Path

import pytest
from saltvirt.core import locks
from saltvirt.core.options.config import HostSettings
from saltvirt.migration.host import movestate

PLACES = [
    "records/departure",
    "records/arrival",
    "records/cancelled",
    "records/build",
    "locks",
    ".",
]


@pytest.mark.parametrize("folder_name", PLACES)
def test_the_lock_of_a_dead_job_is_removed(tmp_path, folder_name):
    settings = HostSettings(state_dir=str(tmp_path))
    lock_file = Path(tmp_path, folder_name, "m1.lock")
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    lock_file.touch()

    assert movestate.read_moves(settings) == {}

    assert not lock_file.exists()


def test_the_lock_of_a_job_that_is_at_work_stays(tmp_path):
    paths = [Path(tmp_path, folder_name, "m1.lock") for folder_name in PLACES]
    with contextlib.ExitStack() as open_locks:
        for path in paths:
            open_locks.enter_context(locks.hold_lock(path, is_done=lambda: False))
        # The locks are of open files, not of processes, so they shut out this process too.
        assert movestate.read_moves(HostSettings(state_dir=str(tmp_path))) == {}

        assert all(path.exists() for path in paths)
