"""The contract of states, whatever comes after what, on a real libvirtd and QEMU."""

import pytest
import statesequences
from hypothesis import HealthCheck, Phase, given, settings
from statekit import Side

FOLDER = "/srv/sequences"
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
# Each attempt takes seconds: to make a failure smaller, minutes.
PHASES = [Phase.generate]


@pytest.fixture
def side(clean):
    """The libvirtd of hyper1, which has nothing of these states in the end."""
    made = Side(clean, FOLDER)
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
