"""The steps of a build, each with its undo beside it."""

import functools
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from saltvirt.core import files, undo, writelimit
from saltvirt.core.errors import NotTakenBack, StorageError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import DISK, SEED
from saltvirt.libvirt import departedvms, hostfacts, reservations
from saltvirt.libvirt.domains import domainfiles, lifecycle
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.seeding import credentials, install, nocloud, submission, write
from saltvirt.seeding.seedchoice import SeedDecision
from saltvirt.seeding.seedmodel import Identity, Installation
from saltvirt.storage import (
    definitionfiles,
    diskpaths,
    exclusivecreate,
    ownermark,
    policies,
    vmvolumes,
)
from saltvirt.storage.images import clone, removal, tool
from saltvirt.vm.create.host import existing, newvolumes
from saltvirt.vm.create.host.buildplan import Plan
from saltvirt.vm.create.host.plandisks import DiskFile, DiskVolume, ExistingFile
from saltvirt.vm.power.host import startlock
from saltvirt.vm.recovery.host import unfinished
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import metadata
from saltvirt.xml.edit import readdomain

log = logging.getLogger(__name__)

_Step = Callable[..., None]


def _keep_error(step: _Step) -> _Step:
    """Keep a step's error, to report it even if the build cannot be undone."""

    @functools.wraps(step)
    def call(self: "Builder", *args: Any) -> None:
        try:
            step(self, *args)
        except BaseException as exc:
            self.error = exc
            raise

    return call


