"""
Two more small clouds: a build on one host, and an image that two VMs share.

Each has ``successors`` and ``check``, for the current protocol and for that before the records.
"""

from collections import deque
from typing import NamedTuple

from clouds import NOTHING, PART, UNSYNCED, WHOLE, Lost, replayed
from saltvirt.core.protocol import moveprotocol


def explored(cloud, world):
    """Explore all that can happen; return the number of states, or raise Lost with its steps."""
    origins, queue = {world: None}, deque([world])
    while queue:
        current = queue.popleft()
        for label, following in cloud.successors(current):
            if following not in origins:
                origins[following] = (current, label)
                queue.append(following)
                if fault := cloud.check(following):
                    raise Lost(fault, _way(origins, following))
    return len(origins)


def _way(origins, world):
    labels = []
    while origins[world] is not None:
        world, label = origins[world]
        labels.append(label)
    return labels[::-1]


class Site(NamedTuple):
    """A host with one build; ``answers`` are its builder's, None after the builder has ended."""

    defined: int = NOTHING
    files: int = NOTHING
    active: bool = False
    phase: str | None = None
    # The record that would be back after a crash, if its removal is not on the disk.
    lost_phase: str | None = None
    answers: tuple | None = ()
    is_reported: bool = False
    # Whether an operator has started the VM after its builder had ended: its files are needed.
    is_used: bool = False
    # Kills, power cuts, starts and stops, failures.
    budget: tuple = (1, 1, 3, 1)

    def spent(self, index, **changes):
        """Return the site after a fault, with one fault of its kind less in the budget."""
        budget = tuple(n - (i == index) for i, n in enumerate(self.budget))
        return self._replace(budget=budget, **changes)


class Builds:
    """The protocol of a build with a killed builder, a power cut, and the commands after it."""

    def successors(self, site):
        """Yield ``(label, site)`` of all that can happen next."""
        if site.answers is not None:
            yield from self._built(site)
            if site.budget[0]:
                yield "the builder is killed", site.spent(0, answers=None)
        else:
            yield from self._after(site)
        if site.budget[1]:
            yield "the host loses its power", self._cut(site)

    def _built(self, site):
        kind, value = replayed(moveprotocol.build(True), site.answers)
        if kind != "effect":
            is_done = kind == "return"
            yield f"the build ends: {kind}", site._replace(answers=None, is_reported=is_done)
            return
        label = " ".join(value)
        built = getattr(self, f"_{value[0]}")(site, *value[1:])
        yield label, built._replace(answers=(*site.answers, ("ok", None)))
        if value[0] in ("make", "define", "start") and site.budget[3]:
            failed = (*site.answers, ("error", "failed"))
            yield f"{label} fails", site.spent(3, answers=failed)
            # The effect was done in part.
            if value[0] == "make":
                yield f"{label} fails late", site.spent(3, answers=failed, files=PART)
            if value[0] == "define":
                yield f"{label} fails late", site.spent(3, answers=failed, defined=UNSYNCED)
        if site.budget[0]:
            yield from self._half(site, value[0])

    def _half(self, site, effect):
        if effect == "make":
            yield "some is made, the builder dies", site.spent(0, files=PART, answers=None)
        if effect == "define":
            yield "it defines and dies", site.spent(0, defined=UNSYNCED, answers=None)
        if effect == "undo":
            half = self._noted(site).spent(0, defined=NOTHING, active=False)
            yield "it undefines and dies", half._replace(answers=None)

    def _begin(self, site, phase):
        return site._replace(phase=phase)

    _enter = _begin

    def _make(self, site):
        return site._replace(files=WHOLE)

    def _define(self, site):
        return site._replace(defined=WHOLE)

    def _start(self, site):
        return site._replace(active=True)

    @staticmethod
    def _noted(site):
        # The record enters the phase UNDOING, because a complete VM would be kept.
        return site._replace(
            phase=moveprotocol.UNDOING if site.phase == moveprotocol.COMPLETE else site.phase
        )

    def _undo(self, site):
        return self._noted(site)._replace(defined=NOTHING, files=NOTHING, active=False)

    def _end(self, site):
        return site._replace(phase=None)

    def _after(self, site):
        if site.budget[2] and site.defined:
            word = "stopped" if site.active else "started"
            # A VM with a new definition that is not on the disk yet would be lost in a crash.
            is_used = site.is_used or site.defined == WHOLE
            yield f"it is {word} by hand", site.spent(2, active=not site.active, is_used=is_used)
        if site.phase is not None:
            yield "the next virt.init settles it", self._settled(site)

    def _settled(self, site):
        if (
            moveprotocol.settle_build(site.phase, is_defined=bool(site.defined))
            == moveprotocol.FORGET
        ):
            # libvirt's definition is on the disk before the record is removed.
            return site._replace(phase=None, defined=WHOLE if site.defined else NOTHING)
        return site._replace(phase=None, files=NOTHING)

    @staticmethod
    def _cut(site):
        return site.spent(
            1,
            answers=None,
            active=False,
            defined=NOTHING if site.defined == UNSYNCED else site.defined,
            files=PART if site.files == UNSYNCED else site.files,
            phase=site.phase or site.lost_phase,
            lost_phase=None,
        )

    def check(self, site):
        """Return the fault of a state, None if there is none."""
        if site.defined and site.files < UNSYNCED:
            return "it is defined without its files"
        if (site.is_reported or site.is_used) and not (site.defined and site.files == WHOLE):
            return "a VM that was complete is gone"
        is_over = site.phase is None and site.answers is None
        if is_over and not site.defined and site.files:
            return "files are left that nobody knows of"
        return None


