"""How often Python collects garbage while a command holds many answers."""

import gc
from contextlib import ExitStack, nullcontext

import pytest
from saltvirt.core.salt import gctuning

VMS = 10_000


@pytest.fixture
def collections_seen():
    """The collections of garbage that Python has begun."""
    collections = []

    def note(phase, _info):
        if phase == "start":
            collections.append(phase)

    gc.callbacks.append(note)
    yield collections
    gc.callbacks.remove(note)


def test_garbage_is_collected_less_often_while_many_vms_are_in_memory(collections_seen):
    gc.collect()
    collections_seen.clear()
    vms = [{"disks": {}, "nics": []} for _vm in range(VMS)]
    usual_count = len(collections_seen)
    with gctuning.collect_rarely():
        collections_seen.clear()
        vms += [{"disks": {}, "nics": []} for _vm in range(VMS)]
        rare_count = len(collections_seen)

    assert len(vms) == 2 * VMS and usual_count > 0 and rare_count <= usual_count / 2


@pytest.mark.parametrize("is_failing", [False, True])
def test_afterwards_the_threshold_is_restored(is_failing):
    threshold_before = gc.get_threshold()

    failing = pytest.raises(ValueError, match="no") if is_failing else nullcontext()
    with failing, gctuning.collect_rarely():
        assert gc.get_threshold() != threshold_before
        if is_failing:
            raise ValueError("no")

    assert gc.get_threshold() == threshold_before


def test_the_last_of_several_threads_restores_the_threshold():
    threshold_before = gc.get_threshold()
    first, second = gctuning.collect_rarely(), gctuning.collect_rarely()

    with ExitStack() as first_stack, ExitStack() as second_stack:
        first_stack.enter_context(first)
        second_stack.enter_context(second)
        first_stack.close()
        assert gc.get_threshold() != threshold_before

    assert gc.get_threshold() == threshold_before
