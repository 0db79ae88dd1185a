"""The protocol of a move, explored: every order in which things can happen, as far as is said."""

import gc

import pytest
from checker import Checker
from cloudhands import Hands
from clouds import PART, WHOLE, Arrival, Departure, Host, Lost, World
from old_protocol import OldChecker
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.protocol.moveprotocol import MoveRecord, Source, Target


def _world(left, *, is_running=False, hosts=2, **more):
    one = Host(defined=WHOLE, active=is_running, files=WHOLE, auto=True)
    return World((one, *[Host()] * (hosts - 1)), left=left, **more)


def _explored(world, depth=None):
    checker = Checker()
    # Worlds are many and in no cycles: looking for garbage among them takes a tenth of the time.
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
    "left",
    [
        (1, 1, 1, 0),
        (1, 1, 0, 1),
        (1, 0, 1, 1),
        pytest.param((1, 1, 1, 1), marks=pytest.mark.nightly),
    ],
    ids=str,
)
@pytest.mark.slow
def test_whatever_goes_wrong_in_a_move_the_vm_is_on_one_host_and_it_is_settled(left, is_running):
    assert _explored(_world(left, is_running=is_running)).depth > 40


@RUNNING
def test_two_commands_of_two_masters_at_once_lose_nothing(is_running):
    checker = _explored(_world((2, 1, 1, 1), is_running=is_running), depth=12)
    assert checker.depth == 12


@pytest.mark.parametrize(
    "left",
    [(1, 1, 0, 0), (1, 0, 0, 1), pytest.param((1, 1, 0, 1), marks=pytest.mark.nightly)],
    ids=str,
)
@pytest.mark.parametrize("more", [{"has_images": True}, {"leaves": False}], ids=str)
@RUNNING
def test_also_one_with_images_and_one_that_its_source_keeps(more, is_running, left):
    assert _explored(_world(left, is_running=is_running, **more)).depth > 40


def test_also_one_by_hand_whose_target_has_nothing_on_record():
    target = Host(files=PART, version=-1)
    source = Host(defined=WHOLE, active=True, files=WHOLE, auto=True)
    assert _explored(World((source, target), left=(2, 1, 0, 1), is_by_hand=True)).depth > 20


def test_a_vm_whose_arrival_is_not_over_does_not_leave():
    # Its source would look for it there for ever.
    leaving = Departure("t0", moveprotocol.HANDING, 1, was=False, auto=False, version=0)
    arrived = Arrival("t0", moveprotocol.ARRIVED, 0, has_made=True)
    hosts = (
        Host(defined=WHOLE, files=WHOLE, departure=leaving),
        Host(defined=WHOLE, files=WHOLE, arrival=arrived),
        Host(),
    )
    assert _explored(World(hosts, tokens=1, left=(2, 0, 0, 0))).depth > 20


# What the protocol before this one let happen: the checker finds it there, and not here.


@pytest.mark.parametrize(
    ("left", "is_running", "why"),
    [
        pytest.param((1, 1, 0, 0), False, "no host has the VM's definition", id="L1"),
        pytest.param((1, 0, 0, 1), False, "it runs without its disk", id="L2"),
        pytest.param((1, 1, 0, 0), True, "it is said to stay, and has moved", id="L5"),
    ],
)
def test_the_checker_finds_what_the_protocol_before_this_one_lost(left, is_running, why):
    with pytest.raises(Lost, match=why) as lost:
        OldChecker().explore(_world(left, is_running=is_running))
    print(lost.value)
    _explored(_world(left, is_running=is_running))


class Unlooking(Hands):
    """Hands that remove what has left without a look at the other host."""

    def look(self):
        is_removing = self.host.departure.phase == moveprotocol.LEAVING
        return (self.world, None) if is_removing else super().look()


@pytest.mark.parametrize("deed", ["virsh migrate back to 0", "host 1 is reinstalled"])
@RUNNING
def test_the_checker_finds_a_source_that_does_not_look_again(is_running, deed, monkeypatch):
    monkeypatch.setitem(moveprotocol._AFTER, moveprotocol.LEAVING, lambda *_: moveprotocol.FINISH)
    looks = moveprotocol.is_left_alone
    monkeypatch.setattr(
        moveprotocol,
        "is_left_alone",
        lambda *both: both[0].phase == moveprotocol.HANDING and looks(*both),
    )
    checker = Checker()
    monkeypatch.setattr(checker, "hands", Unlooking)
    deeds = checker.without_us
    monkeypatch.setattr(
        checker, "without_us", lambda world: [one for one in deeds(world) if one[0] == deed]
    )

    with pytest.raises(Lost, match="no host has|left on record") as lost:
        checker.explore(_world((1, 1, 0, 1), is_running=is_running))
    assert f". {deed}" in str(lost.value)


# The large ones: minutes each.


@pytest.mark.nightly
@RUNNING
@pytest.mark.parametrize(
    ("left", "depth"),
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
def test_more_goes_wrong_at_once(left, depth, is_running):
    _explored(_world(left, is_running=is_running), depth)


@pytest.mark.nightly
@RUNNING
def test_three_hosts(is_running):
    _explored(_world((2, 1, 1, 0), is_running=is_running, hosts=3), 20)


# Faults that the checker, or reading beside it, has found in this protocol; each by its trace.


class _Answers:
    """Hands that answer no to everything, and note what they were asked for."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *args: self.done.append((name, *args))


def test_what_was_decided_before_a_vm_was_handed_over_does_not_cancel_it():
    # Another master saw it planned, when its target knew of nothing, and was slow.
    there, hands = MoveRecord(token="t0", phase=moveprotocol.HANDING), _Answers()
    late = moveprotocol.cancel(there, "t0", seen=moveprotocol.PLANNED, is_refused=True)
    with pytest.raises(moveprotocol.OutOfTurn, match="handed over"):
        effects.run(late, hands)
    assert ("enter", moveprotocol.CANCELLED) not in hands.done
    in_time = moveprotocol.cancel(there, "t0", seen=moveprotocol.HANDING, is_refused=True)
    effects.run(in_time, hands)
    assert hands.done[-1] == ("enter", moveprotocol.CANCELLED)


def test_a_move_that_has_ended_meanwhile_is_not_cancelled():
    # Its target would be kept waiting for good: it has the VM, and the source says cancelled.
    with pytest.raises(moveprotocol.OutOfTurn, match="ended by another"):
        effects.run(
            moveprotocol.cancel(None, "t0", seen=moveprotocol.PLANNED, is_refused=False), _Answers()
        )
    hands = _Answers()
    effects.run(moveprotocol.cancel(None, "t0", seen=None, is_refused=False), hands)
    assert hands.done == [("bury", "t0")]


def test_a_target_by_hand_that_loses_its_power_gets_its_definition_again():
    source = Source(phase=moveprotocol.HANDING, has=True, is_handed=True)
    assert moveprotocol.next_step(source, Target()) == moveprotocol.REDEFINE
