"""The protocol of a disk's move, explored: kills, failures, power cuts, starts, stops, writes."""

import pytest
from clouds import Lost
from diskmoves import DiskMoves, Site
from saltvirt.core.protocol import diskprotocol
from saltvirt.core.protocol.diskprotocol import COPYING, FORGET, MOVED, NEW, OLD, OTHER, SWITCHING
from small_clouds import explored


class Settling(DiskMoves):
    """Each state is also brought to its end by calm commands."""

    def check(self, site):
        """Return what is wrong, None if nothing is."""
        wrong = super().check(site)
        if wrong or site.job is not None or site.phase is None:
            return wrong
        try:
            return super().check(self.settled(site))
        except Lost as lost:
            return str(lost)


LEFTS = [
    (1, 1, 0, 1, 2, 2, 0),
    (1, 0, 1, 1, 2, 2, 0),
    (1, 2, 0, 0, 2, 1, 1),
    (2, 1, 1, 0, 1, 1, 0),
    pytest.param((2, 2, 2, 1, 3, 2, 1), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("live", [OLD, None])
@pytest.mark.parametrize("left", LEFTS, ids=str)
def test_whatever_goes_wrong_the_vm_keeps_its_disk(left, live):
    states = explored(Settling(), Site(left=left, live=live))
    print(f"{states} states")
    assert states > 100


@pytest.mark.parametrize("live", [OLD, None])
def test_a_move_without_faults_ends_with_the_new_file_and_the_old_one_in_the_trash(live):
    begun = Site(live=live, left=(1, 0, 0, 0, 0, 0, 0))
    moves = DiskMoves()
    (_label, begun), *_others = moves.successors(begun)
    done = moves.settled(begun)
    assert (done.current, done.definition, done.old, done.new) == (NEW, NEW, None, 0)
    assert done.trash == {0} and done.phase is None


@pytest.mark.parametrize("phase", [COPYING, SWITCHING, MOVED])
@pytest.mark.parametrize("current", [OTHER, None])
def test_a_disk_that_somebody_else_has_changed_loses_no_file_but_a_moved_one(phase, current):
    step = diskprotocol.decide(phase, diskprotocol.DiskPlace(live=None, definition=current))
    assert step == (diskprotocol.PUT_AWAY if phase == MOVED else FORGET)


# Each of these leaves out one rule, and the checker finds what that costs.


class ForGood(DiskMoves):
    """The new file is removed for good whenever a move is undone."""

    def _remove(self, site, job, _is_kept):
        yield from super()._remove(site, job, False)


class Hasty(DiskMoves):
    """The old file goes for good as soon as the VM is switched, whoever names it."""

    def _put_away(self, site, _job):
        for label, there in super()._put_away(site, _job):
            yield label, there._replace(old=None, trash=site.trash)

    def _define(self, site, job):
        for label, there in super()._define(site, job):
            yield label, there._replace(definition=site.definition, lost=site.lost)

    def _check(self, site, job):
        for label, there in super()._check(site._replace(definition=NEW), job):
            yield label, there._replace(definition=site.definition)


class Trusting(DiskMoves):
    """A settlement goes by the definition alone, also while the VM runs."""

    def part(self, job):
        """Return the part of the protocol that a job does."""
        steps = super().part(job)
        return steps if job.phase is None else _blind(steps)


def _blind(steps):
    answer = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield effect
        if effect[0] == "look":
            answer = diskprotocol.DiskPlace(live=None, definition=answer.definition)


class Unchecked(DiskMoves):
    """A stopped VM is switched although it was used since the copy."""

    def _switch(self, site, job):
        yield from super()._switch(site, job._replace(copied=site.latest))


@pytest.mark.parametrize(
    ("moves", "wrong", "live"),
    [
        pytest.param(ForGood(), "last write", OLD, id="for-good"),
        pytest.param(Hasty(), "old file, which is gone", OLD, id="hasty"),
        pytest.param(Trusting(), "stays|both files|in use|gone", OLD, id="trusting"),
        pytest.param(Unchecked(), "last write", None, id="unchecked"),
    ],
)
def test_the_checker_finds_what_a_missing_rule_costs(moves, wrong, live):
    class Both(type(moves), Settling):
        pass

    with pytest.raises(Lost, match=wrong) as lost:
        explored(Both(), Site(left=(1, 2, 1, 1, 3, 2, 0), live=live))
    print(lost.value)