class OldBuilds(Builds):
    """The old build: it removed its claim without a sync, and took a stopped VM as unfinished."""

    def _end(self, site):
        return site._replace(phase=None, lost_phase=site.phase)

    def _settled(self, site):
        if site.active:
            return site._replace(phase=None)
        return site._replace(phase=None, defined=NOTHING, files=NOTHING)


class Sent(NamedTuple):
    """A target: the image, the files in which it arrives, and the stages of two VMs."""

    base: int = NOTHING
    incoming: tuple = (NOTHING, NOTHING)
    stages: tuple = ("", "")


class Images:
    """Two concurrent moves with overlays of one image, which the target does not have."""

    def place(self, number):
        """Return the index of the file in which a move's image arrives."""
        return number

    def successors(self, world):
        """Yield ``(label, world)`` of all that can happen next."""
        for number, stage in enumerate(world.stages):
            for step, after in getattr(self, f"_{stage or 'new'}")(world, number):
                yield f"{'AB'[number]}: {step}", after
            if stage not in ("", "arrived", "ended"):
                yield f"{'AB'[number]}: it is given up", self._dropped(world, number)

    def _to(self, world, number, stage, incoming=None, **changes):
        stages = tuple(stage if i == number else s for i, s in enumerate(world.stages))
        if incoming is not None:
            place = self.place(number)
            files = tuple(incoming if i == place else f for i, f in enumerate(world.incoming))
            changes["incoming"] = files
        return world._replace(stages=stages, **changes)

    def _new(self, world, number):
        if world.base:
            yield "the image is there", self._to(world, number, "overlay")
        elif world.incoming[self.place(number)]:
            yield "refused: a file is there", self._refused(world, number)
        else:
            yield "an empty file is made", self._to(world, number, "waiting", PART)

    def _refused(self, world, number):
        return self._to(world, number, "ended")

    def _waiting(self, world, number):
        if world.incoming[self.place(number)]:
            yield "the image is being sent", self._to(world, number, "sending")

    def _sending(self, world, number):
        # A removed file is written to its end without an error.
        is_there = world.incoming[self.place(number)]
        yield "it was sent", self._to(world, number, "sent", WHOLE if is_there else NOTHING)

    def _sent(self, world, number):
        is_whole = world.incoming[self.place(number)] == WHOLE
        if is_whole or world.base:
            yield "it is admitted", self._to(world, number, "overlay", NOTHING, base=WHOLE)

    def _overlay(self, world, number):
        yield "the VM arrives", self._to(world, number, "arrived")

    def _arrived(self, _world, _number):
        return ()

    _ended = _arrived

    def _dropped(self, world, number):
        return self._to(world, number, "ended", NOTHING)

    def check(self, world):
        """Return the fault of a state, None if there is none."""
        if not world.base and {"overlay", "arrived"} & set(world.stages):
            return "an overlay has no base"
        for number, stage in enumerate(world.stages):
            if stage in ("waiting", "sending") and not world.incoming[self.place(number)]:
                return "a file of one VM was removed on behalf of another"
        return None


class OldImages(Images):
    """The old protocol: all moves shared one file, and a refused move removed it."""

    def place(self, _number):
        return 0

    def _refused(self, world, number):
        return self._dropped(world, number)

    def _sent(self, world, number):
        base = WHOLE if world.incoming[0] == WHOLE else world.base
        yield "its overlay is made", self._to(world, number, "overlay", NOTHING, base=base)
