"""Change a VM: look, decide, make the files of new disks, define it, and change what runs."""

import copy
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from saltvirt import files, undo
from saltvirt.errors import StorageError
from saltvirt.image import tool
from saltvirt.kvm import changing, connect, host, lifecycle
from saltvirt.ops import owned, ownvolumes, reservations, storage, unfinished
from saltvirt.ops.build import do as building
from saltvirt.ops.build import existing, newvolumes
from saltvirt.ops.build.plandisks import DiskVolume, ExistingFile
from saltvirt.ops.context import Context
from saltvirt.ops.migration import kept, startlock
from saltvirt.ops.update import content, live, plan, removals
from saltvirt.ops.update.request import Request
from saltvirt.storage import policies, usage
from saltvirt.xml import amend, difference, hostdev, metadata, parse, to_text
from saltvirt.xml import domain as domain_xml

Answer = dict[str, Any]


def update(context: Context, request: Request) -> Answer:
    """
    Change a VM as a call asks, or with its ``test`` say what would be changed.

    Returns ``{definition, disk: {attached, detached, updated}, interface: {attached, detached}}``,
    and where they apply ``hostdev``, ``cpu``, ``mem``, ``autostart``, ``restart`` and ``errors``;
    of a test ``diff``, too.
    """
    with connect.opened(context.settings, readonly=False) as conn:
        return update_with(context, conn, request)


def update_with(context: Context, conn: Any, request: Request) -> Answer:
    """Change a VM as :func:`update` does, by a connection that is open for writing."""
    with undo.on_signals(), startlock.unmoved(conn, context.settings, request.name):
        if not request.test:
            # Under this lock alone: a VM that is just leaving is noted before it is gone.
            kept.forget_target(context.settings, request.name)
        return _Update(context, conn, request).run()


def is_changed(answer: Answer) -> bool:
    """Return whether a call has changed anything, by what it answered."""
    devices = [answer.get(key) or {} for key in ("disk", "interface", "hostdev")]
    has_devices = any(any(one.values()) for one in devices)
    return (
        has_devices
        or any(key in answer for key in ("cpu", "mem", "autostart"))
        or bool(answer["definition"])
    )