class Builder:
    """
    Executor of the effects of :func:`saltvirt.core.protocol.moveprotocol.build`, for one VM.

    guest_identity
        None if the guest gets no identity.
    reserve
        Returns a context that reserves the room, with the build's record.
    decide
        Returns the :class:`Plan`; called when the room is reserved.
    source
        The VM that the disks are copied from, if any.
    recheck
        Raises if that VM was used while its disks were copied.
    """

    def __init__(
        self,
        conn: Any,
        context: Context,
        guest_identity: Identity | None,
        reserve: Callable[[], AbstractContextManager[records.LockedRecord]],
        decide: Callable[[], Plan],
        *,
        source: str | None,
        recheck: Callable[[], None],
    ) -> None:
        self._conn, self._context, self._who = conn, context, guest_identity
        self._reserve, self._decide = reserve, decide
        self._source, self._recheck = source, recheck
        self._holding, self._steps = ExitStack(), undo.Steps()
        # If so, libvirt may still have a definition that needs the files.
        self._may_be_defined = False
        # Before the VM starts, existing firmware variables are not from this build.
        self._made_variables = False
        self.error: BaseException | None = None
        self.warnings: tuple[str, ...] = ()

    def __enter__(self) -> "Builder":
        return self

    def __exit__(self, *_raised: object) -> None:
        self._holding.close()

    def begin(self, _phase: str) -> None:
        """Reserve the room, and begin the build's record."""
        self._held = self._holding.enter_context(self._reserve())

    @_keep_error
    def enter(self, phase: str) -> None:
        """Write a phase to the record, before the effects of that phase."""
        self._held.enter(phase)

    @_keep_error
    def make(self) -> None:
        """Make all files and volumes, and sync them to disk."""
        conn, settings = self._conn, self._context.settings
        self._plan = plan = self._decide()
        self._warn(plan.warnings)
        minion = _fetch_minion(self._context, plan)
        secret_paths = [plan.credentials_path] if plan.credentials_path else []
        with reservations.host_lock(settings):
            # Defining the VM would overwrite the file of a definition that libvirt did not load.
            definitionfiles.refuse_not_loaded(conn, plan.vm.name)
            # Settling this build removes the files on its record, so no other VM may have them.
            reservations.refuse_taken(settings, plan.vm.name, plan.paths)
            # Another VM may have got the existing files since the plan was decided.
            existing.refuse_used(conn, settings, plan.vm.name, plan.existing_paths)
            newvolumes.refuse_taken(conn, settings, plan.vm.name, plan.volumes)
            new_volumes = [[volume.pool, volume.name] for volume in plan.new_volumes]
            taken_names = [*plan.existing_paths, *(volume.where for volume in plan.volumes)]
            exclusivecreate.announce(self._held, plan.paths, secret_paths, taken_names, new_volumes)
        self._make_files(plan)
        self._make_disks(plan)
        if plan.seed and self._who:
            _seed(self._context, plan, plan.seed, self._who, minion)
        _mark_and_settle(plan, [path for path in plan.paths if path not in secret_paths])

    def _make_files(self, plan: Plan) -> None:
        if plan.paths:
            diskpaths.make_image_folder(self._context.settings.images)
        # Undone last: the pool forgets a file only when the file is removed.
        for pool in filter(None, (file.pool for file in plan.files)):
            self._steps.undo_with(hostfacts.forget_removed, self._conn, pool)
        seeds = [plan.seed_path] if plan.seed and self._who and plan.seed_path else []
        paths = [*(file.path for file in plan.files), *seeds]
        # Another host sharing the folder may make such a file at any moment: register undo first.
        for path in paths:
            self._steps.undo_with(self._remove, path)
        if paths:
            exclusivecreate.make(self._held, paths)

    def _make_disks(self, plan: Plan) -> None:
        conn, settings = self._conn, self._context.settings
        if self._source is not None:
            self._context.progress("Copying", detail=f"the disks of {self._source}")
        for file in plan.files:
            make_disk(conn, settings, file)
        for volume in plan.new_volumes:
            self._make_volume(volume)
        grow(plan.existing)
        self._recheck()

    def _warn(self, warnings: tuple[str, ...]) -> None:
        """Log and report warnings now; the answer repeats them."""
        self.warnings = warnings
        for warning in warnings:
            log.warning("VM %s: %s", self._plan.vm.name, warning)
            self._context.progress("Warning", detail=warning)

    def _make_volume(self, volume: DiskVolume) -> None:
        conn, pool, name = self._conn, volume.pool, volume.name
        newvolumes.make(conn, volume)
        self._steps.undo_with(self._remove_volume, pool, name)
        exclusivecreate.note_volume(
            self._held, pool, name, diskvolumes.find_volume_key(conn, pool, name)
        )
        newvolumes.fill(self._context.settings, volume)

    def _remove_volume(self, pool: str, name: str) -> None:
        if self._may_be_defined:
            raise StorageError("it stays, as the VM's definition may still be there")
        vm = self._held.now.name
        vmvolumes.remove(self._conn, self._context.settings, [[pool, name]], vm=vm)
        exclusivecreate.forget_volume(self._held, pool, name)

    def _remove(self, path: str) -> None:
        if self._may_be_defined:
            raise StorageError("it stays, as the VM's definition may still be there")
        made_paths = exclusivecreate.filter_made(self._held.now, [path])
        exclusivecreate.take_off_record(self._held, made_paths)
        name = self._held.now.name
        index = unfinished.index_without(self._conn, self._context.settings, name, made_paths)
        unfinished.remove(self._context.settings, index, policies.UNDO, made_paths)
        exclusivecreate.forget(self._held.now, [path])

    @_keep_error
    def define(self) -> None:
        """Define the domain, and submit its minion's key to the master."""
        self._steps.undo_with(self._undefine)
        _define(self._conn, self._context.settings, self._plan)
        name = self._plan.vm.name
        if self._plan.notes_made and not domainfiles.has_variables(self._conn, name):
            lifecycle.note_made_variables(self._conn, name)
        if self._plan.seed and self._who and self._who.is_submitted:
            submission.submit(self._context, self._plan.vm.name, self._who.public_key)

    def _undefine(self) -> None:
        self._may_be_defined = True
        is_nvram_kept = not self._made_variables
        _undefine_domain(self._conn, self._context.settings, self._plan, keep_nvram=is_nvram_kept)
        self._may_be_defined = False

    @_keep_error
    def start(self) -> None:
        """Start the domain."""
        self._context.progress("Starting")
        self._made_variables = not domainfiles.has_variables(self._conn, self._plan.vm.name)
        _start(self._conn, self._plan, self._who)

    def undo(self) -> None:
        """Undo all steps, newest first; raise if one fails: its files stay on record."""
        name = self._held.now.name
        try:
            if self._held.now.phase != moveprotocol.MAKING:
                # UNDOING keeps the VM from being started. Settling would keep the files of a
                # COMPLETE build, even without a VM.
                self._held.enter(moveprotocol.UNDOING)
        except StorageError as exc:
            # A full disk may be the very reason for this undo.
            log.error("cannot note that the build of %s is being undone: %s", name, exc)
        if not self._steps.run():
            raise NotTakenBack(
                f"{self.error}; and not everything that was made for VM {name!r} can be removed: "
                "the minion's log says why; the next virt.init or virt.purge on this host tries "
                "again"
            )

    def end(self) -> None:
        """End the record; a VM that was built here is no longer noted as moved away."""
        if self.error is None:
            departedvms.forget_target(self._context.settings, self._held.now.name)
        reservations.end(self._context.settings, self._held)


def _fetch_minion(context: Context, plan: Plan) -> Installation | None:
    """Fetch the files to install a minion; return the installation, None if there is none."""
    installation = plan.seed.install if plan.seed else None
    if installation and installation.kind != "boot":
        return install.fetch_files(context, installation, plan.saltenv)
    return installation


