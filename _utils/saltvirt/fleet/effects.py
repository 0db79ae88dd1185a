"""What the master does of a move: each effect of :mod:`saltvirt.protocol` that is done there."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import protocol, terminal, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import elsewhere, hints, keys, minions, orders
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.hosts import DeployError, HostSilent, act, watching
from saltvirt.movefacts import Noted, in_halves, lost_half
from saltvirt.parts import Elsewhere, State
from saltvirt.placement.answers import Figures, MigrationInfo, Room, StepDone
from saltvirt.protocol import Source, Target
from saltvirt.recordfacts import MoveOrderFacts
from saltvirt.records import Held

LIMIT_S = 3600
# What sending files and definitions, and looking at them, may take beside the move itself.
_BESIDE_S = 600
# How long a job that was told to end, or a domain that only arrives, is waited for.
_PATIENCE_S = 30
_STATE = "virt.migration_state"
# What Salt says of a function, and of an argument, that an older version does not have.
_OLD = "is not available"
_OLD_TARGET = "keyword arguments are not valid: "


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveHosts:
    """
    The hosts of a move, and when it began, as users read it; empty if that is not on record.

    ``source`` is None if nobody knows which host sends the VM.
    """

    source: str | None
    target: str
    begun: str = ""

    def __str__(self) -> str:
        return f"from {self.source or 'an unknown host'} to {self.target}"


class MoveFailed(VirtError):
    """A VM was not moved; the message says where it is and why."""


class NotReady(VirtError):
    """The target did not get ready for the VM; another one may be tried."""


class Hands:
    """One move of one VM between two hosts; each method is an effect of the protocol."""

    def __init__(
        self, cloud: Cloud, held: Held, token: str, hosts: MoveHosts, uuid: str | None = None
    ) -> None:
        self._cloud, self._held = cloud, held
        self.hosts, self.source, self.target = hosts, hosts.source, hosts.target
        self.token, self.uuid = token, uuid
        self.name = held.name
        self.moving: MigrationInfo
        self.given: Mapping[str, Any] = {}
        self.figures: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.noted = Noted()
        # The files of the VM's disks, as its source has noted them.
        self._disks: Sequence[str] = ()
        # What each host has said, or why it has not.
        self.seen: dict[str | None, Source | Target | str | None] = {}
        self.silent: set[str | None] = set()
        self.is_sent = False
        # What all other hosts say; one that is silent is waited for, unless that is forced.
        self.elsewhere, self.is_forced = Elsewhere(), False

    # What is asked for.

    def order(self) -> None:
        facts = MoveOrderFacts(source=self.source, target=self.target)
        orders.begin_move(self._held, self.token, facts)

    def close(self) -> None:
        # What was settled may be another's move, and the order one of a later.
        left = self._held.record
        if left is not None and (left.phase, left.token) == (orders.MOVING, self.token):
            self._held.end()

    def open(self) -> None:
        kwarg = {"token": self.token, "target": self.target}
        said = self._act(self.source, "virt.migrate_begin", self.name, kwarg=kwarg)
        self.moving = wire.read(self.source or "", "virt.migrate_begin", MigrationInfo, said)
        self.uuid = self.moving.uuid
        orders.note_uuid(self._held, self.moving.uuid)

    def prepare(self) -> None:
        moving = wire.plain(self.moving)
        kwarg = {"about": moving, "token": self.token, "source": self.source}
        try:
            made = self._prepare(kwarg)
            if made.images:
                self._send_images(made.images)
                made = self._prepare({"about": moving, "token": self.token, "images_sent": True})
        except HostSilent:
            raise
        except DeployError as error:
            raise NotReady(self._refusal(error)) from error
        self.present = made.present

    def _prepare(self, kwarg: Mapping[str, Any]) -> Room:
        said = self._act(self.target, "virt.migrate_prepare", kwarg=kwarg)
        made: Room = wire.read(self.target, "virt.migrate_prepare", Room, said)
        return made

    def _refusal(self, error: DeployError) -> str:
        if _OLD_TARGET in str(error):
            name = shlex.quote(self.target)
            return f"it has an older version of Salt Virt: salt {name} saltutil.sync_all"
        return str(error).removeprefix(f"{self.target}: ")

    def _send_images(self, images: Mapping[str, str]) -> None:
        what = terminal.counted(len(images), "image")
        self._cloud.progress("Sending", detail=f"{what} to {self.target}")
        kwarg = {"name": self.name, "target": self.target, "images": images}
        self._act(self.source, "virt.migrate_push", kwarg=kwarg, limit_s=self._limit_s)

    def send(self) -> None:
        kwarg = {**self.given, "vm_": self.name, "target": self.target, "token": self.token}
        kwarg |= {"present": self.present, "report": True}
        watch = watching(self._cloud, "salt/virt/migrate", self.source or "", self.name)
        said = self._act(
            self.source, "virt.migrate", kwarg=kwarg, watch=watch, limit_s=self._limit_s
        )
        source, fun = self.source or "", "virt.migrate"
        figures: Figures = wire.read(source, fun, Figures, said)
        self.figures, self.is_sent = figures.shown(), True
        self.warnings += figures.warnings
        self.noted = wire.read(source, fun, Noted, figures.noted)

    @property
    def _limit_s(self) -> float:
        found: float = self.given.get("limit_s", LIMIT_S) + _BESIDE_S
        return found

    # What settling does.

    def look_at_source(self) -> Source | None:
        if self.source is None:
            return Source()
        seen: Source | None = self._seen(self.source, "source")
        return seen

    def look_at_target(self) -> Target | None:
        seen: Target | None = self._seen(self.target, "target")
        return seen

    def look_elsewhere(self) -> Elsewhere:
        """Return what all other hosts say of the VM, of which these two may be behind the times."""
        move = elsewhere.Move(name=self.name, token=self.token, uuid=self.uuid)
        found = elsewhere.look(self._cloud, move, {self.source, self.target})
        self.elsewhere = replace(found, silent=()) if self.is_forced else found
        return self.elsewhere

    def _seen(self, host: str, side: str) -> Any:
        """Return what a host says; one that is at it, or cannot say, is asked again for a while."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            said, is_last = self._state(host)
            out: Any = None if said is None else getattr(said, side)
            self.seen[host] = out or self.seen[host]
            is_over = out is not None and not _is_at_it(out)
            if is_last or is_over or time.monotonic() > deadline:
                if said is not None and side == "source":
                    self.noted, self._disks = said.noted, said.disks
                return out
            time.sleep(1)

    def _state(self, host: str) -> tuple[State | None, bool]:
        """Return what a host says of both sides, and whether there is no use in asking again."""
        asked = self._asked(host)
        self.silent.discard(host)
        self.seen[host] = asked.error
        if asked.missing:
            self.silent.add(host)
            self.seen[host] = asked.error or "it does not answer"
        if not asked.ok:
            return None, asked.missing
        try:
            return wire.read(host, _STATE, State, asked.value), False
        except wire.BadAnswer as error:
            self.seen[host] = str(error)
            return None, True

    def _asked(self, host: str) -> minions.Reply:
        kwarg: dict[str, Any] = {"token": self.token, "uuid": self.uuid}
        if host == self.target and self._disks:
            kwarg["paths"] = list(self._disks)
        return minions.ask(self._cloud, [host], _STATE, [self.name], kwarg)[host]

    def is_unknown(self, host: str | None) -> bool:
        """Return whether a host is not a minion of this master (any more)."""
        return host is None or keys.accepted(self._cloud.opts, host) is None

    def cancel(self) -> None:
        target = self.seen.get(self.target)
        is_refused = isinstance(target, Target) and target.phase in (None, protocol.REFUSED)
        self._step(self.source, protocol.CANCEL, seen=self._phase_of_source, is_refused=is_refused)

    @property
    def _phase_of_source(self) -> str | None:
        source = self.seen.get(self.source)
        return source.phase if isinstance(source, Source) else None

    def lose_target(self) -> None:
        """Give up the target: its operator says that it never comes back with the VM."""
        seen = self._phase_of_source
        self._step(self.source, protocol.CANCEL, seen=seen, is_refused=False, is_lost=True)

    def give_up(self) -> None:
        """Give up what the target has: its operator says that it is not needed."""
        source = self.seen.get(self.source)
        if self.is_on_both:
            self._step(self.target, protocol.DROP, is_lost=True)
        elif self.source is None:
            # Nobody is left to note that it does not leave.
            self.drop()
        elif isinstance(source, Source) and source.phase == protocol.HANDING:
            self.lose_target()
        else:
            self.cancel()

    @property
    def is_on_both(self) -> bool:
        """Whether a target that was given up has come back with a VM that had arrived."""
        source, target = self.seen.get(self.source), self.seen.get(self.target)
        is_left = isinstance(source, Source) and source.phase == protocol.CANCELLED
        return is_left and isinstance(target, Target) and target.phase == protocol.ARRIVED

    def lose_source(self) -> None:
        """Give up the source: what the target has is the VM, unless it is not whole."""
        # Nothing is refused for good: there is no other host that it could go back to.
        given = {"is_handed": True, "noted": wire.plain(self.noted)}
        self.warnings += self._step(self.target, protocol.ARRIVE, **given).warnings
        self.end()

    @property
    def is_left_alone(self) -> bool:
        """Whether the source still has what its target must have, and does not have."""
        source, target = self.seen.get(self.source), self.seen.get(self.target)
        if not (isinstance(source, Source) and isinstance(target, Target)):
            return False
        return protocol.is_left_alone(source, target)

    def redefine(self) -> None:
        self._step(self.source, protocol.REDEFINE)

    def give_way(self, host: str) -> list[str]:
        """End what both have on record of a VM that this host has; return what they keep of it."""
        kept = []
        for at, which in ((self.target, protocol.LET_GO), (self.source, protocol.GIVE_WAY)):
            seen = self.seen.get(at)
            if not isinstance(seen, Source | Target) or seen.phase is None:
                continue
            if seen.phase == protocol.ARRIVED:
                # It had come there, so it is the target's; nothing is left to be let go.
                self.end()
                continue
            said = self._step(at, which, keeper=host).warnings
            kept += [f"{at}: {one}" for one in said]
        return kept

    def finish(self) -> None:
        self._cloud.progress("Tidying up", detail=f"on {self.source}")
        self.figures["removed"] = self._step(self.source, protocol.FINISH).removed

    def forget(self) -> None:
        self._step(self.source, protocol.FORGET)

    def arrive(self) -> None:
        self._cloud.progress("Checking", detail=f"on {self.target}")
        given = {"is_handed": self._is_handed, "noted": wire.plain(self.noted)}
        self.warnings += self._step(self.target, protocol.ARRIVE, **given).warnings

    @property
    def _is_handed(self) -> bool:
        source = self.seen.get(self.source)
        if isinstance(source, Source):
            # What its source has no more is not given back to it: here may be all there is.
            return source.is_handed or not source.has
        # Nobody has looked: it was sent just now.
        return bool(self.noted.was_running)

    def refuse(self) -> None:
        self._step(self.target, protocol.REFUSE)

    def drop(self) -> None:
        self._step(self.target, protocol.DROP)

    def end(self) -> None:
        self._step(self.target, protocol.END)

    def _step(self, host: str | None, which: str, **given: Any) -> StepDone:
        fun, args = "virt.migrate_step", [self.name, self.token, which]
        said = self._act(host, fun, *args, kwarg=given, limit_s=self._limit_s)
        done: StepDone = wire.read(host or "", fun, StepDone, said)
        return done

    def _act(self, host: str | None, fun: str, *args: Any, **options: Any) -> Any:
        if host is None:
            raise MoveFailed(f"nobody knows which host sends VM {self.name!r}")
        try:
            return act(self._cloud, host, fun, *args, **options)
        except HostSilent:
            raise
        except DeployError as error:
            if _OLD in str(error):
                raise MoveFailed(
                    f"{host} has an older version of Salt Virt, which cannot take part in a move: "
                    f"salt {shlex.quote(host)} saltutil.sync_all"
                ) from error
            raise

    # How it ended.

    def hint(self) -> None:
        """Note where the VM is now."""
        hints.moved(self._cloud.opts, self.name, self.target)

    def hint_left(self, *hosts: str | None) -> None:
        """Note that hosts do not have the VM, by their own word or by an operator's."""
        for host in filter(None, hosts):
            hints.left(self._cloud.opts, self.name, host)

    def waits(self) -> str:
        """Return what a move that is not over waits for."""
        silent = [f"{host} ({why})" for host, why in self.seen.items() if isinstance(why, str)]
        if silent:
            return f"{' and '.join(sorted(silent))} cannot be asked"
        others = self.waits_for_others()
        if others:
            return others
        if self.is_cut:
            return f"post-copy has failed: {self._cut()}"
        for host, doing in (
            (self.source, "is still sending it"),
            (self.target, "is still taking it"),
        ):
            seen = self.seen.get(host)
            if isinstance(seen, Source | Target) and _is_at_it(seen):
                return f"{host} {doing}"
        said = (f"{host} {_shown(seen)}" for host, seen in self.seen.items())
        return f"the hosts do not agree: {', '.join(said)}"

    @property
    def is_cut(self) -> bool:
        """Whether post-copy of the VM has failed, as far as either host says it."""
        both = (self.seen.get(self.source), self.seen.get(self.target))
        return any(isinstance(one, Source | Target) and one.is_cut for one in both)

    def _cut(self) -> str:
        source, target = self.seen.get(self.source), self.seen.get(self.target)
        is_there = isinstance(target, Target) and target.is_arriving
        if isinstance(source, Source) and source.is_cut and is_there:
            return in_halves(self.name, self.target)
        return lost_half(self.name, self.target, is_source=is_there)

    def waits_for_others(self) -> str:
        """Return what a move waits for on other hosts than its two; empty if for nothing."""
        if self.elsewhere.silent:
            return f"{' and '.join(self.elsewhere.silent)} may have it, and cannot be asked"
        others = [*self.elsewhere.leaving, *self.elsewhere.coming]
        where = " and ".join(others)
        return f"another move of it, by {where}, is not over either" if others else ""


def _shown(seen: Source | Target | str | None) -> str:
    """Return what a host has said of a move, in words."""
    if not isinstance(seen, Source | Target):
        return "has said nothing"
    return f"{'has' if seen.has else 'does not have'} the VM ({seen.phase or 'no record'})"


def _is_at_it(seen: Source | Target) -> bool:
    moving = getattr(seen, "is_moving", False) or getattr(seen, "is_arriving", False)
    return seen.is_live or moving
