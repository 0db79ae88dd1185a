"""How often garbage is looked for while a command holds many answers."""

import gc
from contextlib import ExitStack, nullcontext

import pytest
from saltvirt.core.salt import gctuning

VMS = 10_000


@pytest.fixture
def looks():
    """When Python has looked for garbage among all that there is."""
    seen = []

    def note(phase, _info):
        if phase == "start":
            seen.append(phase)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_it_is_looked_for_less_while_many_vms_are_held(looks):
    gc.collect()
    looks.clear()
    held = [{"disks": {}, "nics": []} for _vm in range(VMS)]
    usual = len(looks)
    with gctuning.collect_rarely():
        looks.clear()
        held += [{"disks": {}, "nics": []} for _vm in range(VMS)]
        rare = len(looks)

    assert len(held) == 2 * VMS and usual > 0 and rare <= usual / 2


@pytest.mark.parametrize("is_failing", [False, True])
def test_afterwards_it_is_as_it_was(is_failing):
    before = gc.get_threshold()

    failing = pytest.raises(ValueError, match="no") if is_failing else nullcontext()
    with failing, gctuning.collect_rarely():
        assert gc.get_threshold() != before
        if is_failing:
            raise ValueError("no")

    assert gc.get_threshold() == before


def test_of_jobs_that_are_threads_the_last_one_has_it_as_it_was():
    before = gc.get_threshold()
    first, second = gctuning.collect_rarely(), gctuning.collect_rarely()

    with ExitStack() as one, ExitStack() as other:
        one.enter_context(first)
        other.enter_context(second)
        one.close()
        assert gc.get_threshold() != before

    assert gc.get_threshold() == before
