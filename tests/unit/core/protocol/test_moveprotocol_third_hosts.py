"""A VM that an operator has moved on to a third host while a move of it is on record."""

import pytest
from checker import Checker, with_runner
from clouds import PART, UNSYNCED, WHOLE, Call, Host, Lost, Runner, World, change
from invariants import open_moves
from saltvirt.core.protocol import effects, moveprotocol
from saltvirt.core.protocol.effects import ThirdHosts
from saltvirt.core.protocol.moveprotocol import Source, Target

ON_H3, SILENT = ThirdHosts(has=("h3",)), ThirdHosts(silent=("h3 (does not answer)",))
OFF = Source(phase=moveprotocol.HANDING, has=True)
AWAY = Source(phase=moveprotocol.HANDING, has=True, is_handed=True)
NEXT = {
    "off there, nothing here": (OFF, Target(), moveprotocol.CANCEL, "wait"),
    "handed over, nothing here": (AWAY, Target(), moveprotocol.REDEFINE, "wait"),
    "both have it": (OFF, Target(has=True), moveprotocol.FINISH, moveprotocol.FINISH),
    "made ready, and nothing came": (
        OFF,
        Target(phase=moveprotocol.READY),
        moveprotocol.REFUSE,
        moveprotocol.REFUSE,
    ),
    "made ready, and its definition is gone": (
        AWAY,
        Target(phase=moveprotocol.READY),
        moveprotocol.REDEFINE,
        moveprotocol.REDEFINE,
    ),
}


@pytest.mark.parametrize(
    ("source", "target", "expected_without", "silent"), NEXT.values(), ids=NEXT
)
def test_a_vm_on_a_third_host_is_neither_taken_back_nor_given_away(
    source, target, expected_without, silent
):
    assert moveprotocol.asks_others(source, target, moveprotocol.next_step(source, target))
    assert moveprotocol.next_step(source, target, ThirdHosts()) == expected_without
    assert moveprotocol.next_step(source, target, ON_H3) == moveprotocol.MOVED_ON
    assert moveprotocol.next_step(source, target, SILENT) == silent


DECIDED = {
    "it has arrived": (OFF, Target(phase=moveprotocol.ARRIVED, has=True)),
    "it was refused": (OFF, Target(phase=moveprotocol.REFUSED)),
    "it still runs there": (Source(phase=moveprotocol.HANDING, has=True, stays=True), Target()),
    "it was not handed over": (Source(phase=moveprotocol.SENDING, has=True), Target()),
    "it leaves already": (Source(phase=moveprotocol.LEAVING, has=True), Target(has=True)),
}


@pytest.mark.parametrize(("source", "target"), DECIDED.values(), ids=DECIDED)
def test_third_hosts_are_not_asked_about_a_decided_move(source, target):
    step = moveprotocol.next_step(source, target)

    assert not moveprotocol.asks_others(source, target, step)
    assert moveprotocol.next_step(source, target, ON_H3) == step


LEFT_ALONE = {
    "it leaves, and all of it is here": (Source(phase=moveprotocol.LEAVING, has=True), Target()),
    "it leaves, and its files are here": (Source(phase=moveprotocol.LEAVING), Target()),
    "it leaves, and has arrived": (
        Source(phase=moveprotocol.LEAVING, has=True),
        Target(phase=moveprotocol.ARRIVED),
    ),
    "it is handed over, and has arrived": (OFF, Target(phase=moveprotocol.ARRIVED)),
    "it is handed over, and its disks are not there": (AWAY, Target(has_disks=False)),
}


