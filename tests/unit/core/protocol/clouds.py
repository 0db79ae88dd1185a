"""
A small cloud for the checker of the protocol: a few hosts with one VM, and what effects do there.

Files are PART while they come, UNSYNCED when they are whole in memory alone, then WHOLE.
"""

from dataclasses import dataclass
from typing import NamedTuple

from saltvirt.core.protocol import moveprotocol, recoveryprotocol
from saltvirt.core.protocol.moveprotocol import MoveRecord, Source, ThirdHosts

NOTHING, PART, UNSYNCED, WHOLE = range(4)


class Lost(Exception):
    """An invariant does not hold; ``trace`` is how it came to that."""

    def __init__(self, why, trace=()):
        self.why, self.trace = why, trace
        super().__init__("\n".join([why, *trace]))


class Refused(Exception):
    """A hand could not do what it was asked for."""


class Departure(NamedTuple):
    """What a source has on record: ``was`` and ``auto`` are what the VM was when it began."""

    token: str
    phase: str
    target: int
    was: bool
    auto: bool
    version: int | None = None
    leaves: bool = True


class Arrival(NamedTuple):
    """What a target has on record."""

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
    # libvirt's own word that a running VM was moved away; it forgets that when it is started anew.
    is_migrated: bool = False


class Call(NamedTuple):
    """What a host was asked for; ``answers`` None before it has begun."""

    host: int
    part: str
    token: str
    given: tuple = ()
    answers: tuple | None = None
    there: MoveRecord | None = None
    # Whether an effect that takes its time has begun and is not over.
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
    """Everything; ``left`` is how much may still go wrong."""

    hosts: tuple
    runners: tuple = (None, None)
    orders: tuple = (None, None)
    stalled: tuple = ()
    tokens: int = 0
    latest: int = 0
    is_purged: bool = False
    # Whether a host that was reinstalled has taken the only definition with it.
    is_undefined: bool = False
    # Whether somebody has acted without our commands; the files and definitions left are theirs.
    is_bypassed: bool = False
    # commands; kills, silences and cuts of a network; of the power and of libvirtd; deeds by hand
    left: tuple = (2, 1, 1, 1)
    # Whether images must be sent before files are made, and whether the source forgets the VM.
    has_images: bool = False
    leaves: bool = True
    # Whether somebody has made the target's files by hand, and moves the VM without a master.
    is_by_hand: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen(Source):
    """What the source says, and what it has noted of the VM."""

    noted: Departure | None = None


def copied(there, token):
    """Move a VM by hand, all in one job, as ``ops.migration.departure.move_unprepared`` does."""
    yield from moveprotocol.open_departure(there, token)
    yield from moveprotocol.send(MoveRecord(token=token, phase=moveprotocol.PLANNED), token)
    yield from moveprotocol.finish(MoveRecord(token=token, phase=moveprotocol.HANDING), token)


class Model:
    """The parts of a protocol and how hosts do their effects; today's differs in the tests."""

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

    def there(self, host, part):
        """Return the record that a part begins from."""
        record = host.departure if part in self.on_source else host.arrival
        return record and MoveRecord(token=record.token, phase=record.phase)

    def is_startable(self, host):
        """Return whether our own commands start the VM on a host."""
        phase = host.departure and host.departure.phase
        is_leaving = phase in (moveprotocol.HANDING, moveprotocol.LEAVING)
        is_coming = host.arrival is not None and host.arrival.phase != moveprotocol.ARRIVED
        return bool(host.defined) and not is_leaving and not is_coming

    def may_purge(self, host):
        """Return whether our own command purges the VM on a host."""
        is_leaving = host.departure is not None and host.departure.phase != moveprotocol.CANCELLED
        return bool(host.defined) and not is_leaving and host.arrival is None

    def part(self, call):
        """Return the generator of a call, at its beginning."""
        function = {**self.on_source, **self.on_target}[call.part]
        given, asks = dict(call.given), {"cancel": ("seen", "is_refused"), "arrive": ("is_handed",)}
        more = {one: given[one] for one in asks.get(call.part, ())}
        more |= {"is_lost": True} if given.get("is_lost") else {}
        return function(call.there, call.token, **more)


def change(world, number, **changes):
    """Return the world with one host changed."""
    hosts = list(world.hosts)
    hosts[number] = hosts[number]._replace(**changes)
    return world._replace(hosts=tuple(hosts))


def replayed(steps, answers):
    """Return ``("effect", it)``, ``("return", value)`` or ``("raise", why)`` after some answers."""
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
    runners = tuple(runner if i == master else one for i, one in enumerate(world.runners))
    return world._replace(runners=runners)


def same(world):
    """Return the one of two worlds that differ only in which of two masters is which."""
    if len(world.runners) == 2:
        one, other = zip(world.runners, world.orders, strict=True)
        if hash(one) > hash(other):
            swap = {"runners": world.runners[::-1], "orders": world.orders[::-1]}
            return world._replace(**swap)
    return world


def last_looks(answers):
    """Return what source and target said last; the target is asked again after the others."""
    said = [answer for _kind, answer in answers]
    return said[-4 if isinstance(said[-2], ThirdHosts) else -2], said[-1]
