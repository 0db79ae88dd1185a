"""
A checker of the protocol of a move: it explores each order of events, to a stated depth.

It carries out the effects of :mod:`saltvirt.core.protocol.moveprotocol` itself, on a few hosts with
one VM and two masters. Between any two effects runners are killed or stop waiting, jobs are killed,
hosts lose their power, and operators act by hand. An abandoned call is stalled: it continues at any
later time, or never.
"""

from collections import deque

from bypasses import Bypasses
from cloudhands import Hands
from clouds import (
    NOTHING,
    PART,
    UNSYNCED,
    WHOLE,
    Call,
    Departure,
    Lost,
    Model,
    Refused,
    Runner,
    Seen,
    change,
    has_own_files,
    is_arriving,
    last_looks,
    replayed,
    same,
    with_runner,
)
from invariants import Invariants, open_moves
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.moveprotocol import Target

# Effects that need the network between the hosts; DONE_THERE may fail after they were done.
BETWEEN, DONE_THERE = ("push", "migrate", "look", "define_there"), ("migrate", "define_there")


class Checker(Bypasses, Invariants):
    """Explores a model from a world, breadth first, and checks every state that it reaches."""

    hands = Hands

    def __init__(self, model=None):
        self.model = model or Model()
        self.states, self.depth, self.settled, self._replayed = 0, 0, {}, {}

    def explore(self, world, depth=None):
        """Explore all that can happen, up to ``depth`` steps if given, or raise Lost."""
        origins, queue = {world: None}, deque([(world, 0)])
        while queue:
            current, depth_reached = queue.popleft()
            self.states, self.depth = self.states + 1, depth_reached
            try:
                self.check(current)
                if depth is None or depth_reached < depth:
                    for label, following in self.successors(current):
                        count, following = len(origins), same(following)
                        origins.setdefault(following, (current, label))
                        if len(origins) > count:
                            queue.append((following, depth_reached + 1))
            except Lost as lost:
                raise Lost(lost.reason, [*_way(origins, current), *lost.trace]) from None
        return self.states

    # What can happen next.

    def successors(self, world):
        """Yield ``(label, world)`` of all that can happen next."""
        yield from self._masters(world)
        for index, call in enumerate(world.stalled):
            other_calls = world.stalled[:index] + world.stalled[index + 1 :]
            for label, after, new in self._advanced(world, call):
                remaining = (
                    other_calls
                    if isinstance(new, tuple) and new[:1] == ("over",)
                    else (*other_calls, new)
                )
                yield f"stalled {label}", after._replace(stalled=tuple(sorted(remaining, key=repr)))
            yield f"a stalled {call.part} is killed", world._replace(stalled=other_calls)
        yield from self._libvirt(world)
        if world.budget[2]:
            for number in range(len(world.hosts)):
                yield f"host {number} loses its power", self._cut(world, number)
                if any(
                    number in (n, h.job) and h.job is not None or n == number and h.is_migrated
                    for n, h in enumerate(world.hosts)
                ):
                    yield f"libvirtd of {number} is restarted", self._restarted(world, number)
        yield from self._by_hand(world)

    def _masters(self, world):
        for master, runner in enumerate(world.runners):
            if runner is None:
                yield from self._commands(world, master)
                continue
            yield from self._stepped(world, master, runner)
            if world.budget[1]:
                yield f"runner {master} is killed", self._without(world, master, runner)

    def _commands(self, world, master):
        if not world.budget[0]:
            return
        spent = world._replace(budget=(world.budget[0] - 1, *world.budget[1:]))
        order = world.orders[master]
        for move in [order] if order else sorted(open_moves(world._replace(orders=()))):
            yield f"runner {master} settles", with_runner(spent, master, Runner("settle", *move))
        if order is not None:
            return
        if world.is_by_hand:
            if not world.tokens:
                arguments = (("source", 0), ("target", 1))
                stalled = (*spent.stalled, Call(0, "copied", "t0", arguments))
                yield "somebody moves 0->1 by hand", spent._replace(tokens=1, stalled=stalled)
            return
        yield from self._moves(spent, master)

    @staticmethod
    def _moves(spent, master):
        for source, host in enumerate(spent.hosts):
            for target in range(len(spent.hosts)) if host.defined else ():
                if target != source:
                    token = f"t{spent.tokens}"
                    new = Runner("move", token, source, target)
                    begun = with_runner(spent._replace(tokens=spent.tokens + 1), master, new)
                    yield f"runner {master} moves {source}->{target} ({token})", begun

    def _without(self, world, master, runner):
        """Return the world after a runner was killed; its call goes on."""
        spent = world._replace(budget=(world.budget[0], world.budget[1] - 1, *world.budget[2:]))
        if runner.call is not None:
            stalled = tuple(sorted((*spent.stalled, runner.call), key=repr))
            spent = spent._replace(stalled=stalled)
        return with_runner(spent, master, None)

    def _stepped(self, world, master, runner):
        if runner.call is not None:
            yield from self._waited(world, master, runner)
            return
        make = self.model.on_master[runner.part]
        kind, value = self._after(runner.part, runner.answers, make)
        if kind != "effect":
            if kind == "return":
                self.reported(world, runner, value)
            yield f"runner {master} ends: {value}", with_runner(world, master, None)
            return
        yield from self._asked(world, master, runner, value[0])

    def _asked(self, world, master, runner, effect):
        """Yield what follows from an effect of a runner: at once, or by a call to a host."""

        def answered(after, answer):
            answers = (*runner.answers, ("ok", answer))
            return with_runner(after, master, runner._replace(answers=answers))

        name = f"runner {master}: {effect}"
        if effect in ("order", "close"):
            order = (runner.token, runner.source, runner.target) if effect == "order" else None
            before = world.orders[master]
            if effect == "close" and before and before[0] != runner.token:
                order = before
            orders = tuple(order if i == master else o for i, o in enumerate(world.orders))
            yield name, answered(world._replace(orders=orders), None)
        elif effect in ("look_at_source", "look_at_target"):
            view = getattr(self, effect)(world, runner)
            yield f"{name} {view}", answered(world, view)
            if world.budget[1]:
                spent = world._replace(
                    budget=(world.budget[0], world.budget[1] - 1, *world.budget[2:])
                )
                yield f"{name}: silent", answered(spent, None)
        elif effect == "look_at_third_hosts":
            yield name, answered(world, self.look_at_third_hosts(world, runner))
        else:
            call = self.call(world, runner, effect)
            yield name, with_runner(world, master, runner._replace(call=call))

    def call(self, world, runner, effect):
        """Return the call for an effect of a runner."""
        number = runner.source if effect in self.model.on_source else runner.target
        arguments = {"source": runner.source, "target": runner.target}
        if effect == "arrive":
            # The facts that the source recorded, from its answer to the sending or to a look.
            # Without a record of the move only the state of the hosts is known.
            last_view = [
                view for _kind, view in runner.answers if isinstance(view, Departure | Seen)
            ][-1]
            recorded = last_view if isinstance(last_view, Departure) else last_view.noted
            recorded = recorded or Departure(runner.token, "", runner.target, True, False)
            arguments |= {
                "was_active": recorded.was_active,
                "auto": recorded.auto,
                "version": recorded.version,
            }
            arguments["is_handed"] = (
                last_view.is_handed if isinstance(last_view, Seen) else last_view.was_active
            )
        if effect == "cancel":
            source, target = last_looks(runner.answers)
            is_refused = target is not None and target.phase in (None, moveprotocol.REFUSED)
            arguments |= {"seen": source.phase, "is_refused": is_refused}
        return Call(number, effect, runner.token, tuple(sorted(arguments.items())))

    def _waited(self, world, master, runner):
        """Yield what follows while a runner waits for a call: it goes on, or is given up."""
        for label, after, new in self._advanced(world, runner.call):
            if isinstance(new, tuple) and new[:1] == ("over",):
                kind, value = new[1:]
                if (kind, runner.call.part) == ("return", "send"):
                    value = after.hosts[runner.source].departure
                if (kind, value, runner.call.part) == ("return", True, "prepare"):
                    # The images have arrived, each in a file of this move.
                    resume = runner.call._replace(part="resume", answers=None, record=None)
                    yield label, with_runner(after, master, runner._replace(call=resume))
                    continue
                answer = ("ok", value) if kind == "return" else ("error", value)
                answers = (*runner.answers, answer)
                yield label, with_runner(after, master, runner._replace(call=None, answers=answers))
            else:
                yield label, with_runner(after, master, runner._replace(call=new))
        if world.budget[1]:
            spent = self._without(world, master, runner)
            answers = (*runner.answers, ("error", "silent"))
            waiting_no_longer = runner._replace(call=None, answers=answers)
            yield f"runner {master} waits no longer", with_runner(spent, master, waiting_no_longer)

    def _advanced(self, world, call):
        """Yield ``(label, world, call)`` of one step; of an ended call ``("over", ...)``."""
        host, name = world.hosts[call.host], f"{call.part} on {call.host}"
        if call.answers is None:
            if self._is_locked(world, call):
                yield f"{name} is refused: busy", world, ("over", "raise", "busy")
                return
            begun = call._replace(answers=(), record=self.model.record_of(host, call.part))
            yield f"{name} begins", world, begun
            return
        key = (call.part, call.token, call.record, call.arguments)
        kind, value = self._after(key, call.answers, lambda: self.model.part(call))
        if kind != "effect":
            yield f"{name} ends ({kind} {value})", world, ("over", kind, value)
            return
        if not (call.has_begun and host.job is not None):
            yield self._done(world, call, value, name)
        yield from self._cut_off(world, call, value, name)

    def _after(self, key, answers, make):
        """Return the outcome of a part after some answers; it is pure, so it runs once."""
        key_and_answers = (key, answers)
        result = self._replayed.get(key_and_answers)
        if result is None:
            result = self._replayed[key_and_answers] = replayed(make(), answers)
        return result

    def _cut_off(self, world, call, effect, name):
        """Yield what follows when the network between the hosts fails, or libvirt hangs."""
        if effect[0] not in BETWEEN or not world.budget[1]:
            return
        spent = world._replace(budget=(world.budget[0], world.budget[1] - 1, *world.budget[2:]))
        new = call._replace(answers=(*call.answers, ("error", "cut off")), has_begun=False)
        yield f"{name}: {effect} is cut off", spent, new
        if effect[0] in DONE_THERE and world.hosts[call.host].job is None:
            _label, after, done_call = self._done(spent, call, effect, name)
            if not done_call.has_begun and done_call.answers[-1][0] == "ok":
                yield f"{name}: {effect} is cut off when it was done", after, new

    def _done(self, world, call, effect, name):
        """Return what follows from an effect of a call; a long one has a beginning and an end."""
        hands = self.hands(world, call)
        is_long = hasattr(hands, f"begin_{effect[0]}")
        is_begun = is_long and not call.has_begun
        method = f"begin_{effect[0]}" if is_begun else effect[0]
        try:
            after, answer = getattr(hands, method)(*effect[1:])
        except Refused as error:
            answers = (*call.answers, ("error", str(error)))
            new = call._replace(answers=answers, has_begun=False)
            return f"{name}: {effect} fails: {error}", world, new
        if is_begun:
            return f"{name}: {effect} begins", after, call._replace(has_begun=True)
        new = call._replace(answers=(*call.answers, ("ok", answer)), has_begun=False)
        return f"{name}: {effect}", after, new

    def _is_locked(self, world, call):
        """Return whether another call holds the lock of the same record."""
        parts = self.model.on_source if call.part in self.model.on_source else self.model.on_target
        calls = [*world.stalled, *(r.call for r in world.runners if r and r.call)]
        return any(
            other_call.host == call.host
            and other_call.part in parts
            and other_call.answers is not None
            for other_call in calls
        )

    def is_live(self, world, number, parts):
        """Return whether a call is at work on a record of a host."""
        calls = [*world.stalled, *(r.call for r in world.runners if r and r.call)]
        return any(c.host == number and c.part in parts and c.answers is not None for c in calls)

    def look_at_source(self, world, runner):
        """Return the source's answer."""
        host = world.hosts[runner.source]
        departure = host.departure
        is_own = departure is not None and departure.token == runner.token
        phase = departure.phase if is_own else None
        if phase is None and runner.token in host.buried:
            phase = moveprotocol.CANCELLED
        return Seen(
            phase=phase,
            noted=departure if is_own else None,
            is_live=self.is_live(world, runner.source, self.model.on_source),
            is_moving=host.job is not None,
            has=bool(host.defined) and host.files == WHOLE,
            has_files=is_own and has_own_files(host),
            stays=is_own and departure.was_active and host.active and host.job is None,
            is_handed=is_own and host.is_migrated,
        )

    def look_at_target(self, world, runner):
        """Return the target's answer."""
        host = world.hosts[runner.target]
        is_own = host.arrival is not None and host.arrival.token == runner.token
        return Target(
            phase=host.arrival.phase if is_own else None,
            is_live=self.is_live(world, runner.target, self.model.on_target),
            is_arriving=is_arriving(world, runner.target),
            has=bool(host.defined),
            has_disks=host.files != NOTHING,
            is_empty=host.files == PART
            and host.version == -1
            or host.files == NOTHING
            and not host.defined,
        )

    def _libvirt(self, world):
        for number, host in enumerate(world.hosts):
            if host.job is None:
                continue
            yield "libvirt's job fails", change(world, number, job=None)
            moved = change(world, number, job=None, active=False, is_migrated=True)
            # QEMU flushes the disks that it copies; libvirt does not sync its folder.
            defined = max(world.hosts[host.job].defined, UNSYNCED)
            new = {"defined": defined, "active": True, "files": WHOLE, "version": host.version}
            yield "libvirt's job ends well", change(moved, host.job, **new)

    def _cut(self, world, number):
        """Return the world after a host has lost its power and has booted again."""
        budget = (*world.budget[:2], world.budget[2] - 1, *world.budget[3:])
        host = world.hosts[number]
        files = PART if host.files == UNSYNCED else host.files
        defined = NOTHING if host.defined == UNSYNCED else host.defined
        off = {"active": False, "job": None, "is_migrated": False}
        cut = change(world, number, files=files, defined=defined, **off)
        for other_number, other_host in enumerate(cut.hosts):
            if other_host.job == number:
                cut = change(cut, other_number, job=None)
        runners = tuple(self._unanswered(r, number) for r in cut.runners)
        stalled = tuple(call for call in cut.stalled if call.host != number)
        cut = cut._replace(budget=budget, runners=runners, stalled=stalled)
        return self.started(cut, number) if host.auto and defined else cut

    @staticmethod
    def _restarted(world, number):
        """Return the world after a restart of a libvirtd; QEMU goes on."""
        budget = (*world.budget[:2], world.budget[2] - 1, *world.budget[3:])
        after = change(world, number, job=None, is_migrated=False)
        for other_number, host in enumerate(after.hosts):
            if host.job == number:
                after = change(after, other_number, job=None)
        return after._replace(budget=budget)

    @staticmethod
    def _unanswered(runner, number):
        if runner is None or runner.call is None or runner.call.host != number:
            return runner
        return runner._replace(call=None, answers=(*runner.answers, ("error", "silent")))

    @staticmethod
    def started(world, number):
        """Return the world after the VM was started on a host, and has written to its disk."""
        host = world.hosts[number]
        latest = max(world.latest, host.version) + 1
        new = change(world, number, active=True, version=latest)
        return new._replace(latest=latest)

    def _by_hand(self, world):
        if not world.budget[3]:
            return
        spent = world._replace(budget=(*world.budget[:3], world.budget[3] - 1))
        yield from self.without_us(spent)
        for number, host in enumerate(world.hosts):
            if host.active:
                yield f"the guest on {number} writes", self.started(spent, number)
                if host.job is None:
                    yield f"stop on {number}", change(spent, number, active=False)
            else:
                yield from self._of_one_that_is_off(spent, number)

    def _of_one_that_is_off(self, world, number):
        host = world.hosts[number]
        # An operator who keeps the VM on both hosts starts only one of them.
        is_kept = not world.leaves and sum(bool(h.defined) for h in world.hosts) > 1
        if self.model.is_startable(host) and not is_kept:
            yield f"start on {number}", self.started(world, number)
        if self.model.may_purge(host):
            purged = change(world, number, defined=NOTHING, files=NOTHING, auto=False)
            yield f"purge on {number}", purged._replace(is_purged=True)


def _way(origins, world):
    labels = []
    while origins[world] is not None:
        world, label = origins[world]
        labels.append(label)
    return [f"{number}. {label}" for number, label in enumerate(reversed(labels), 1)]