@pytest.mark.parametrize(("source", "target"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_source_keeps_a_vm_that_its_target_does_not_have(source, target):
    step = moveprotocol.next_step(source, target)

    assert step == moveprotocol.KEEP
    assert moveprotocol.asks_others(source, target, step)
    assert moveprotocol.next_step(source, target, ThirdHosts()) == moveprotocol.KEEP
    assert moveprotocol.next_step(source, target, ON_H3) == moveprotocol.MOVED_ON
    assert moveprotocol.next_step(source, target, SILENT) == moveprotocol.WAIT


def test_a_source_without_anything_of_the_vm_ends_its_record():
    source = Source(phase=moveprotocol.LEAVING, has_files=False)

    assert moveprotocol.next_step(source, Target()) == moveprotocol.FINISH


def test_no_copy_is_removed_if_the_source_has_lost_its_record():
    views = Source(has=True), Target(phase=moveprotocol.READY, has=True)

    assert moveprotocol.next_step(*views) == moveprotocol.KEEP


@pytest.mark.parametrize(
    "phase", [moveprotocol.ARRIVED, moveprotocol.REFUSED, moveprotocol.CANCELLED]
)
def test_a_decided_move_does_not_give_way(phase):
    record = moveprotocol.MoveRecord(token="t0", phase=phase)
    with pytest.raises(moveprotocol.OutOfTurn):
        effects.run(moveprotocol.give_way(record, "t0", keeper="h3"), object())


AWAY_PHASES = (moveprotocol.HANDING, moveprotocol.LEAVING)


def _handing(world):
    """Return ``(token, host)`` of the hosts that wait for others, in the order of their moves."""
    departures = [
        (host.departure, number) for number, host in enumerate(world.hosts) if host.departure
    ]
    return sorted(
        (departure.token, n) for departure, n in departures if departure.phase in AWAY_PHASES
    )


class Onward(Checker):
    """Moves by hand, each to the next host; restarts of libvirtd instead of power cuts."""

    def _commands(self, world, master):
        if not world.budget[0]:
            return
        spent = world._replace(budget=(world.budget[0] - 1, *world.budget[1:]))
        for move in sorted(open_moves(world)):
            yield (
                f"runner {master} settles {move}",
                with_runner(spent, master, Runner("settle", *move)),
            )
        n = world.tokens
        if n < len(world.hosts) - 1 and not (n and world.stalled):
            arguments = (("source", n), ("target", n + 1))
            call = Call(n, "copied", f"t{n}", arguments)
            moved = spent._replace(tokens=n + 1, stalled=(*spent.stalled, call))
            yield f"somebody moves {n}->{n + 1} by hand", moved

    def _cut(self, world, number):
        budget = (*world.budget[:2], world.budget[2] - 1, *world.budget[3:])
        return change(world._replace(budget=budget), number, is_migrated=False)

    def _check_end(self, world, trace):
        """Accept moves that wait for the operator: one host has the VM, and may start it."""
        having = [n for n, host in enumerate(world.hosts) if self.model.is_startable(host)]
        handing = _handing(world)
        if not having and len(handing) > 1:
            # The moves wait for each other; the operator chooses the newest one, which goes on.
            for _token, number in handing[:-1]:
                world = change(world, number, departure=None, defined=False)
            self._settle_all(world)
            return
        for number, host in enumerate(world.hosts):
            phase = host.departure and host.departure.phase
            waits = phase in AWAY_PHASES
            if waits and not {*having} <= {number, host.departure.target}:
                world = change(world, number, departure=None, defined=False)
        super()._check_end(world, trace)


@pytest.mark.parametrize("budget", [(2, 0, 0, 0), (2, 0, 1, 0), (3, 0, 1, 0)], ids=str)
@pytest.mark.slow
def test_moves_by_hand_from_host_to_host_lose_nothing(budget):
    source = Host(defined=WHOLE, active=True, files=WHOLE, auto=True)
    target = Host(files=PART, version=-1)

    Onward().explore(World((source, target, target), budget=budget, is_by_hand=True))


class Cut(Onward):
    """As Onward, with power cuts; files that have arrived are on the disk at once."""

    def _cut(self, world, number):
        host = world.hosts[number]
        files = WHOLE if host.files == UNSYNCED else host.files
        defined = WHOLE if host.defined == UNSYNCED else host.defined
        return Checker._cut(self, change(world, number, files=files, defined=defined), number)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("count", "budget"), [(3, (3, 0, 1, 0)), (4, (2, 0, 1, 0)), (4, (3, 0, 1, 0))], ids=str
)
def test_power_cuts_and_moves_by_hand_over_four_hosts_lose_nothing(count, budget):
    source = Host(defined=WHOLE, active=True, files=WHOLE, auto=True)
    target = Host(files=PART, version=-1)

    Cut().explore(World((source, *[target] * (count - 1)), budget=budget, is_by_hand=True))


def test_without_third_hosts_the_vm_would_be_on_two_hosts(monkeypatch):
    monkeypatch.setattr(Onward, "look_at_third_hosts", lambda *_args: ThirdHosts())

    with pytest.raises(Lost, match="it is on|would be started|runs on"):
        test_moves_by_hand_from_host_to_host_lose_nothing((2, 0, 1, 0))
