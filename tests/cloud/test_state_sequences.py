"""The contract of states, whatever comes after what, on a real libvirtd and QEMU."""

import json
import shutil
import subprocess

import pytest
import statesequences
from hypothesis import HealthCheck, Phase, given, settings
from labkit import node
from labkit.settings import CHECKOUT

PYTHON = "/opt/saltstack/salt/bin/python3"
FOLDER = "/srv/sequences"
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
# Each attempt takes seconds: to make a failure smaller, minutes.
PHASES = [Phase.generate]


class Side:
    """What hyper1 says, asked line by line; see stateside.py."""

    def __init__(self, cloud):
        shutil.copy(CHECKOUT / "tests/data/stateside.py", cloud.folder("hyper1") / "srv")
        argv = [PYTHON, "/srv/stateside.py", FOLDER]
        self.process = subprocess.Popen(
            node.enter(node.pid_of(cloud.lab, "hyper1"), argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER"):
                return json.loads(line.removeprefix("ANSWER"))
        raise AssertionError("it has ended")

    def apply(self, state, given, test):
        """Apply a state; return what it returned."""
        return self._ask("apply", state, given, test)

    def is_waiting(self, state, given):
        """Return whether guests were asked to shut down and have not; they are helped then."""
        return self._ask("is_waiting", state, given)

    def world(self):
        """Return all that a state could change."""
        return self._ask("world")

    def reset(self):
        """Have nothing there."""
        return self._ask("reset")

    def close(self):
        """End it."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def side(clean):
    """The libvirtd of hyper1, which has nothing of these states in the end."""
    made = Side(clean)
    yield made
    made.reset()
    made.close()
    clean.sh("hyper1", f"rm -rf {FOLDER} /srv/stateside.py")


@settings(max_examples=4, suppress_health_check=QUIET, phases=PHASES, derandomize=True)
@given(steps=statesequences.sequences(3, 8))
def test_states_in_any_order_keep_their_contract(side, steps):
    statesequences.keeps(side, steps)


@pytest.mark.nightly
@settings(max_examples=150, suppress_health_check=QUIET, phases=PHASES)
@given(steps=statesequences.sequences(5, 20))
def test_many_states_in_any_order_keep_their_contract(side, steps):
    statesequences.keeps(side, steps)
