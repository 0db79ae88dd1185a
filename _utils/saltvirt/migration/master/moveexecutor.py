"""
The effects of a move that the master does, as :mod:`saltvirt.core.protocol.moveprotocol` orders
them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import (
    HostCommandFailed,
    HostUnresponsive,
    act,
    progress_watcher,
)
from saltvirt.core import terminal, wire
from saltvirt.core.errors import FunctionMissing, VirtError
from saltvirt.core.journal.movefacts import Noted, cut_postcopy_message, lost_half_message
from saltvirt.core.journal.recordfacts import MoveOrderFacts
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import State, ThirdHosts
from saltvirt.core.protocol.moveprotocol import Source, Target
from saltvirt.migration.master import thirdhosts
from saltvirt.placement.answers import Figures, MigrationInfo, Room, StepDone

LIMIT_S = 3600
# Seconds beyond the move itself for sending and checking files and definitions.
_OVERHEAD_S = 600
# Seconds to wait for a job that is ending or a domain that is arriving.
_PATIENCE_S = 30
_STATE = "virt.migration_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveHosts:
    """
    The hosts of a move, and when it began, as users read it; empty if not on record.

    ``source`` is None if the sending host is unknown.
    """

    source: str | None
    target: str
    begun: str = ""

    def __str__(self) -> str:
        return f"from {self.source or 'an unknown host'} to {self.target}"


class MoveFailed(VirtError):
    """A VM was not moved; the message has its host and the reason."""


class NotReady(VirtError):
    """The target could not prepare for the VM; another target may be tried."""


class MoveExecutor:
    """The effects of one move of one VM between two hosts."""

    def __init__(
        self,
        cloud: Cloud,
        order_record: LockedRecord,
        token: str,
        hosts: MoveHosts,
        uuid: str | None = None,
    ) -> None:
        self._cloud, self._held = cloud, order_record
        self.hosts, self.source, self.target = hosts, hosts.source, hosts.target
        self.token, self.uuid = token, uuid
        self.name = order_record.name
        self.moving: MigrationInfo
        self.move_options: Mapping[str, Any] = {}
        self.figures: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.noted = Noted()
        # The VM's disk files by the source's record.
        self._disks: Sequence[str] = ()
        # Each host's last answer, or the reason why there is none.
        self.answers: dict[str | None, Source | Target | str | None] = {}
        self.silent: set[str | None] = set()
        self.is_sent = False
        # The third hosts' answers; an unresponsive third host delays the move unless is_forced.
        self.third_hosts, self.is_forced = ThirdHosts(), False

    @property
    def source_state(self) -> Source | None:
        """The source's last answer about the move; None if it gave none."""
        answer = self.answers.get(self.source)
        return answer if isinstance(answer, Source) else None

    @property
    def target_state(self) -> Target | None:
        """The target's last answer about the move; None if it gave none."""
        answer = self.answers.get(self.target)
        return answer if isinstance(answer, Target) else None

    @property
    def source_has(self) -> bool:
        """Whether the source has the VM, by its last answer."""
        return self.source_state is not None and self.source_state.has

    # Effects of a new move.

    def order(self) -> None:
        facts = MoveOrderFacts(source=self.source, target=self.target)
        orders.begin_move(self._held, self.token, facts)

    def close(self) -> None:
        # The order may be that of a later move, made by another command.
        record = self._held.record
        if record is not None and (record.phase, record.token) == (orders.MOVING, self.token):
            self._held.end()

    def open(self) -> None:
        kwarg = {"token": self.token, "target": self.target}
        self.moving = self._read(
            self.source, "virt.migrate_begin", MigrationInfo, self.name, kwarg=kwarg
        )
        self.uuid = self.moving.uuid
        orders.note_uuid(self._held, self.moving.uuid)

    def prepare(self) -> None:
        vm_facts = wire.plain(self.moving)
        kwarg = {"about": vm_facts, "token": self.token, "source": self.source}
        try:
            room = self._prepare(kwarg)
            if room.images:
                self._send_images(room.images)
                room = self._prepare({"about": vm_facts, "token": self.token, "images_sent": True})
        except HostUnresponsive:
            raise
        except HostCommandFailed as error:
            raise NotReady(str(error).removeprefix(f"{self.target}: ")) from error
        self.present = room.present

    def _prepare(self, kwarg: Mapping[str, Any]) -> Room:
        room: Room = self._read(self.target, "virt.migrate_prepare", Room, kwarg=kwarg)
        return room

    def _send_images(self, images: Mapping[str, str]) -> None:
        count_text = terminal.count_text(len(images), "image")
        self._cloud.progress("Sending", detail=f"{count_text} to {self.target}")
        kwarg = {"name": self.name, "target": self.target, "images": images}
        self._act(self.source, "virt.migrate_push", kwarg=kwarg, limit_s=self._limit_s)

    def send(self) -> None:
        kwarg = {**self.move_options, "vm_": self.name, "target": self.target, "token": self.token}
        kwarg |= {"present": self.present, "report": True}
        watch = progress_watcher(self._cloud, "salt/virt/migrate", self.source or "", self.name)
        figures: Figures = self._read(
            self.source,
            "virt.migrate",
            Figures,
            kwarg=kwarg,
            watch=watch,
            limit_s=self._limit_s,
        )
        self.figures, self.is_sent = figures.shown(), True
        self.warnings += figures.warnings
        self.noted = wire.read(self.source or "", "virt.migrate", Noted, figures.noted)

    @property
    def _limit_s(self) -> float:
        limit_s: float = self.move_options.get("limit_s", LIMIT_S) + _OVERHEAD_S
        return limit_s

    # Effects of settling a move.

    def look_at_source(self) -> Source | None:
        if self.source is None:
            return Source()
        answer: Source | None = self._seen(self.source, "source")
        return answer

    def look_at_target(self) -> Target | None:
        answer: Target | None = self._seen(self.target, "target")
        return answer

    def look_at_third_hosts(self) -> ThirdHosts:
        """Return the third hosts' answers about the VM: those of the two hosts may be outdated."""
        move = thirdhosts.Move(name=self.name, token=self.token, uuid=self.uuid)
        third_hosts = thirdhosts.look(self._cloud, move, {self.source, self.target})
        self.third_hosts = replace(third_hosts, silent=()) if self.is_forced else third_hosts
        return self.third_hosts

    def _seen(self, host: str, side: str) -> Any:
        """Return a host's answer; ask again for a while if the host is working or has an error."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            state, is_last = self._state(host)
            out: Any = None if state is None else getattr(state, side)
            self.answers[host] = out or self.answers[host]
            is_over = out is not None and not _is_working(out)
            if is_last or is_over or time.monotonic() > deadline:
                if state is not None and side == "source":
                    self.noted, self._disks = state.noted, state.disks
                return out
            time.sleep(1)

    def _state(self, host: str) -> tuple[State | None, bool]:
        """Return a host's state of the move, and whether to stop asking."""
        reply = self._asked(host)
        self.silent.discard(host)
        if reply.is_missing:
            self.silent.add(host)
        if not reply.ok:
            self.answers[host] = reply.reason
            return None, reply.is_missing
        self.answers[host] = None
        try:
            return wire.read(host, _STATE, State, reply.value), False
        except wire.BadAnswer as error:
            self.answers[host] = str(error)
            return None, True

    def _asked(self, host: str) -> minions.Reply:
        kwarg: dict[str, Any] = {"token": self.token, "uuid": self.uuid}
        if host == self.target and self._disks:
            kwarg["paths"] = list(self._disks)
        return minions.ask(self._cloud, [host], _STATE, [self.name], kwarg)[host]

    def is_unknown(self, host: str | None) -> bool:
        """Return whether a host is unknown, or no accepted minion of this master."""
        return host is None or minionkeys.read_accepted(self._cloud.opts, host) is None

    def cancel(self) -> None:
        target = self.target_state
        is_refused = target is not None and target.phase in (None, moveprotocol.REFUSED)
        self._step(
            self.source, moveprotocol.CANCEL, seen=self._phase_of_source, is_refused=is_refused
        )

    @property
    def _phase_of_source(self) -> str | None:
        return self.source_state.phase if self.source_state is not None else None

    def lose_target(self) -> None:
        """Give up the target: the operator declares it lost."""
        phase = self._phase_of_source
        self._step(self.source, moveprotocol.CANCEL, seen=phase, is_refused=False, is_lost=True)

    def give_up(self) -> None:
        """Give up what the target has: the operator does not need it."""
        if self.is_on_both:
            self._step(self.target, moveprotocol.DROP, is_lost=True)
        elif self.source is None:
            # There is no source left that could record the cancellation.
            self.drop()
        elif self._phase_of_source == moveprotocol.HANDING:
            self.lose_target()
        else:
            self.cancel()

    @property
    def is_on_both(self) -> bool:
        """Whether a target that was given up has come back with an arrived VM."""
        target = self.target_state
        has_arrived = target is not None and target.phase == moveprotocol.ARRIVED
        return has_arrived and self._phase_of_source == moveprotocol.CANCELLED

    def lose_source(self) -> None:
        """Give up the source: the target keeps the VM, if the VM is whole there."""
        # is_handed: the target must not refuse the VM for good, as no source can take it back.
        kwarg = {"is_handed": True, "noted": wire.plain(self.noted)}
        self.warnings += self._step(self.target, moveprotocol.ARRIVE, **kwarg).warnings
        self.end()

    @property
    def is_left_alone(self) -> bool:
        """Whether the source still has what the target should have and lacks."""
        source, target = self.source_state, self.target_state
        if source is None or target is None:
            return False
        return moveprotocol.is_left_alone(source, target)

    def redefine(self) -> None:
        self._step(self.source, moveprotocol.REDEFINE)

    def give_way(self, host: str) -> list[str]:
        """End both hosts' records of a VM that ``host`` has; return lines on what both keep."""
        warnings = []
        for side_host, answer, step in (
            (self.target, self.target_state, moveprotocol.LET_GO),
            (self.source, self.source_state, moveprotocol.GIVE_WAY),
        ):
            if answer is None or answer.phase is None:
                continue
            if answer.phase == moveprotocol.ARRIVED:
                # The VM arrived, so it belongs to the target, which has nothing to let go.
                self.end()
                continue
            step_warnings = self._step(side_host, step, keeper=host).warnings
            warnings += [f"{side_host}: {line}" for line in step_warnings]
        return warnings

    def finish(self) -> None:
        self._cloud.progress("Tidying up", detail=f"on {self.source}")
        self.figures["removed"] = self._step(self.source, moveprotocol.FINISH).removed

    def forget(self) -> None:
        self._step(self.source, moveprotocol.FORGET)

    def arrive(self) -> None:
        self._cloud.progress("Checking", detail=f"on {self.target}")
        kwarg = {"is_handed": self._is_handed, "noted": wire.plain(self.noted)}
        self.warnings += self._step(self.target, moveprotocol.ARRIVE, **kwarg).warnings

    @property
    def _is_handed(self) -> bool:
        source = self.source_state
        if source is not None:
            # If the source lacks the VM, the target may have the only copy and must not drop it.
            return source.is_handed or not source.has
        # The source was not asked for its state, as it has just sent the VM.
        return bool(self.noted.was_running)

    def refuse(self) -> None:
        self._step(self.target, moveprotocol.REFUSE)

    def drop(self) -> None:
        self._step(self.target, moveprotocol.DROP)

    def end(self) -> None:
        self._step(self.target, moveprotocol.END)

    def _step(self, host: str | None, step: str, **kwarg: Any) -> StepDone:
        fun, args = "virt.migrate_step", (self.name, self.token, step)
        result: StepDone = self._read(
            host, fun, StepDone, *args, kwarg=kwarg, limit_s=self._limit_s
        )
        return result

    def _read(self, host: str | None, fun: str, shape: Any, *args: Any, **options: Any) -> Any:
        """Have a host run a function, and return its answer as a type."""
        return wire.read(host or "", fun, shape, self._act(host, fun, *args, **options))

    @property
    def no_departure_message(self) -> str:
        """What is wrong with a move that needs a step of its unknown source."""
        return f"no host that answers has the departure of VM {self.name!r} on record"

    def _act(self, host: str | None, fun: str, *args: Any, **options: Any) -> Any:
        if host is None:
            raise MoveFailed(self.no_departure_message)
        try:
            return act(self._cloud, host, fun, *args, **options)
        except HostUnresponsive:
            raise
        except HostCommandFailed as error:
            if error.kind == FunctionMissing.__name__:
                raise MoveFailed(str(error)) from error
            raise

    # The outcome.

    def hint(self) -> None:
        """Record the target as the host that has the VM."""
        lastseen.record_move(self._cloud.opts, self.name, self.target)

    def hint_left(self, *hosts: str | None) -> None:
        """Record that hosts do not have the VM, by their answers or the operator's word."""
        for host in filter(None, hosts):
            lastseen.record_absence(self._cloud.opts, self.name, host)

    def waits(self) -> str:
        """Return what an unfinished move waits for."""
        unresponsive_hosts = [
            f"{host} ({reason})" for host, reason in self.answers.items() if isinstance(reason, str)
        ]
        if unresponsive_hosts:
            return f"{' and '.join(sorted(unresponsive_hosts))} cannot be asked"
        other_reason = self.waits_for_others()
        if other_reason:
            return other_reason
        if self.is_cut:
            return f"post-copy has failed: {self._cut()}"
        if self.source_state is not None and _is_working(self.source_state):
            return f"{self.source} is still sending it"
        if self.target_state is not None and _is_working(self.target_state):
            return f"{self.target} is still taking it"
        answer_texts = (
            f"{host} {_describe_answer(answer)}" for host, answer in self.answers.items()
        )
        return f"the hosts do not agree: {', '.join(answer_texts)}"

    @property
    def is_cut(self) -> bool:
        """Whether either host reports that post-copy of the VM failed."""
        states = (self.source_state, self.target_state)
        return any(state is not None and state.is_cut for state in states)

    def _cut(self) -> str:
        source, target = self.source_state, self.target_state
        is_there = target is not None and target.is_arriving
        if source is not None and source.is_cut and is_there:
            return cut_postcopy_message(self.name, self.target)
        return lost_half_message(self.name, self.target, is_source=is_there)

    def waits_for_others(self) -> str:
        """Return what a move waits for on third hosts; empty for nothing."""
        if self.third_hosts.silent:
            return f"{' and '.join(self.third_hosts.silent)} may have it, and cannot be asked"
        moving_hosts = [*self.third_hosts.leaving, *self.third_hosts.coming]
        hosts_text = " and ".join(moving_hosts)
        return f"another move of it, by {hosts_text}, is not over either" if moving_hosts else ""


def _describe_answer(answer: Source | Target | str | None) -> str:
    """Return a host's answer about a move, in words."""
    if not isinstance(answer, Source | Target):
        return "has not answered"
    return f"{'has' if answer.has else 'does not have'} the VM ({answer.phase or 'no record'})"


def _is_working(answer: Source | Target) -> bool:
    is_moving = getattr(answer, "is_moving", False) or getattr(answer, "is_arriving", False)
    return answer.is_live or is_moving
