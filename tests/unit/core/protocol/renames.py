"""
A small cloud for a rename: one VM, its host, one master, and all faults between them.

The VM is ``A`` and becomes ``B``; ``guest`` has the ids that its minion may start with, two of them
after an interrupted write. A job is an order of the master, queued or begun.
"""

from typing import NamedTuple

from clouds import Lost, replayed
from saltvirt.core.protocol import renameprotocol
from saltvirt.core.protocol.renameprotocol import RENAMED, RENAMING, Left

NAMES = ("A", "B")


class Half(NamedTuple):
    """One half of the record, under one of the two names."""

    old: str
    new: str
    phase: str = RENAMING
    ordered: bool = False


class Job(NamedTuple):
    """An order on its host; ``answers`` are None while it is queued."""

    old: str
    new: str
    has_new_name: bool = False
    answers: tuple | None = None


class Command(NamedTuple):
    """A running command of the master; its effects work on ``names``."""

    call: tuple
    names: tuple
    earlier: Left | None
    answers: tuple = ()
    waits: bool = False


class Cloud(NamedTuple):
    """The whole cloud."""

    name: str = "A"
    # The name that returns if the host loses its power before the definition is synced.
    lost_name: str | None = None
    guest: frozenset = frozenset("A")
    keys: frozenset = frozenset("A")
    hints: frozenset = frozenset("A")
    active: bool = False
    halves: tuple = (None, None)
    command: Command | None = None
    # The order that the command waits for is the last.
    jobs: tuple = ()
    # Names that other VMs have taken.
    other_vms: frozenset = frozenset()
    # Commands, kills and silences, starts and stops, failures of effects, power cuts.
    budget: tuple = (2, 1, 1, 1, 1)

    def spent(self, index, **changes):
        """Return the cloud after an event, with one event of its kind less in the budget."""
        budget = tuple(n - (i == index) for i, n in enumerate(self.budget))
        return self._replace(budget=budget, **changes)

    def half(self, name):
        """Return the half of a name."""
        return self.halves[NAMES.index(name)]

    def with_half(self, name, half):
        """Return the cloud with another half of a name."""
        index = NAMES.index(name)
        return self._replace(
            halves=tuple(half if i == index else h for i, h in enumerate(self.halves))
        )


