"""
A small host for a disk's move: one VM, its two files, and all that goes wrong between them.

A file is the number of the last write that it has, None if it is not there, and PART while it is
half a copy. ``latest`` is the last write of the guest.
"""

from typing import NamedTuple

from clouds import Lost, replayed
from saltvirt.core.protocol import diskprotocol
from saltvirt.core.protocol.diskprotocol import NEW, OLD, DiskPlace

PART = -1


class Job(NamedTuple):
    """A job at work: the move itself, or one that settles a record of a phase."""

    phase: str | None = None
    answers: tuple = ()
    # Of the move: whether the VM ran when it began, and the last write that was copied.
    is_live: bool = False
    copied: int = 0


class Site(NamedTuple):
    """All there is."""

    live: str | None = OLD
    definition: str = OLD
    # The definition that comes back if the host loses its power before it was synced.
    lost: str | None = None
    # None, or whether the copy is complete, and goes on with each write.
    mirror: bool | None = None
    old: int | None = 0
    new: int | None = None
    trash: frozenset = frozenset()
    latest: int = 0
    phase: str | None = None
    job: Job | None = None
    # The power was lost before the new definition was synced.
    is_torn: bool = False
    is_by_hand: bool = False
    # moves, kills, failures, power cuts, starts and stops, writes, pivots by hand
    left: tuple = (1, 1, 1, 1, 2, 2, 0)

    def spent(self, which, **changes):
        """Return the site after something has happened of which there is not more."""
        left = tuple(n - (i == which) for i, n in enumerate(self.left))
        return self._replace(left=left, **changes)

    def file(self, name):
        """Return what a file has."""
        return self.old if name == OLD else self.new

    @property
    def current(self):
        """The file that the VM writes to, or will."""
        return self.live or self.definition


