"""
A small cloud for the checker of the protocol: a few hosts with one VM.

Files are PART while they arrive, UNSYNCED when only memory has them completely, then WHOLE.
"""

from dataclasses import dataclass
from typing import NamedTuple

from saltvirt.core.protocol import moveprotocol, recoveryprotocol
from saltvirt.core.protocol.moveprotocol import MoveRecord, Source, ThirdHosts

NOTHING, PART, UNSYNCED, WHOLE = range(4)


class Lost(Exception):
    """An invariant does not hold; ``trace`` has the steps that led to it."""

    def __init__(self, reason, trace=()):
        self.reason, self.trace = reason, trace
        super().__init__("\n".join([reason, *trace]))


class Refused(Exception):
    """An effect could not be carried out."""


class Departure(NamedTuple):
    """A source's record; ``was_active`` and ``auto`` are the VM's when the move began."""

    token: str
    phase: str
    target: int
    was_active: bool
    auto: bool
    version: int | None = None
    leaves: bool = True


class Arrival(NamedTuple):
    """A target's record."""

    token: str
    phase: str
    source: int
    has_made: bool = False


class Host(NamedTuple):
    """A host: its VM's definition, files and records; a job of libvirt goes to ``job``."""

    defined: int = NOTHING
    active: bool = False
    files: int = NOTHING
    version: int = 0
    auto: bool = False
    departure: Departure | None = None
    arrival: Arrival | None = None
    buried: frozenset = frozenset()
    job: int | None = None
    # Whether libvirt itself reports that the running VM has moved away, until libvirtd restarts.
    is_migrated: bool = False


class Call(NamedTuple):
    """A call to a host; ``answers`` are None before it has begun."""

    host: int
    part: str
    token: str
    arguments: tuple = ()
    answers: tuple | None = None
    record: MoveRecord | None = None
    # Whether a long effect has begun and has not ended.
    has_begun: bool = False


class Runner(NamedTuple):
    """A runner: its answers so far, and the call that it waits for."""

    part: str
    token: str
    source: int
    target: int
    answers: tuple = ()
    call: Call | None = None


class World(NamedTuple):
    """The whole world; ``budget`` is how much may still go wrong."""

    hosts: tuple
    runners: tuple = (None, None)
    orders: tuple = (None, None)
    stalled: tuple = ()
    tokens: int = 0
    latest: int = 0
    is_purged: bool = False
    # Whether the only definition was on a host that was reinstalled.
    is_undefined: bool = False
    # Whether an operator has acted by hand; leftovers are the operator's then.
    is_bypassed: bool = False
    # Commands; kills, silences, network cuts; power cuts, restarts of libvirtd; actions by hand.
    budget: tuple = (2, 1, 1, 1)
    # Whether images must be sent before files are created, and whether the source forgets the VM.
    has_images: bool = False
    leaves: bool = True
    # Whether an operator has created the target's files by hand, and moves the VM without a master.
    is_by_hand: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen(Source):
    """The source's answer, and the facts of the VM that it has recorded."""

    noted: Departure | None = None


def copied(record, token):
    """Move a VM by hand in one job, as an unprepared move of the project does."""
    yield from moveprotocol.open_departure(record, token)
    yield from moveprotocol.send(MoveRecord(token=token, phase=moveprotocol.PLANNED), token)
    yield from moveprotocol.finish(MoveRecord(token=token, phase=moveprotocol.HANDING), token)


class Model:
    """The parts of the current protocol; tests replace some of them."""

    on_source = {
        "open": moveprotocol.open_departure,
        "send": moveprotocol.send,
        "finish": moveprotocol.finish,
        "cancel": moveprotocol.cancel,
        "redefine": moveprotocol.redefine,
        "forget": moveprotocol.forget,
        "give_way": moveprotocol.give_way,
        "copied": copied,
    }
    on_target = {
        "prepare": moveprotocol.prepare,
        "resume": moveprotocol.resume,
        "arrive": moveprotocol.arrive,
        "refuse": moveprotocol.refuse,
        "drop": moveprotocol.drop,
        "end": moveprotocol.end,
    }
    on_master = {"move": recoveryprotocol.move, "settle": recoveryprotocol.settle}

    def record_of(self, host, part):
        """Return the record that a part begins from."""
        record = host.departure if part in self.on_source else host.arrival
        return record and MoveRecord(token=record.token, phase=record.phase)

    def is_startable(self, host):
        """Return whether the project's commands start the VM on a host."""
        phase = host.departure and host.departure.phase
        is_leaving = phase in (moveprotocol.HANDING, moveprotocol.LEAVING)
        is_coming = host.arrival is not None and host.arrival.phase != moveprotocol.ARRIVED
        return bool(host.defined) and not is_leaving and not is_coming

    def may_purge(self, host):
        """Return whether the project's command purges the VM on a host."""
        is_leaving = host.departure is not None and host.departure.phase != moveprotocol.CANCELLED
        return bool(host.defined) and not is_leaving and host.arrival is None

    def part(self, call):
        """Return the generator of a call, at its beginning."""
        function = {**self.on_source, **self.on_target}[call.part]
        arguments, arguments_of_part = (
            dict(call.arguments),
            {"cancel": ("seen", "is_refused"), "arrive": ("is_handed",)},
        )
        kwargs = {name: arguments[name] for name in arguments_of_part.get(call.part, ())}
        kwargs |= {"is_lost": True} if arguments.get("is_lost") else {}
        return function(call.record, call.token, **kwargs)


def change(world, number, **changes):
    """Return the world with one host changed."""
    hosts = list(world.hosts)
    hosts[number] = hosts[number]._replace(**changes)
    return world._replace(hosts=tuple(hosts))


def replayed(steps, answers):
    """Return ``("effect", EFFECT)``, ``("return", VALUE)`` or ``("raise", REASON)``."""
    try:
        effect = next(steps)
        for kind, value in answers:
            effect = steps.send(value) if kind == "ok" else steps.throw(Refused(value))
    except StopIteration as stop:
        return "return", stop.value
    except (Refused, moveprotocol.OutOfTurn) as error:
        return "raise", str(error)
    finally:
        steps.close()
    return "effect", effect


def has_own_files(host):
    """Return whether a source has files that are removed when the VM has left."""
    return host.departure.leaves and host.files != NOTHING


def is_arriving(world, number):
    """Return whether libvirt is moving the VM to a host."""
    return any(host.job == number for host in world.hosts)


def with_runner(world, master, runner):
    """Return the world with another runner on a master."""
    runners = tuple(runner if i == master else current for i, current in enumerate(world.runners))
    return world._replace(runners=runners)


def same(world):
    """Return one and the same world for two worlds in which the masters are exchanged."""
    if len(world.runners) == 2:
        first, second = zip(world.runners, world.orders, strict=True)
        if hash(first) > hash(second):
            swap = {"runners": world.runners[::-1], "orders": world.orders[::-1]}
            return world._replace(**swap)
    return world


def last_looks(answers):
    """Return the last answers of source and target, which is asked again after third hosts."""
    looks = [answer for _kind, answer in answers]
    return looks[-4 if isinstance(looks[-2], ThirdHosts) else -2], looks[-1]