class Renames:
    """``renameprotocol`` with commands that are killed, and hosts that are silent."""

    def run(self, earlier):
        """Return the master's part."""
        return renameprotocol.run(earlier)

    def on_host(self, job):
        """Return the host's part."""
        return renameprotocol.rename_on_host(has_new_name=job.has_new_name, seeds=True)

    def successors(self, cloud):
        """Yield ``(label, cloud)`` of all that can happen next."""
        if cloud.command is not None:
            yield from self._commanded(cloud)
            if cloud.budget[1]:
                yield "the command is killed", cloud.spent(1, command=None)
        elif cloud.budget[0]:
            for call in (NAMES, NAMES[::-1]):
                yield f"rename {call[0]} {call[1]}", cloud.spent(0, command=_begun(cloud, call))
        for index, job in enumerate(cloud.jobs):
            other_jobs = cloud.jobs[:index] + cloud.jobs[index + 1 :]
            yield from self._worked(cloud._replace(jobs=other_jobs), job, index)
        yield from self._by_others(cloud)

    def _by_others(self, cloud):
        if cloud.budget[2]:
            word = "stops" if cloud.active else "starts"
            yield f"the VM {word}", cloud.spent(2, active=not cloud.active)
        if cloud.budget[4]:
            name = cloud.lost_name or cloud.name
            cut = cloud.spent(4, name=name, lost_name=None, jobs=(), active=False)
            if cloud.command and cloud.command.waits:
                cut = _answered(cut, "error", "the host is gone")
            yield "the host loses its power", cut
        if cloud.command is None:
            for name in NAMES:
                taken_names = {cloud.name, *cloud.keys, *cloud.other_vms}
                if name not in taken_names and cloud.half(name) is None:
                    cloud_with_other_vm = cloud._replace(other_vms=cloud.other_vms | {name})
                    yield f"another VM {name} is made", cloud_with_other_vm

    # The master.

    def _commanded(self, cloud):
        command = cloud.command
        if command.waits:
            if cloud.budget[1]:
                yield "the host is silent", _answered(cloud.spent(1), "error", "silent")
            return
        kind, value = replayed(self.run(command.earlier), command.answers)
        if kind != "effect":
            yield f"the command ends: {kind} {value}", cloud._replace(command=None)
            return
        yield from getattr(self, f"_{value[0]}")(cloud, command, *value[1:])

    def _check(self, cloud, command):
        old, new = command.call
        if cloud.name != old or new in cloud.other_vms | cloud.keys:
            yield "it is refused", _answered(cloud, "error", "refused")
        else:
            named = cloud._replace(command=command._replace(names=command.call))
            yield "it is checked", _answered(named, "ok", True)

    def _give_up_job(self, cloud, command):
        if any(job.answers is not None for job in cloud.jobs):
            yield "the host still works", _answered(cloud, "error", "busy")
        else:
            named = cloud._replace(jobs=(), command=command._replace(names=command.call))
            yield "the job is given up", _answered(named, "ok", None)

    def _halves(self, cloud, label, change):
        """Yield the writes of both halves; the command may be killed after the first one."""
        old, new = cloud.command.names
        first = cloud.with_half(new, change(cloud.half(new)))
        yield label, _answered(first.with_half(old, change(cloud.half(old))), "ok", None)
        if cloud.budget[1]:
            yield f"{label} by half, and the command is killed", first.spent(1, command=None)

    def _begin(self, cloud, command):
        old, new = command.names
        ordered = bool(command.earlier and command.earlier.was_ordered)
        yield from self._halves(
            cloud, "the record begins", lambda _half: Half(old, new, ordered=ordered)
        )

    def _enter(self, cloud, _command, phase):
        yield from self._halves(cloud, f"it is {phase}", lambda half: half._replace(phase=phase))

    def _accept(self, cloud, command):
        self._refuse_foreign(cloud, command.names[1])
        yield (
            "a key is accepted",
            _answered(cloud._replace(keys=cloud.keys | {command.names[1]}), "ok", None),
        )

    def _order(self, cloud, command):
        for label, following in self._halves(
            cloud, "it is ordered", lambda half: half._replace(ordered=True)
        ):
            if following.command is not None:
                following = following._replace(
                    jobs=(*following.jobs, Job(*command.names)),
                    command=command._replace(waits=True),
                    hints=following.hints | {command.names[1]},
                )
            yield label, following

    def _place(self, cloud, command):
        old, new = command.names
        yield (
            "it is placed",
            _answered(cloud._replace(hints=cloud.hints - {old} | {new}), "ok", None),
        )

    def _discard(self, cloud, name):
        self._refuse_foreign(cloud, name)
        return _answered(cloud._replace(keys=cloud.keys - {name}), "ok", None)

    def _discard_old(self, cloud, command):
        yield "the old key goes", self._discard(cloud, command.names[0])

    def _discard_new(self, cloud, command):
        yield "the new key goes", self._discard(cloud, command.names[1])

    def _end_old(self, cloud, command):
        yield "the old half goes", _answered(cloud.with_half(command.names[0], None), "ok", None)

    def _end_new(self, cloud, command):
        yield "the new half goes", _answered(cloud.with_half(command.names[1], None), "ok", None)

    @staticmethod
    def _refuse_foreign(cloud, name):
        if name in cloud.other_vms:
            raise Lost(f"the key of another VM {name} is touched")

    # The host.

    def _worked(self, cloud, job, index):
        """Yield what follows when a job goes on; ``cloud`` does not have the job."""
        is_awaited = bool(cloud.command and cloud.command.waits and index == len(cloud.jobs))

        def there(changed_job, **changes):
            jobs = (*cloud.jobs[:index], changed_job, *cloud.jobs[index:])
            return cloud._replace(jobs=jobs, **changes)

        def ended(cloud, kind, value):
            return _answered(cloud, kind, value) if is_awaited else cloud

        if job.answers is None:
            yield from self._taken_up(cloud, job, there, ended)
            return
        if cloud.budget[1]:
            yield "the job is killed", ended(cloud.spent(1), "error", "killed")
        kind, value = replayed(self.on_host(job), job.answers)
        if kind == "effect":
            yield from self._affected(cloud, job, value, there, ended)
            return
        # A job that has restored the guest's id and has not renamed the domain has changed nothing.
        is_undone = kind == "raise" and not job.has_new_name and job.answers[-1] == ("ok", None)
        answer = ("ok", kind == "return") if kind == "return" or is_undone else ("error", value)
        yield f"the job ends: {kind}", ended(cloud, *answer)

    @staticmethod
    def _taken_up(cloud, job, cloud_with_job, ended):
        """Yield what follows when a host begins an order."""
        if cloud.active or cloud.name not in (job.old, job.new):
            yield "the host refuses", ended(cloud, "ok", False)
        elif not any(other_job.answers is not None for other_job in cloud.jobs):
            has_new_name = cloud.name == job.new
            yield (
                "the host begins",
                cloud_with_job(job._replace(answers=(), has_new_name=has_new_name)),
            )

    @staticmethod
    def _affected(cloud, job, effect, cloud_with_job, ended):
        """Yield what follows from an effect of a job."""
        done_job = job._replace(answers=(*job.answers, ("ok", None)))
        failed_job = job._replace(answers=(*job.answers, ("error", "failed")))
        if effect[0] == "settle":
            yield "it is synced", cloud_with_job(done_job, lost_name=None)
            return
        if cloud.active:
            yield f"{effect[0]} fails, as the VM runs", cloud_with_job(failed_job)
            return
        partly = {}
        if effect[0] == "rename":
            yield "it is renamed", cloud_with_job(done_job, name=job.new, lost_name=cloud.name)
        else:
            minion_id = job.new if effect[1] else job.old
            yield f"the guest is {minion_id}", cloud_with_job(done_job, guest=frozenset(minion_id))
            partly = {"guest": cloud.guest | {minion_id}}
        if cloud.budget[3]:
            yield f"{effect[0]} fails", cloud_with_job(failed_job, **partly).spent(3)
        if partly and cloud.budget[1]:
            cut = cloud.spent(1, **partly)
            yield "it is killed while it writes", ended(cut, "error", "killed")

    def check(self, cloud):
        """Return the fault of a state, None if there is none."""
        if not cloud.guest <= cloud.keys:
            return "the guest has an id that no key is accepted for"
        if cloud.name not in cloud.hints:
            return "the master finds no name of the VM"
        has_record = any(cloud.halves)
        if len(cloud.keys) > 1 and not has_record:
            return "two keys are accepted without a record"
        if cloud.name in cloud.other_vms:
            return "two VMs have one name"
        if has_record:
            return None
        if cloud.jobs:
            return "the record is gone, and its job is not"
        if {cloud.name} != cloud.keys or {cloud.name} != cloud.guest:
            return "the record is gone, and the names differ"
        return None

    def settled(self, cloud, call):
        """Return the cloud after undisturbed commands on a stopped VM, until no record remains."""
        calm = cloud._replace(budget=(9, 0, 0, 0, 0), command=None, active=False)
        for _attempt in range(3):
            calm = self._let_end(calm)
            if not any(calm.halves):
                return calm
            calm = self._let_end(calm._replace(command=_begun(calm, call)))
        raise Lost(f"the record stays: {calm}")

    def _let_end(self, cloud):
        while True:
            steps = [
                following
                for label, following in self.successors(cloud._replace(budget=(0, 0, 0, 0, 0)))
                if not label.startswith("another VM")
            ]
            if not steps:
                return cloud
            cloud = steps[0]


def _answered(cloud, kind, value):
    command = cloud.command
    answers = (*command.answers, (kind, value))
    return cloud._replace(command=command._replace(answers=answers, waits=False))


def _begun(cloud, call):
    """Return a new command, which reads the record of both names."""
    halves = [half for half in cloud.halves if half]
    if not halves:
        return Command(call, call, None)
    # The half in the later phase counts.
    half = max(halves, key=lambda half: (half.phase == RENAMED, half.ordered))
    earlier = Left(
        phase=half.phase,
        was_ordered=any(half.ordered for half in halves),
        moves_key=True,
        is_reversed=(half.old, half.new) != call,
    )
    return Command(call, (half.old, half.new), earlier)
