"""The protocol of a move, explored in each order of events, up to a budget of faults."""

import gc

import pytest
from checker import Checker
from cloudhands import Hands
from clouds import PART, WHOLE, Arrival, Departure, Host, Lost, World
from old_protocol import OldChecker
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.protocol.moveprotocol import MoveRecord, Source, Target


def _world(budget, *, is_running=False, hosts=2, **fields):
    source = Host(defined=WHOLE, active=is_running, files=WHOLE, auto=True)
    return World((source, *[Host()] * (hosts - 1)), budget=budget, **fields)


def _explored(world, depth=None):
    checker = Checker()
    # There are many worlds and no cycles: garbage collection would take a tenth of the time.
    gc.disable()
    try:
        checker.explore(world, depth)
    finally:
        gc.enable()
    print(f"{checker.states} states, depth {checker.depth}, {len(checker.settled)} settled")
    return checker


RUNNING = pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])


@RUNNING
@pytest.mark.parametrize(
    "budget",
    [
        (1, 1, 1, 0),
        (1, 1, 0, 1),
        (1, 0, 1, 1),
        pytest.param((1, 1, 1, 1), marks=pytest.mark.nightly),
    ],
    ids=str,
)
@pytest.mark.slow
def test_after_any_fault_of_a_move_the_vm_is_on_one_host_and_the_move_is_settled(
    budget, is_running
):
    assert _explored(_world(budget, is_running=is_running)).depth > 40


@RUNNING
def test_concurrent_commands_of_two_masters_lose_nothing(is_running):
    checker = _explored(_world((2, 1, 1, 1), is_running=is_running), depth=12)
    assert checker.depth == 12


@pytest.mark.parametrize(
    "budget",
    [(1, 1, 0, 0), (1, 0, 0, 1), pytest.param((1, 1, 0, 1), marks=pytest.mark.nightly)],
    ids=str,
)
@pytest.mark.parametrize("more", [{"has_images": True}, {"leaves": False}], ids=str)
@RUNNING
def test_the_same_with_images_and_with_a_kept_source(more, is_running, budget):
    assert _explored(_world(budget, is_running=is_running, **more)).depth > 40


def test_the_same_by_hand_without_a_record_on_the_target():
    target = Host(files=PART, version=-1)
    source = Host(defined=WHOLE, active=True, files=WHOLE, auto=True)
    assert _explored(World((source, target), budget=(2, 1, 0, 1), is_by_hand=True)).depth > 20


def test_a_vm_with_an_open_arrival_does_not_leave():
    # Otherwise its source would wait for it forever.
    leaving = Departure("t0", moveprotocol.HANDING, 1, was_active=False, auto=False, version=0)
    arrived = Arrival("t0", moveprotocol.ARRIVED, 0, has_made=True)
    hosts = (
        Host(defined=WHOLE, files=WHOLE, departure=leaving),
        Host(defined=WHOLE, files=WHOLE, arrival=arrived),
        Host(),
    )
    assert _explored(World(hosts, tokens=1, budget=(2, 0, 0, 0))).depth > 20


# Faults of the previous protocol: the checker finds them there, and not in the current one.


@pytest.mark.parametrize(
    ("budget", "is_running", "reason"),
    [
        pytest.param((1, 1, 0, 0), False, "no host has the VM's definition", id="L1"),
        pytest.param((1, 0, 0, 1), False, "it runs without its disk", id="L2"),
        pytest.param((1, 1, 0, 0), True, "it is said to stay, and has moved", id="L5"),
    ],
)
def test_the_checker_finds_the_faults_of_the_previous_protocol(budget, is_running, reason):
    with pytest.raises(Lost, match=reason) as caught:
        OldChecker().explore(_world(budget, is_running=is_running))
    print(caught.value)
    _explored(_world(budget, is_running=is_running))


class UnlookingHands(Hands):
    """Hands that remove a departed VM without a look at the other host."""

    def look(self):
        is_removing = self.host.departure.phase == moveprotocol.LEAVING
        return (self.world, None) if is_removing else super().look()


@pytest.mark.parametrize("action_name", ["virsh migrate back to 0", "host 1 is reinstalled"])
@RUNNING
def test_the_checker_finds_a_source_that_does_not_look_again(is_running, action_name, monkeypatch):
    monkeypatch.setitem(moveprotocol._AFTER, moveprotocol.LEAVING, lambda *_: moveprotocol.FINISH)
    original_rule = moveprotocol.is_left_alone
    monkeypatch.setattr(
        moveprotocol,
        "is_left_alone",
        lambda *views: views[0].phase == moveprotocol.HANDING and original_rule(*views),
    )
    checker = Checker()
    monkeypatch.setattr(checker, "hands", UnlookingHands)
    actions = checker.without_us
    monkeypatch.setattr(
        checker,
        "without_us",
        lambda world: [action for action in actions(world) if action[0] == action_name],
    )

    with pytest.raises(Lost, match="no host has|left on record") as caught:
        checker.explore(_world((1, 1, 0, 1), is_running=is_running))
    assert f". {action_name}" in str(caught.value)


# Large explorations, each of which takes minutes.


@pytest.mark.nightly
@RUNNING
@pytest.mark.parametrize(
    ("budget", "depth"),
    [
        ((1, 2, 1, 0), None),
        ((1, 1, 2, 0), None),
        ((2, 0, 0, 0), None),
        ((2, 0, 0, 1), 46),
        ((2, 1, 0, 0), 34),
        ((2, 1, 1, 1), 22),
    ],
    ids=str,
)
def test_more_faults_at_once(budget, depth, is_running):
    _explored(_world(budget, is_running=is_running), depth)


@pytest.mark.nightly
@RUNNING
def test_three_hosts(is_running):
    _explored(_world((2, 1, 1, 0), is_running=is_running, hosts=3), 20)


# Faults of this protocol that the checker or a review has found, each with its trace.


class _Answers:
    """Hands that answer no to each effect, and record the effects."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *args: self.done.append((name, *args))


def test_a_decision_from_before_the_hand_over_does_not_cancel_it():
    # Another, slow master saw the move planned when its target had no record.
    record, hands = MoveRecord(token="t0", phase=moveprotocol.HANDING), _Answers()
    late_cancel = moveprotocol.cancel(record, "t0", seen=moveprotocol.PLANNED, is_refused=True)
    with pytest.raises(moveprotocol.OutOfTurn, match="handed over"):
        effects.run(late_cancel, hands)
    assert ("enter", moveprotocol.CANCELLED) not in hands.done
    in_time = moveprotocol.cancel(record, "t0", seen=moveprotocol.HANDING, is_refused=True)
    effects.run(in_time, hands)
    assert hands.done[-1] == ("enter", moveprotocol.CANCELLED)


def test_an_ended_move_is_not_cancelled():
    # Otherwise the target, which has the VM, would wait forever for a source that has cancelled.
    with pytest.raises(moveprotocol.OutOfTurn, match="ended by another"):
        effects.run(
            moveprotocol.cancel(None, "t0", seen=moveprotocol.PLANNED, is_refused=False), _Answers()
        )
    hands = _Answers()
    effects.run(moveprotocol.cancel(None, "t0", seen=None, is_refused=False), hands)
    assert hands.done == [("bury", "t0")]


def test_a_target_of_a_move_by_hand_gets_its_definition_again_after_a_power_cut():
    source = Source(phase=moveprotocol.HANDING, has=True, is_handed=True)
    assert moveprotocol.next_step(source, Target()) == moveprotocol.REDEFINE
