"""A target that was killed right after it had recorded an arrival is asked again first of all."""

import pytest
from saltvirt.core.protocol import effects, moveprotocol, recoveryprotocol
from saltvirt.core.protocol.moveprotocol import ARRIVED, HANDING, LEAVING, Source, Target


class Hands:
    """Both hosts of a move with a recorded arrival, and the effects they are asked for."""

    def __init__(self, phase=HANDING, failures=0):
        self.source, self.target = Source(phase=phase, has=True), Target(phase=ARRIVED, has=True)
        self.failures, self.done = failures, []

    def look_at_source(self):
        return self.source

    def look_at_target(self):
        return self.target

    def arrive(self):
        self.done.append("arrive")
        if self.failures >= len(self.done):
            raise OSError("libvirt does not answer")

    def finish(self):
        self.done.append("finish")
        self.source = Source()

    def end(self):
        self.done.append("end")
        self.target = Target(has=True)

    def close(self):
        self.done.append("close")


def test_the_arrival_is_completed_before_the_source_removes_its_files():
    hands = Hands()

    assert effects.run(recoveryprotocol.settle(), hands) == (moveprotocol.DONE, True)

    assert hands.done == ["arrive", "finish", "end", "close"]


def test_a_leaving_source_had_its_arrival_completed_before():
    hands = Hands(LEAVING)

    effects.run(recoveryprotocol.settle(), hands)

    assert hands.done == ["finish", "end", "close"]


def test_a_target_that_cannot_complete_the_arrival_keeps_the_move_open():
    hands = Hands(failures=9)

    with pytest.raises(OSError, match="libvirt does not answer"):
        effects.run(recoveryprotocol.settle(), hands)

    assert hands.done == ["arrive"]
