"""Whoever is killed leaves a lock that nobody holds; the next look at a host's moves removes it."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from saltvirt import locks
from saltvirt.config import HostSettings
from saltvirt.ops.migration import state

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

    assert state.every(settings) == {}

    assert not left.exists()


def test_the_lock_of_a_job_that_is_at_work_stays(tmp_path):
    paths = [Path(tmp_path, place, "m1.lock") for place in PLACES]
    with contextlib.ExitStack() as at_work:
        for path in paths:
            at_work.enter_context(locks.held(path, is_done=lambda: False))
        # A process does not shut itself out: another one looks.
        code = (
            "import sys; from saltvirt.config import HostSettings; "
            "from saltvirt.ops.migration import state; "
            "state.every(HostSettings(state_dir=sys.argv[1]))"
        )
        home = str(Path(state.__file__).parents[3])
        argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {home!r}); {code}"]
        subprocess.run([*argv, str(tmp_path)], check=True)

        assert all(path.exists() for path in paths)