class DiskMoves:
    """``diskprotocol`` with jobs that are killed, a host that is, and a VM that stops."""

    def part(self, job):
        """Return the part of the protocol that a job does."""
        return diskprotocol.move() if job.phase is None else diskprotocol.settle(job.phase)

    def successors(self, site):
        """Yield ``(label, site)`` of all that can happen next."""
        if site.job is not None:
            yield from self._worked(site, site.job)
            if site.left[1]:
                yield "the job is killed", site.spent(1, job=None)
        elif site.phase is not None:
            yield "the next command settles it", site._replace(job=Job(phase=site.phase))
        elif site.left[0] and site.current == OLD and site.new is None:
            yield "a move begins", site.spent(0, job=Job(is_live=site.live is not None))
        yield from self._by_guest(site)
        if site.left[3]:
            yield "the host loses its power", self._cut(site)

    @staticmethod
    def _by_guest(site):
        if site.left[4]:
            if site.live:
                yield "the VM stops", site.spent(4, live=None, mirror=None)
            else:
                yield "the VM starts", site.spent(4, live=site.definition)
        if site.left[5] and site.live:
            latest = site.latest + 1
            files = {site.live: latest} | ({"new": latest} if site.mirror else {})
            yield "the guest writes", site.spent(5, latest=latest, **files)
        if site.left[6] and site.mirror:
            pivoted = {"live": NEW, "definition": NEW, "mirror": None, "is_by_hand": True}
            yield "somebody pivots by hand", site.spent(6, **pivoted)

    @staticmethod
    def _cut(site):
        definition = site.lost or site.definition
        is_torn = site.is_torn or definition != site.current
        gone = {"live": None, "mirror": None, "lost": None, "job": None}
        return site.spent(3, definition=definition, is_torn=is_torn, **gone)

    def _worked(self, site, job):
        kind, value = replayed(self.part(job), job.answers)
        if kind != "effect":
            yield f"the job ends: {kind} {value}", site._replace(job=None)
            return
        name, *args = value
        if name == "look":
            yield "it looks", _answered(site, "ok", _seen(site))
            return
        yield from getattr(self, f"_{name}")(site, job, *args)
        if site.left[2]:
            yield f"{name} fails", _answered(site.spent(2), "error", "failed")

    @staticmethod
    def _begin(site, _job, phase):
        yield "the record begins", _answered(site._replace(phase=phase), "ok", None)

    @staticmethod
    def _enter(site, _job, phase):
        yield f"it is {phase}", _answered(site._replace(phase=phase), "ok", None)

    @staticmethod
    def _make(site, _job):
        made = site._replace(new=PART)
        yield "the file is made", _answered(made, "ok", None)
        if site.left[2]:
            yield "the file is made, and fails", _answered(made.spent(2), "error", "failed")

    def _copy(self, site, job):
        if job.is_live and not site.live:
            yield "the VM is off", _answered(site, "error", "off")
        elif job.is_live and site.mirror is None:
            begun = site._replace(mirror=False)
            yield "the copy begins", begun
            if site.left[1]:
                yield "the copy begins, and its job is killed", begun.spent(1, job=None)
        else:
            changes = {"mirror": True} if job.is_live else {}
            copied = site._replace(new=site.old, job=job._replace(copied=site.latest), **changes)
            yield "it is copied", _answered(copied, "ok", None)

    def _switch(self, site, job):
        if job.is_live:
            if not site.mirror:
                yield "there is no copy", _answered(site, "error", "no copy")
                return
            # libvirt itself switches the definition with the running VM.
            switched = site._replace(live=NEW, mirror=None)
        else:
            if site.live or site.latest != job.copied:
                yield "the VM was used", _answered(site, "error", "used")
                return
            switched = site
        defined = switched._replace(definition=NEW, lost=OLD)
        yield "it is switched", _answered(defined._replace(lost=None), "ok", None)
        halves = {"defined": defined, "synced": defined._replace(lost=None)}
        for label, half in halves.items():
            if site.left[1]:
                yield f"it is {label}, and killed", half.spent(1, job=None)
            if site.left[2]:
                yield f"it is {label}, and fails", _answered(half.spent(2), "error", "failed")

    @staticmethod
    def _define(site, _job):
        yield "it is defined", _answered(site._replace(definition=NEW, lost=None), "ok", None)

    @staticmethod
    def _check(site, _job):
        is_good = site.definition == NEW and site.live in (None, NEW)
        answer = ("ok", None) if is_good and site.new not in (None, PART) else ("error", "wrong")
        yield "it is read back", _answered(site, *answer)

    @staticmethod
    def _put_away(site, _job):
        away = site
        if OLD not in (site.live, site.definition, site.lost) and site.old is not None:
            away = site._replace(old=None, trash=site.trash | {site.old})
        yield "the old file goes into the trash", _answered(away, "ok", None)

    @staticmethod
    def _abort(site, _job):
        yield "the copy is given up", _answered(site._replace(mirror=None), "ok", None)

    @staticmethod
    def _restore(site, _job):
        yield "it is defined as it was", _answered(site._replace(definition=OLD), "ok", None)

    @staticmethod
    def _remove(site, _job, is_kept):
        if site.mirror is not None or NEW in (site.live, site.definition, site.lost):
            yield "the new file is in use", _answered(site, "error", "in use")
            return
        kept = {site.new} - {None} if is_kept else set()
        yield (
            "the new file goes",
            _answered(site._replace(new=None, trash=site.trash | kept), "ok", None),
        )

    @staticmethod
    def _end(site, _job):
        yield "the record ends", _answered(site._replace(phase=None), "ok", None)

    def check(self, site):
        """Return what is wrong, None if nothing is."""
        for name in {site.live, site.definition, site.lost} - {None}:
            if site.file(name) is None:
                return f"the VM has the {name} file, which is gone"
            if site.file(name) == PART:
                return f"the VM has the {name} file, which is half a copy"
        if site.latest not in {site.old, site.new, *site.trash}:
            return "the last write is lost"
        if not site.is_torn and site.file(site.current) != site.latest:
            return "the VM goes on without its last write"
        is_both = site.old is not None and site.new is not None
        if site.phase is None and site.job is None and is_both and not site.is_by_hand:
            return "no record is left, and both files are"
        return None

    def settled(self, site):
        """Return the site after calm commands, until no record is left."""
        calm = site._replace(left=(0,) * len(site.left))
        for _step in range(99):
            steps = list(self.successors(calm))
            if not steps:
                return calm
            calm = steps[0][1]
        raise Lost(f"the record stays: {calm}")


def _seen(site):
    return DiskPlace(
        live=site.live, definition=site.definition, is_mirrored=site.mirror is not None
    )


def _answered(site, kind, value):
    answers = (*site.job.answers, (kind, value))
    return site._replace(job=site.job._replace(answers=answers))