class _Update:
    """One call: what is there, what is to be, and what has been done."""

    def __init__(self, context: Context, conn: Any, request: Request) -> None:
        self._context, self._conn, self._request = context, conn, request
        self._name = request.name
        self._text = now = changing.definition(conn, self._name)
        runs = changing.running(conn, self._name)
        self._now = parse(now)
        self._running = None if runs is None else parse(runs)

    def run(self) -> Answer:
        """Do it, or only say it."""
        request = self._request = self._with_boot_files()
        self._disks = content.find(self._context, self._conn, request, self._now, self._running)
        if request.seed_readonly:
            content.refuse_full_seed(self._now)
        self._errors = list(self._disks.small) if self._disks else []
        self._grown = self._growing()
        self._plan = plan.decide(
            self._now,
            request,
            disks=None if self._disks is None else self._disks.elements,
            host_devices=_host_devices(self._conn, request),
            disk_mib=self._disks.more_mib + self._more_mib(self._grown) if self._disks else 0,
        )
        self._live = live.Live()
        if self._running is not None:
            self._live = live.decide(self._running, self._plan, request)
        removals.refuse(self._now, self._plan, self._live, request)
        self._undone: list[live.Step] = []
        self._failed: set[str] = set()
        self._waits = set(self._live.waits)
        autostart = self._autostart()
        if not request.test:
            self._define()
            self._run_live()
            self._grow()
            if autostart is not None:
                lifecycle.set_autostart(self._conn, self._name, autostart)
        answer = self._answer(autostart)
        if not request.test:
            return answer
        return {**answer, "diff": difference.lines(self._now, self._plan.root)}

    def _with_boot_files(self) -> Request:
        """Return the request with the files of this host that the VM is to boot from."""
        boot = self._request.boot
        if not boot:
            return self._request
        now = domain_xml.read(self._now).os
        new = {
            key: str(boot[key])
            for key in ("kernel", "initrd", "loader")
            if boot.get(key) and str(boot[key]) != getattr(now, key)
        }
        found = content.boot_files(self._context, self._request, new) if new else {}
        return replace(self._request, boot={**boot, **found})

    def _autostart(self) -> bool | None:
        """Return what autostart is to become, None if it stays."""
        wanted = self._request.autostart
        if wanted is None or wanted == changing.autostarts(self._conn, self._name):
            return None
        return wanted

    def _define(self) -> None:
        """Make the new disks and define the VM; if that fails nothing is left."""
        if not self._is_changed():
            return
        with undo.on_failure() as steps:
            for file in self._disks.files if self._disks else ():
                self._make(steps, file)
            for volume in self._disks.volumes if self._disks else ():
                self._make_volume(steps, volume)
            # Undone first: a definition must not name disks that are gone.
            steps.undo_with(self._define_back)
            self._define_with(self._disks.existing if self._disks else ())
        storage.settle_definitions()

    def _define_with(self, there: Sequence[ExistingFile]) -> None:
        """Define the VM; files that were there already are nobody else's at that moment."""
        settings = self._context.settings
        with reservations.host_lock(settings) if there else nullcontext():
            existing.refuse_used(self._conn, settings, self._name, [one.path for one in there])
            building.grow(there)
            existing.adopt(self._conn, lifecycle.define(self._conn, to_text(self._plan.root)))

    def _define_back(self) -> None:
        """Define the VM as it was, if it is another by now: libvirt's answer may not have come."""
        if changing.definition(self._conn, self._name) != self._text:
            lifecycle.define(self._conn, self._text)
            storage.settle_definitions()

    def _is_changed(self) -> bool:
        return bool(self._plan.changed)

    def _make(self, steps: undo.Steps, file: Any) -> None:
        settings = self._context.settings
        storage.made(settings.images)
        if file.pool:
            # Undone last: the pool is to forget the file once it is gone.
            steps.undo_with(host.forget_removed, self._conn, file.pool)
        with reservations.host_lock(settings):
            reservations.refuse_taken(settings, self._name, [file.path])
            _reserve(file.path)
        # One that a definition names by now, which could not be taken back, stays.
        steps.undo_with(self._unmake, file.path)
        building.make_disk(self._conn, settings, file)
        # What a snapshot leaves below it later is known by that, as of a disk of a build.
        owned.mark(file.path, self._name, lifecycle.uuid(self._conn, self._name))
        building.settle([file.path])

    def _unmake(self, path: str) -> None:
        """Remove a file that this process has just made; one that a definition names stays."""
        settings = self._context.settings
        index = usage.index(self._conn, settings, going=[path])
        unfinished.remove(settings, index, policies.UNDO, [path])

    def _make_volume(self, steps: undo.Steps, volume: DiskVolume) -> None:
        settings = self._context.settings
        with reservations.host_lock(settings):
            newvolumes.refuse_taken(self._conn, settings, self._name, [volume])
            if volume.size_bytes is None:
                return
            newvolumes.make(self._conn, volume)
        where = [[volume.pool, volume.name]]
        steps.undo_with(ownvolumes.remove, self._conn, settings, where)
        newvolumes.fill(settings, volume)

    def _run_live(self) -> None:
        """Change what runs; what libvirt refuses is reported, and the rest goes on."""
        for step in self._live.controllers:
            words = changing.plug(self._conn, self._name, step.how, step.xml)
            self._errors.extend([words] if words is not None else [])
        for step in self._live.steps:
            words = changing.plug(self._conn, self._name, step.how, step.xml)
            if words is not None:
                # The definition has it, with a slot: it is there from the next start on.
                if step.how != live.ATTACH or _NO_SLOT not in words:
                    self._errors.append(words)
                self._undone.append(step)
        self._check_detached()
        if self._live.vcpus is not None:
            self._set_vcpus(self._live.vcpus)
        if self._live.memory_kib is not None:
            self._set_memory(self._live.memory_kib)

    def _set_vcpus(self, count: int) -> None:
        conn, name = self._conn, self._name
        words = changing.set_live_vcpus(conn, name, count)
        self._note("cpu", words)
        if words is None and changing.live_vcpus(conn, name) != count:
            self._leave("cpu")

    def _set_memory(self, size_kib: int) -> None:
        conn, name = self._conn, self._name
        before_kib = changing.memory_kib(conn, name)
        words = changing.set_live_memory(conn, name, size_kib)
        self._note("mem", words)
        if words is None and not changing.follows_memory(conn, name, before_kib or 0, size_kib):
            self._leave("mem")

    def _check_detached(self) -> None:
        """Report the devices that the guest still holds, though it was asked to let them go."""
        asked = [
            one for one in self._live.steps if one.how == live.DETACH and one not in self._undone
        ]
        text = changing.running(self._conn, self._name) if asked else None
        if text is None:
            return
        # One that was attached again in its place is there by right.
        again = {(one.device, one.name) for one in self._live.steps if one.how == live.ATTACH}
        for step in live.still_there(parse(text), asked):
            if (step.device, step.name) not in again:
                self._undone.append(step)
                self._errors.append(
                    f"{step.device} {step.name} is still in use by the guest, which was asked to "
                    "let it go; it goes then, or when the VM stops"
                )

    def _note(self, what: str, words: str | None) -> None:
        if words is not None:
            self._errors.append(words)
            self._leave(what)

    def _leave(self, what: str) -> None:
        """Leave an argument to the next start: the running VM has not changed."""
        self._waits.add(what)
        self._failed.add(what)

    def _growing(self) -> dict[str, int]:
        """Return the disks that are to be larger, and can be now."""
        growth = dict(self._disks.growth) if self._disks else {}
        if growth and self._running is not None and not self._request.live:
            self._errors.append(
                f"disks {', '.join(growth)} grow while the VM is stopped, or with live=True"
            )
            return {}
        return growth

    def _more_mib(self, targets: Iterable[str]) -> int:
        """Return how much more some of the disks that grow may take then."""
        return sum(self._disks.growth_mib[one] for one in targets) if self._disks else 0

    def _grow(self) -> None:
        """Grow the disks that are to be larger; what they were to take stays noted of no other."""
        asked = list(self._grown)
        self._grow_each()
        failed = [one for one in asked if one not in self._grown]
        root = copy.deepcopy(self._plan.root)
        metadata.promise_more(root, -self._more_mib(failed))
        if amend.same(root, self._plan.root):
            return
        # Else it would be noted once more by each call.
        there = parse(changing.definition(self._conn, self._name))
        metadata.promise_more(there, -self._more_mib(failed))
        lifecycle.define(self._conn, to_text(there))
        storage.settle_definitions()
        changed = () if amend.same(root, self._now) else self._plan.changed
        self._plan = replace(self._plan, root=root, changed=changed)

    def _grow_each(self) -> None:
        text = changing.running(self._conn, self._name) if self._grown else None
        running = None if text is None else parse(text)
        for target, size in list(self._grown.items()):
            # By now the guest may have another disk of that name, which must not be cut off.
            in_use = live.target_of(running, live.disk_at(self._now, target))
            words = self._resized(target, size, in_use)
            if words is not None:
                self._errors.append(words)
                del self._grown[target]

    def _resized(self, target: str, size: int, in_use: str | None) -> str | None:
        """Grow a disk, which the guest calls so if it has it; return why it cannot be, or None."""
        if in_use is not None:
            return changing.resize_disk(self._conn, self._name, in_use, size)
        path, fmt = self._disks.places[target] if self._disks else ("", "")
        try:
            tool.resize(path, size, fmt)
        except StorageError as exc:
            return str(exc)
        return None

    def _answer(self, autostart: bool | None) -> Answer:
        out: Answer = {
            "definition": self._is_changed(),
            "disk": {live.ATTACH: [], live.DETACH: [], live.UPDATE: []},
            "interface": {live.ATTACH: [], live.DETACH: []},
        }
        for step in self._live.steps:
            if step in self._undone:
                self._waits.add(_ARGUMENTS[step.device])
                continue
            out.setdefault(step.device, {}).setdefault(step.how, []).append(step.xml)
        root, now = self._plan.root, self._now
        grown = [live.target_of(root, live.disk_at(now, target)) for target in self._grown]
        out["disk"][live.UPDATE] += live.disks_at(root, grown)
        for key, value in (("cpu", self._live.vcpus), ("mem", self._live.memory_kib)):
            if value is not None and key not in self._failed:
                out[key] = True
        if autostart is not None:
            out["autostart"] = autostart
        self._waits |= self._not_saved()
        if self._waits:
            out["restart"] = sorted(self._waits)
        if self._errors:
            out["errors"] = self._errors
        return out

    def _not_saved(self) -> set[str]:
        """Return what is changed of a VM with a saved state: it goes on as it was saved."""
        is_saved = self._running is None and self._name in lifecycle.saved(self._conn)
        return set(self._plan.changed) if is_saved else set()


def _reserve(path: str) -> None:
    """Make an empty file, which nobody else makes then."""
    try:
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc


def _host_devices(conn: Any, request: Request) -> Sequence[hostdev.Hostdev] | None:
    """Return the devices of the host that a call names; None if it names none."""
    if not request.host_devices:
        return None if request.host_devices is None else ()
    known = {device["name"]: device for device in host.devices(conn)}
    for name in request.host_devices:
        hostdev.refuse_unknown(name, known)
    return [hostdev.of(known[name]) for name in request.host_devices]


# libvirt's words where a running VM has no free slot for one more device.
_NO_SLOT = "No more available PCI slots"
_ARGUMENTS = {"disk": "disks", "interface": "interfaces", "hostdev": "host_devices"}
