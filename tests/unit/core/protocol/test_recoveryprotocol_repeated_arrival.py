"""A target that died right after it had noted a VM's arrival is asked once more before all else."""

import pytest
from saltvirt.core.protocol import effects, moveprotocol, recoveryprotocol
from saltvirt.core.protocol.moveprotocol import ARRIVED, HANDING, LEAVING, Source, Target


class Hands:
    """Both hosts of a move whose target has noted the arrival, and what is asked of them."""

    def __init__(self, phase=HANDING, fails=0):
        self.source, self.target = Source(phase=phase, has=True), Target(phase=ARRIVED, has=True)
        self.fails, self.done = fails, []

    def look_at_source(self):
        return self.source

    def look_at_target(self):
        return self.target

    def arrive(self):
        self.done.append("arrive")
        if self.fails >= len(self.done):
            raise OSError("libvirt does not answer")

    def finish(self):
        self.done.append("finish")
        self.source = Source()

    def end(self):
        self.done.append("end")
        self.target = Target(has=True)

    def close(self):
        self.done.append("close")


def test_the_arrival_is_completed_before_the_source_removes_anything():
    hands = Hands()

    assert effects.run(recoveryprotocol.settle(), hands) == (moveprotocol.DONE, True)

    assert hands.done == ["arrive", "finish", "end", "close"]


def test_a_source_that_leaves_already_had_asked_for_that():
    hands = Hands(LEAVING)

    effects.run(recoveryprotocol.settle(), hands)

    assert hands.done == ["finish", "end", "close"]


def test_a_target_that_cannot_complete_it_keeps_the_move_open():
    hands = Hands(fails=9)

    with pytest.raises(OSError, match="libvirt does not answer"):
        effects.run(recoveryprotocol.settle(), hands)

    assert hands.done == ["arrive"]
