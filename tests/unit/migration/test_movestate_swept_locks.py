"""Whoever is killed leaves a lock that nobody holds; the next look at a host's moves removes it."""

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


@pytest.mark.parametrize("place", PLACES)
def test_the_lock_of_a_dead_job_is_removed(tmp_path, place):
    settings = HostSettings(state_dir=str(tmp_path))
    left = Path(tmp_path, place, "m1.lock")
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()

    assert movestate.read_moves(settings) == {}

    assert not left.exists()


def test_the_lock_of_a_job_that_is_at_work_stays(tmp_path):
    paths = [Path(tmp_path, place, "m1.lock") for place in PLACES]
    with contextlib.ExitStack() as at_work:
        for path in paths:
            at_work.enter_context(locks.hold_lock(path, is_done=lambda: False))
        # These locks are of open files, not of processes: this one is shut out as another would be.
        assert movestate.read_moves(HostSettings(state_dir=str(tmp_path))) == {}

        assert all(path.exists() for path in paths)
