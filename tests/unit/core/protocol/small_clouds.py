"""
Two small clouds beside that of a move: a build on one host, and an image that two VMs share.

Each has ``successors`` and ``check``, as it is now and as it was before the records.
"""

from collections import deque
from typing import NamedTuple

from clouds import NOTHING, PART, UNSYNCED, WHOLE, Lost, replayed
from saltvirt.core.protocol import moveprotocol


def explored(cloud, world):
    """Look at all that can ever happen; return how many states, or raise Lost with the way."""
    came, queue = {world: None}, deque([world])
    while queue:
        here = queue.popleft()
        for label, there in cloud.successors(here):
            if there not in came:
                came[there] = (here, label)
                queue.append(there)
                if why := cloud.check(there):
                    raise Lost(why, _way(came, there))
    return len(came)


def _way(came, world):
    labels = []
    while came[world] is not None:
        world, label = came[world]
        labels.append(label)
    return labels[::-1]


class Site(NamedTuple):
    """A host with one build; ``answers`` are its builder's, None when that has died or ended."""

    defined: int = NOTHING
    files: int = NOTHING
    active: bool = False
    phase: str | None = None
    # The record as a crash would have it back, if its end is not on the disk.
    lost_phase: str | None = None
    answers: tuple | None = ()
    is_reported: bool = False
    # Somebody has started it when its builder was gone: what it has is needed.
    is_used: bool = False
    # kills, power cuts, starts and stops, failures
    left: tuple = (1, 1, 3, 1)

    def spent(self, which, **changes):
        """Return the site after something has gone wrong."""
        left = tuple(n - (i == which) for i, n in enumerate(self.left))
        return self._replace(left=left, **changes)


class Builds:
    """``protocol.build`` with a builder that dies, a host that does, and what comes after it."""

    def successors(self, site):
        """Yield ``(label, site)`` of all that can happen next."""
        if site.answers is not None:
            yield from self._built(site)
            if site.left[0]:
                yield "the builder is killed", site.spent(0, answers=None)
        else:
            yield from self._after(site)
        if site.left[1]:
            yield "the host loses its power", self._cut(site)

    def _built(self, site):
        kind, value = replayed(moveprotocol.build(True), site.answers)
        if kind != "effect":
            is_done = kind == "return"
            yield f"the build ends: {kind}", site._replace(answers=None, is_reported=is_done)
            return
        label = " ".join(value)
        done = getattr(self, f"_{value[0]}")(site, *value[1:])
        yield label, done._replace(answers=(*site.answers, ("ok", None)))
        if value[0] in ("make", "define", "start") and site.left[3]:
            failed = (*site.answers, ("error", "failed"))
            yield f"{label} fails", site.spent(3, answers=failed)
            # Some of it was done.
            if value[0] == "make":
                yield f"{label} fails late", site.spent(3, answers=failed, files=PART)
            if value[0] == "define":
                yield f"{label} fails late", site.spent(3, answers=failed, defined=UNSYNCED)
        if site.left[0]:
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
        # What ``ops.build.do`` notes: one that is complete would be left to whoever has it.
        return site._replace(
            phase=moveprotocol.UNDOING if site.phase == moveprotocol.COMPLETE else site.phase
        )

    def _undo(self, site):
        return self._noted(site)._replace(defined=NOTHING, files=NOTHING, active=False)

    def _end(self, site):
        return site._replace(phase=None)

    def _after(self, site):
        if site.left[2] and site.defined:
            word = "stopped" if site.active else "started"
            # One whose definition is seconds old, and not on the disk, goes with a crash.
            is_used = site.is_used or site.defined == WHOLE
            yield f"it is {word} by hand", site.spent(2, active=not site.active, is_used=is_used)
        if site.phase is not None:
            yield "the next virt.init settles it", self._settled(site)

    def _settled(self, site):
        if (
            moveprotocol.settle_build(site.phase, is_defined=bool(site.defined))
            == moveprotocol.FORGET
        ):
            # What libvirt has defined is on the disk before that is forgotten.
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
        """Return what is wrong, None if nothing is."""
        if site.defined and site.files < UNSYNCED:
            return "it is defined without its files"
        if (site.is_reported or site.is_used) and not (site.defined and site.files == WHOLE):
            return "a VM that was complete is gone"
        is_over = site.phase is None and site.answers is None
        if is_over and not site.defined and site.files:
            return "files are left that nobody knows of"
        return None


class OldBuilds(Builds):
    """A claim that was forgotten without a sync, and a VM that is off was taken for unfinished."""

    def _end(self, site):
        return site._replace(phase=None, lost_phase=site.phase)

    def _settled(self, site):
        if site.active:
            return site._replace(phase=None)
        return site._replace(phase=None, defined=NOTHING, files=NOTHING)


class Sent(NamedTuple):
    """A target: the image, the files that it comes in, and how far two VMs of it have got."""

    base: int = NOTHING
    incoming: tuple = (NOTHING, NOTHING)
    stages: tuple = ("", "")


class Images:
    """Two moves at once whose disks are overlays of one image, which the target does not have."""

    def place(self, number):
        """Return which file a move's image comes in."""
        return number

    def successors(self, world):
        """Yield ``(label, world)`` of all that can happen next."""
        for number, stage in enumerate(world.stages):
            for step, after in getattr(self, f"_{stage or 'new'}")(world, number):
                yield f"{'AB'[number]}: {step}", after
            if stage not in ("", "arrived", "gone"):
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
        return self._to(world, number, "gone")

    def _waiting(self, world, number):
        if world.incoming[self.place(number)]:
            yield "the image is being sent", self._to(world, number, "sending")

    def _sending(self, world, number):
        # What was removed is written to its end, and nobody is told.
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

    _gone = _arrived

    def _dropped(self, world, number):
        return self._to(world, number, "gone", NOTHING)

    def check(self, world):
        """Return what is wrong, None if nothing is."""
        if not world.base and {"overlay", "arrived"} & set(world.stages):
            return "an overlay has no base"
        for number, stage in enumerate(world.stages):
            if stage in ("waiting", "sending") and not world.incoming[self.place(number)]:
                return "a file of one VM was removed on behalf of another"
        return None


class OldImages(Images):
    """One file for all who send an image; who was refused removed it, and nobody missed a base."""

    def place(self, _number):
        return 0

    def _refused(self, world, number):
        return self._dropped(world, number)

    def _sent(self, world, number):
        base = WHOLE if world.incoming[0] == WHOLE else world.base
        yield "its overlay is made", self._to(world, number, "overlay", NOTHING, base=base)