def make_disk(conn: Any, settings: HostSettings, file: DiskFile) -> None:
    """Make a disk in its existing, empty file; the caller syncs the file."""
    if file.base is None:
        clone.empty(file.path, file.layout["size_bytes"], file.layout["format"])
    else:
        clone.make(file.base, file.path, file.layout, writelimit.from_settings(settings))
        if file.layout["is_overlay"]:
            removal.refuse_removed(settings, file.base.path)
    if file.pool:
        hostfacts.refresh_pool(conn, file.pool)


def grow(existing_files: Iterable[ExistingFile]) -> None:
    """Grow existing disks to their requested sizes."""
    for file in existing_files:
        if file.grown_bytes:
            tool.resize(file.path, file.grown_bytes, file.format)


def _seed(
    context: Context,
    plan: Plan,
    seed: SeedDecision,
    guest_identity: Identity,
    minion: Installation | None,
) -> None:
    method, disk = seed.method, plan.seeded_disk
    if method and method.is_for_cloud_init and minion and minion.kind != "boot":
        context.progress("Installing", detail="a minion, as the image has none")
        write.install_minion(
            context,
            disk.path,
            disk.format,
            minion,
            content=seed.content,
            use_kvm=plan.vm.domain_type == "kvm",
        )
    context.progress("Seeding", detail=f"by {seed.name}{f': {seed.reason}' if seed.reason else ''}")
    _write_identity(context, plan, seed, guest_identity, minion)


def _write_identity(
    context: Context,
    plan: Plan,
    seed: SeedDecision,
    guest_identity: Identity,
    minion: Installation | None,
) -> None:
    """Write the identity where the seed method has it; a credential is written at the start."""
    method, disk = seed.method, plan.seeded_disk
    if method is None:
        write.run_command(
            context, seed.name, guest_identity, disk.path or "", install=plan.installs
        )
    elif method.writes_to == SEED:
        installs = minion is not None and minion.kind == "boot"
        nocloud.build(plan.seed_path or "", guest_identity, plan.vm.uuid or "", install=installs)
    elif method.writes_to == DISK:
        write.seed_disk(
            context,
            disk.path,
            disk.format,
            guest_identity,
            via=method.name,
            install=minion,
            content=seed.content,
            use_kvm=plan.vm.domain_type == "kvm",
        )


def _mark_and_settle(plan: Plan, paths: list[str]) -> None:
    """Set the VM's owner mark on files, and sync them to disk."""
    for path in paths:
        ownermark.mark(path, plan.vm.name, plan.vm.uuid or "")
    settle(paths)


def settle(paths: list[str]) -> None:
    """Sync files and their folders to disk."""
    try:
        files.sync_files(paths)
    except OSError as exc:
        raise StorageError(f"cannot write {exc.filename or paths}: {exc.strerror}") from exc


def _note_creation(xml: str) -> str:
    """Return a definition with the time at which its VM is built, for its age."""
    root = readdomain.domain(xml)
    metadata.note_creation(root, int(time.time()))
    return to_text(root)


def _define(conn: Any, settings: HostSettings, plan: Plan) -> None:
    xml = _note_creation(plan.xml())
    existing.adopt(conn, lifecycle.define(conn, xml))
    for path in readdomain.boot_files(parse(xml)):
        removal.refuse_removed(settings, path)
    if plan.autostarts:
        lifecycle.set_autostart(conn, plan.vm.name, "on")
    definitionfiles.settle_definitions()


def _undefine_domain(conn: Any, settings: HostSettings, plan: Plan, *, keep_nvram: bool) -> None:
    """
    Stop and undefine the domain of a build, if its UUID has that name.

    keep_nvram
        Keep the firmware's variables: an earlier VM of that name may have left them.
    """
    name, uuid = plan.vm.name, plan.vm.uuid or ""
    # A VM started in between would run on without a definition, over removed files.
    with startlock.hold_start_lock(settings, name):
        if lifecycle.name_of(conn, uuid) == name:
            lifecycle.destroy(conn, name)
            lifecycle.undefine(conn, name, keep_nvram=keep_nvram)
    # An undefined domain must not reappear after a crash: its files are removed next.
    definitionfiles.settle_definitions()
    current_name = lifecycle.name_of(conn, uuid)
    if current_name is not None:
        raise StorageError(f"the VM is called {current_name!r} by now, and stays")
    if not lifecycle.is_defined(conn, name):
        unfinished.remove_log(name)


def _start(conn: Any, plan: Plan, guest_identity: Identity | None) -> None:
    name, path = plan.vm.name, plan.credentials_path
    if path is None or guest_identity is None:
        lifecycle.start(conn, name)
        return
    # The file with the credentials is removed once QEMU has read it.
    try:
        files.write(
            path, credentials.content(write.files_of(guest_identity), guest_identity.ssh_keys)
        )
        lifecycle.start_once(conn, name, lambda xml: credentials.add_credential(xml, path))
    finally:
        files.unlink(path)
