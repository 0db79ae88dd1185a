"""The invariants of each state of the checker's cloud, and of its end after settling."""

from clouds import NOTHING, UNSYNCED, Call, Lost, Runner, change, is_arriving, with_runner
from saltvirt.core.journal.records import ShownRecord
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Target, ThirdHosts
from saltvirt.migration.master import thirdhosts
from saltvirt.placement.answers import Presence


class Invariants:
    """The checks of a :class:`checker.Checker`."""

    def check(self, world):
        """Raise :class:`Lost` if an invariant does not hold."""
        self._check_there(world)
        self._check_once(world)
        self.check_settling(world)

    @staticmethod
    def _check_there(world):
        if any(host.active and host.files < UNSYNCED for host in world.hosts):
            raise Lost("it runs without its disk")
        newest = [h for h in world.hosts if h.files >= UNSYNCED and h.version == world.latest]
        if not (world.is_purged or newest):
            raise Lost("no host has the VM's definition and all its disks: they were removed")
        is_defined = world.is_purged or world.is_undefined or _is_defined(world, newest)
        if not is_defined:
            raise Lost("no host has the VM's definition and all its disks")

    def _check_once(self, world):
        running = {number for number, host in enumerate(world.hosts) if host.active}
        if len(running) > 1:
            raise Lost(f"it runs on {sorted(running)}")
        startable = {
            number
            for number, host in enumerate(world.hosts)
            if self.model.is_startable(host) or (host.auto and host.defined)
        }
        # After a move that keeps the VM on both hosts it is for the operator to start one only.
        is_kept = not world.leaves and not any(host.departure for host in world.hosts)
        if len(startable | running) > 1 and not is_kept:
            raise Lost(f"it runs on {sorted(running)}, and would be started on {sorted(startable)}")

    def reported(self, world, runner, value):
        """Check that the VM is on the target when a runner reports success."""
        if runner.part != "move" or not value[1] or world.is_purged or world.is_bypassed:
            return
        # Only the last move can be checked.
        is_last = runner.token == f"t{world.tokens - 1}"
        if is_last and not world.hosts[runner.target].defined:
            raise Lost("success is reported, and it is not there")

    def look_at_third_hosts(self, world, runner):
        """Return the answers of third hosts about the VM, judged as the master does."""
        hosts_by_category = {"has": [], "leaving": [], "coming": []}
        move = thirdhosts.Move(name="vm", token=runner.token, uuid="u")
        for number in sorted(set(range(len(world.hosts))) - {runner.source, runner.target}):
            category = thirdhosts.classify_third_host(move, _third(world, number))
            if category is not None:
                hosts_by_category[category].append(number)
        return ThirdHosts(
            **{category: tuple(hosts) for category, hosts in hosts_by_category.items()}
        )

    def check_settling(self, world):
        """Check that the next command settles everything after any kills before it."""
        # The state that remains when all runners and calls are killed.
        persistent_state = (world.hosts, world.orders, world.tokens, world.latest, world.is_purged)
        count = len(self.settled)
        self.settled.setdefault(persistent_state)
        if len(self.settled) == count:
            return
        quiet = world._replace(
            runners=(None,) * len(world.runners), stalled=(), budget=(99, 0, 0, 0)
        )
        for number, host in enumerate(world.hosts):
            if host.job is not None:
                quiet = change(quiet, number, job=None)
        self._settle_all(quiet)

    def _settle_all(self, world):
        trace = []
        world = self._rounds(world, trace)
        if not world.is_undefined:
            # Moves that wait for the operator are settled by the override that keeps the source.
            world = self._rounds(self._kept_on_source(world, trace), trace)
        self._check_end(world, trace)

    def _kept_on_source(self, world, trace):
        """Act as `virt.settle keep=SOURCE` does where the target does not have the VM."""
        for token, source, target in sorted(open_moves(world)):
            runner = Runner("settle", token, source, target)
            target_view = self.look_at_target(world, runner)
            source_view = self.look_at_source(world, runner)
            third_hosts = self.look_at_third_hosts(world, runner)
            is_kept = (
                moveprotocol.next_step(source_view, target_view, third_hosts) == moveprotocol.KEEP
            )
            if is_kept and moveprotocol.is_left_alone(source_view, target_view):
                arguments = {"seen": source_view.phase, "is_refused": False, "is_lost": True}
                cancel = Call(source, "cancel", token, tuple(arguments.items()))
                world = self._called(world, cancel, trace)
                source_view = self.look_at_source(world, runner)
            if (
                source_view.phase == moveprotocol.CANCELLED
                and target_view.phase == moveprotocol.ARRIVED
            ):
                drop = Call(target, "drop", token, (("is_lost", True),))
                world = self._called(world, drop, trace)
        return world

    def _called(self, world, call, trace):
        while isinstance(call, Call):
            label, world, call = next(iter(self._advanced(world, call)))
            trace.append(f"settling: {label}")
        return world

    def _rounds(self, world, trace):
        for _round in range(3):
            for token, source, target in sorted(open_moves(world)):
                runner = Runner("settle", token, source, target)
                world = with_runner(world, 0, runner)
                while world.runners[0] is not None:
                    label, world = next(iter(self._stepped(world, 0, world.runners[0])))
                    trace.append(f"settling: {label}")
                    if len(trace) > 200:
                        raise Lost("settling does not end", trace)
                    self._check_there(world)
        return world

    @staticmethod
    def _check_end(world, trace):
        # For a VM without any definition the operator decides about the disks.
        if world.is_undefined:
            return
        if any(host.departure or host.arrival for host in world.hosts):
            raise Lost("something is left on record", trace)
        if not world.leaves:
            return
        having_hosts = _having(world)
        if len(having_hosts) != (0 if world.is_purged else 1):
            raise Lost(f"it is on {len(having_hosts)} hosts in the end", trace)
        if any(h.files < UNSYNCED or h.version != world.latest for h in having_hosts):
            raise Lost("it has lost what was written to its disk", trace)
        _check_files(world, having_hosts, trace)


