"""Change a VM: read it, plan, make new disks, define it, and change the running VM."""

import copy
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.core import files, undo
from saltvirt.core.errors import StorageError
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, departedvms, hostfacts, reservations
from saltvirt.libvirt.domains import changing, lifecycle
from saltvirt.storage import definitionfiles, diskpaths, ownermark, policies, usage, vmvolumes
from saltvirt.storage.images import tool
from saltvirt.vm.create.host import apply, existing, newvolumes
from saltvirt.vm.create.host.plandisks import DiskVolume, ExistingFile
from saltvirt.vm.power.host import startlock
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.update.host import content, listed, live, plan, removals
from saltvirt.vm.update.host.request import Request
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import domain, hostdev, metadata
from saltvirt.xml.edit import amend, difference

Answer = dict[str, Any]


def update(context: Context, request: Request) -> Answer:
    """
    Change a VM as requested; in a test, only report the changes.

    Return ``{definition, disk: {attached, detached, updated}, interface: {attached, detached}}``,
    and where they apply ``hostdev``, ``cpu``, ``mem``, ``autostart``, ``restart`` and ``errors``;
    in a test also ``diff``.
    """
    with connect.open_connection(context.settings, readonly=False) as conn:
        return update_with(context, conn, request)


def update_with(context: Context, conn: Any, request: Request) -> Answer:
    """Change a VM as :func:`update` does, on a writable connection."""
    return update_decided(context, conn, request.name, lambda: request, test=request.test).answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    What a call has done.

    answer
        What :func:`update` returns.
    old_root, root
        The definition before and after the call.
    disks
        The call's disks.
    """

    answer: Answer
    old_root: ET.Element
    root: ET.Element
    disks: content.Disks


def update_decided(
    context: Context, conn: Any, name: str, decide: Callable[[], Request], *, test: bool
) -> Outcome:
    """
    Change a VM as :func:`update_with` does, by a request that is decided under the VM's lock.

    decide
        Reads the VM, and returns the request.
    """
    with undo.on_signals(), startlock.hold_definition_lock(conn, context.settings, name):
        if not test:
            # Only under this lock: a move notes its target before the VM leaves.
            departedvms.forget_target(context.settings, name)
        return _Update(context, conn, decide()).run()


def is_changed(answer: Answer) -> bool:
    """Return whether a call has changed anything, according to its answer."""
    devices = [answer.get(key) or {} for key in ("disk", "interface", "hostdev")]
    has_devices = any(any(device_changes.values()) for device_changes in devices)
    return (
        has_devices
        or any(key in answer for key in ("cpu", "mem", "autostart"))
        or bool(answer["definition"])
    )


class _Update:
    """One call: the VM as it is, the plan, and the results so far."""

    def __init__(self, context: Context, conn: Any, request: Request) -> None:
        self._context, self._conn, self._request = context, conn, request
        self._name = request.name
        self._text = definition_xml = changing.definition(conn, self._name)
        running_xml = changing.running(conn, self._name)
        self._now = parse(definition_xml)
        self._running = None if running_xml is None else parse(running_xml)

    def run(self) -> Outcome:
        """Execute the call, or in a test only report its changes."""
        request = self._request = self._with_boot_files()
        self._disks = content.find(self._context, self._conn, request, self._now, self._running)
        self._errors = list(self._disks.small)
        self._grown = self._growing()
        self._plan = plan.decide(
            self._now,
            request,
            disks=self._disks.elements,
            host_devices=_host_devices(self._conn, request),
            disk_mib=self._disks.more_mib + self._more_mib(self._grown),
        )
        self._live = live.Live()
        if self._running is not None:
            self._live = live.decide(self._running, self._plan, request, self._single_names())
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
        if request.test:
            answer["diff"] = difference.lines(self._now, self._plan.root)
        return Outcome(answer=answer, old_root=self._now, root=self._plan.root, disks=self._disks)

    def _single_names(self) -> set[str] | None:
        """Return the names of the only devices that the call changes; None without such a limit."""
        if self._request.single is None:
            return None
        new_names = {
            name
            for kind in listed.KINDS.values()
            for name in set(kind.by_name(self._plan.root)).difference(kind.by_name(self._now))
        }
        return {self._request.single.name, *new_names}

    def _with_boot_files(self) -> Request:
        """Return the request with its boot files as files of this host."""
        boot = self._request.boot
        if not boot:
            return self._request
        current_os = domain.read(self._now).os
        new_files = {
            key: str(boot[key])
            for key in ("kernel", "initrd", "loader")
            if boot.get(key) and str(boot[key]) != getattr(current_os, key)
        }
        paths_by_key = (
            content.boot_files(self._context, self._request, new_files) if new_files else {}
        )
        return replace(self._request, boot={**boot, **paths_by_key})

    def _autostart(self) -> bool | None:
        """Return the new autostart flag, None if it stays."""
        autostart = self._request.autostart
        if autostart is None or autostart == changing.autostarts(self._conn, self._name):
            return None
        return autostart

    def _define(self) -> None:
        """Make the new disks and define the VM; undo all of it on failure."""
        if not self._plan.changed:
            return
        with undo.on_failure() as steps:
            for file in self._disks.files:
                self._make(steps, file)
            for volume in self._disks.volumes:
                self._make_volume(steps, volume)
            # Undone first: a definition must not name removed disks.
            steps.undo_with(self._define_back)
            self._define_with(self._disks.existing)
        definitionfiles.settle_definitions()

    def _define_with(self, existing_files: Sequence[ExistingFile]) -> None:
        """Define the VM, under the host's lock if it takes existing files."""
        settings = self._context.settings
        with reservations.host_lock(settings) if existing_files else nullcontext():
            existing.refuse_used(
                self._conn, settings, self._name, [file.path for file in existing_files]
            )
            apply.grow(existing_files)
            existing.adopt(self._conn, lifecycle.define(self._conn, to_text(self._plan.root)))

    def _define_back(self) -> None:
        """Restore the definition if it has changed: libvirt's reply may have been lost."""
        if changing.definition(self._conn, self._name) != self._text:
            lifecycle.define(self._conn, self._text)
            definitionfiles.settle_definitions()

    def _make(self, steps: undo.Steps, file: Any) -> None:
        settings = self._context.settings
        diskpaths.make_image_folder(settings.images)
        if file.pool:
            # Undone last: the pool forgets the file only when the file is removed.
            steps.undo_with(hostfacts.forget_removed, self._conn, file.pool)
        with reservations.host_lock(settings):
            reservations.refuse_taken(settings, self._name, [file.path])
            _create_empty(file.path)
        steps.undo_with(self._unmake, file.path)
        apply.make_disk(self._conn, settings, file)
        # The mark identifies the file even when a snapshot has made it a backing file.
        ownermark.mark(file.path, self._name, lifecycle.uuid(self._conn, self._name))
        apply.settle([file.path])

    def _unmake(self, path: str) -> None:
        """Remove a file that this process has just made, unless a definition names it."""
        settings = self._context.settings
        index = usage.index(self._conn, settings, removed_files=[path])
        unfinished.remove(settings, index, policies.UNDO, [path])

    def _make_volume(self, steps: undo.Steps, volume: DiskVolume) -> None:
        settings = self._context.settings
        with reservations.host_lock(settings):
            newvolumes.refuse_taken(self._conn, settings, self._name, [volume])
            if volume.size_bytes is None:
                return
            newvolumes.make(self._conn, volume)
        volume_ids = [[volume.pool, volume.name]]
        steps.undo_with(vmvolumes.remove, self._conn, settings, volume_ids)
        newvolumes.fill(settings, volume)

    def _run_live(self) -> None:
        """Change the running VM; report each refusal of libvirt, and go on."""
        for step in self._live.controllers:
            refusal = changing.plug(self._conn, self._name, step.how, step.xml)
            self._errors.extend([refusal] if refusal is not None else [])
        for step in self._live.steps:
            refusal = changing.plug(self._conn, self._name, step.how, step.xml)
            if refusal is not None:
                # The definition has a slot for the device: it appears at the next start.
                if step.how != live.ATTACH or _NO_SLOT not in refusal:
                    self._errors.append(refusal)
                self._undone.append(step)
        self._check_detached()
        if self._live.vcpus is not None:
            self._set_vcpus(self._live.vcpus)
        if self._live.memory_kib is not None:
            self._set_memory(self._live.memory_kib)

    def _set_vcpus(self, count: int) -> None:
        conn, name = self._conn, self._name
        refusal = changing.set_live_vcpus(conn, name, count)
        self._note("cpu", refusal)
        if refusal is None and changing.live_vcpus(conn, name) != count:
            self._leave("cpu")

    def _set_memory(self, size_kib: int) -> None:
        conn, name = self._conn, self._name
        before_kib = changing.memory_kib(conn, name)
        refusal = changing.set_live_memory(conn, name, size_kib)
        self._note("mem", refusal)
        if refusal is None and not changing.follows_memory(conn, name, before_kib or 0, size_kib):
            self._leave("mem")

    def _check_detached(self) -> None:
        """Report the detached devices that the guest has not released."""
        detach_steps = [
            live_step
            for live_step in self._live.steps
            if live_step.how == live.DETACH and live_step not in self._undone
        ]
        running_xml = changing.running(self._conn, self._name) if detach_steps else None
        if running_xml is None:
            return
        # A device of that name may have been attached again in its place.
        attached_devices = {
            (live_step.device, live_step.name)
            for live_step in self._live.steps
            if live_step.how == live.ATTACH
        }
        for step in live.find_still_attached(parse(running_xml), detach_steps):
            if (step.device, step.name) not in attached_devices:
                self._undone.append(step)
                self._errors.append(
                    f"{step.device} {step.name} is still in use by the guest, which was asked to "
                    "let it go; it goes then, or when the VM stops"
                )

    def _note(self, argument: str, refusal: str | None) -> None:
        if refusal is not None:
            self._errors.append(refusal)
            self._leave(argument)

    def _leave(self, argument: str) -> None:
        """Note that an argument takes effect only at the next start."""
        self._waits.add(argument)
        self._failed.add(argument)

    def _growing(self) -> dict[str, int]:
        """Return ``{target: new bytes}`` of the disks that can be grown now."""
        growth = dict(self._disks.growth)
        if growth and self._running is not None and not self._request.live:
            self._errors.append(
                f"disks {', '.join(growth)} grow while the VM is stopped, or with live=True"
            )
            return {}
        return growth

    def _more_mib(self, targets: Iterable[str]) -> int:
        """Return the MiB that some of the grown disks may take in addition."""
        return sum(self._disks.growth_mib[target] for target in targets)

    def _grow(self) -> None:
        """Grow disks; take the growth of disks that failed off the definition's notes."""
        targets = list(self._grown)
        self._grow_each()
        failed_targets = [target for target in targets if target not in self._grown]
        root = copy.deepcopy(self._plan.root)
        metadata.promise_more(root, -self._more_mib(failed_targets))
        if amend.is_identical(root, self._plan.root):
            return
        # Otherwise each repeated call would add the failed growth to the notes again.
        definition = parse(changing.definition(self._conn, self._name))
        metadata.promise_more(definition, -self._more_mib(failed_targets))
        lifecycle.define(self._conn, to_text(definition))
        definitionfiles.settle_definitions()
        changed_arguments = () if amend.is_identical(root, self._now) else self._plan.changed
        self._plan = replace(self._plan, root=root, changed=changed_arguments)

    def _grow_each(self) -> None:
        running_xml = changing.running(self._conn, self._name) if self._grown else None
        running_root = None if running_xml is None else parse(running_xml)
        for target, size in list(self._grown.items()):
            # The running VM may have another disk at that target: find the disk by content.
            running_target = live.find_target(running_root, live.find_disk(self._now, target))
            refusal = self._resized(target, size, running_target)
            if refusal is not None:
                self._errors.append(refusal)
                del self._grown[target]

    def _resized(self, target: str, size: int, running_target: str | None) -> str | None:
        """Grow a disk, in the running VM if that has it; return a failure's reason, or None."""
        if running_target is not None:
            return changing.resize_disk(self._conn, self._name, running_target, size)
        path, fmt = self._disks.places[target]
        try:
            tool.resize(path, size, fmt)
        except StorageError as exc:
            return str(exc)
        return None

    def _answer(self, autostart: bool | None) -> Answer:
        out: Answer = {
            "definition": bool(self._plan.changed),
            "disk": {live.ATTACH: [], live.DETACH: [], live.UPDATE: []},
            "interface": {live.ATTACH: [], live.DETACH: []},
        }
        for step in self._live.steps:
            if step in self._undone:
                self._waits.add(listed.KINDS[step.device].argument)
                continue
            out.setdefault(step.device, {}).setdefault(step.how, []).append(step.xml)
        root, old_root = self._plan.root, self._now
        grown_targets = [
            live.find_target(root, live.find_disk(old_root, target)) for target in self._grown
        ]
        out["disk"][live.UPDATE] += live.find_disk_texts(root, grown_targets)
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
        """Return the changed arguments if the VM has a saved state, which resumes without them."""
        is_saved = self._running is None and self._name in lifecycle.saved(self._conn)
        return set(self._plan.changed) if is_saved else set()


def _create_empty(path: str) -> None:
    """Create an empty file exclusively."""
    try:
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc


def _host_devices(conn: Any, request: Request) -> Sequence[hostdev.Hostdev] | None:
    """Return the host devices that a call names; None if it does not list any."""
    if not request.host_devices:
        return None if request.host_devices is None else ()
    devices_by_name = {device["name"]: device for device in hostfacts.devices(conn)}
    for name in request.host_devices:
        hostdev.refuse_unknown(name, devices_by_name)
    return [hostdev.from_call(devices_by_name[name]) for name in request.host_devices]


# Part of libvirt's message when a running VM has no free slot for a device.
_NO_SLOT = "No more available PCI slots"