def _having(world):
    """Return the hosts with the VM; a definition without files may be an operator's own."""
    having = [host for host in world.hosts if host.defined]
    return [host for host in having if host.files != NOTHING] if world.is_bypassed else having


def _third(world, number):
    """Return a third host's answer to the question about a VM that moves."""
    host = world.hosts[number]
    state = ("running" if host.active else "shutdown") if host.defined else None
    open_records = [
        (p, r) for p, r in (("departure", host.departure), ("arrival", host.arrival)) if r
    ]
    is_coming = is_arriving(world, number)
    shown_records = [
        ShownRecord(
            purpose=p, token=r.token, phase=r.phase, since=0, uuid="u", source=None, target=None
        )
        for p, r in open_records
    ]
    return thirdhosts.Third(
        by_name=Presence(state=state, building=is_coming, unfinished=False, uuid=state and "u"),
        by_uuid=Target(has=bool(host.defined) and not is_coming, is_arriving=is_coming),
        on_record={"vm": shown_records},
    )


def _check_files(world, having_hosts, trace):
    # Files that an operator has created by hand are the operator's.
    with_files = sum(host.files != NOTHING for host in world.hosts)
    if with_files != len(having_hosts) and not (world.is_by_hand or world.is_bypassed):
        raise Lost("files are left", trace)


def _is_defined(world, newest):
    # After a live move a target that loses its power keeps the disks, and loses an unsynced
    # definition; the source defines the VM there again.
    is_handed = any(host.is_migrated and host.defined for host in world.hosts)
    return is_handed or any(host.defined for host in newest)


def open_moves(world):
    """Return ``(token, source, target)`` of all moves on record of any host or master."""
    out = {order for order in world.orders if order}
    for number, host in enumerate(world.hosts):
        if host.departure:
            out.add((host.departure.token, number, host.departure.target))
        if host.arrival:
            out.add((host.arrival.token, host.arrival.source, number))
    return out
