"""Rename a stopped VM on its host: the minion in its guest first, then the domain."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, undo
from saltvirt.core.errors import BadArgument, StorageError, VirtError
from saltvirt.core.protocol import effects, renameprotocol
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, departedvms, reservations
from saltvirt.libvirt.domains import domainfiles, lifecycle, naming, snapshots
from saltvirt.seeding import submission, write
from saltvirt.seeding.offline.appliance import DiskRefused
from saltvirt.storage import definitionfiles, diskpaths, ownermark
from saltvirt.vm.power.host import startlock
from saltvirt.vm.rename.host import guestdisk, secondname
from saltvirt.vm.rename.host.guestdisk import GuestDisk
from saltvirt.vm.spec import console_log
from saltvirt.xml.edit import readdomain, renamed


class RenameRefused(VirtError):
    """
    Nothing was changed by this call.

    The class name goes over the wire: masters know by it that the rename has not begun.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    A rename, as the master orders it.

    uuid
        The VM's UUID, by which it is known under either name; empty for the VM of that name.
    seed
        Whether the guest's minion gets the new id.
    public_key
        The key that the minion must have; None for any.
    """

    name: str
    new_name: str
    uuid: str
    seed: bool
    public_key: str | None = None


def parse(name: object, new_name: object, uuid: object, seed: object, key: object) -> Request:
    """Return the request of a call; raise BadArgument."""
    vm_name, vm_new_name = arguments.vm_name(name), arguments.vm_name(new_name)
    if vm_name == vm_new_name:
        raise BadArgument("new_name", f"{vm_name!r} is the VM's name already")
    return Request(
        name=vm_name,
        new_name=vm_new_name,
        uuid="" if uuid is None else arguments.uuid("uuid", uuid),
        seed=arguments.boolean("seed", seed),
        public_key=None if key is None else arguments.text("public_key", key),
    )


def rename(context: Context, request: Request, *, is_dry: bool = False) -> dict[str, Any]:
    """
    Rename a VM; return ``{"seeded_by": the tool, or None}``. Do it again if it was interrupted.

    Raises :class:`RenameRefused` if nothing was changed. After another error the VM has one of the
    names, and its guest's minion one of the ids; the same call goes on, and the call with the names
    exchanged undoes it.
    """
    with undo.on_signals(), connect.open_connection(context.settings, readonly=False) as conn:
        renaming = _Renaming(context, conn, request)
        with ExitStack() as stack:
            with as_refusal():
                # In one order, so that two renames do not wait for each other.
                for name in () if is_dry else sorted((request.name, request.new_name)):
                    stack.enter_context(startlock.hold_start_lock(context.settings, name))
                renaming.check()
            if not is_dry:
                renaming.run()
        return {"seeded_by": renaming.system and renaming.system.via}


@contextmanager
def as_refusal() -> Iterator[None]:
    """Raise RenameRefused for errors in the block, which changes nothing."""
    try:
        yield
    except Exception as error:
        raise RenameRefused(str(error)) from error


class _Renaming:
    """One rename: executor of the effects of :func:`renameprotocol.rename_on_host`."""

    def __init__(self, context: Context, conn: Any, request: Request) -> None:
        self._context, self._conn, self._request = context, conn, request
        self._settings = context.settings
        self._has_new_name = False
        # Whether the guest, or the domain, may differ from what they were at first.
        self._is_changed = False
        self.system: GuestDisk | None = None

    def check(self) -> None:
        """Raise if the VM cannot be renamed; nothing is changed."""
        conn = self._conn
        if not self._request.uuid:
            uuid = lifecycle.uuid(conn, self._request.name)
            self._request = replace(self._request, uuid=uuid)
        request = self._request
        current_name = lifecycle.name_of(conn, request.uuid)
        if current_name not in (request.name, request.new_name):
            raise StorageError(f"this host has no VM {request.name!r} (UUID {request.uuid})")
        self._has_new_name = current_name == request.new_name
        self._refuse_busy()
        if not self._has_new_name:
            self._refuse_uncarried()
        root = readdomain.domain(lifecycle.inactive_xml(conn, current_name))
        self.system = guestdisk.find(conn, self._settings, root) if request.seed else None

    def _refuse_busy(self) -> None:
        """Raise if the VM runs, or if another command works on it, or on the new name."""
        request, conn, settings = self._request, self._conn, self._settings
        name = request.new_name if self._has_new_name else request.name
        if lifecycle.is_active(conn, name):
            raise StorageError(
                f"VM {name!r} runs; stop it first (virt.shutdown {name}), and rename it then"
            )
        moved_to = lifecycle.moved_to(conn, name)
        if moved_to is not None:
            raise StorageError(f"VM {name!r}: {startlock.kept_message(moved_to, name)}")
        for taken_name in (request.name, request.new_name):
            reservations.refuse_moving(settings, taken_name, request.uuid)
            reservations.refuse_building(settings, taken_name)
        other_uuid = lifecycle.uuid_if_defined(conn, request.new_name)
        if other_uuid not in (None, request.uuid):
            raise StorageError(f"this host has a VM {request.new_name!r} already")

    def _refuse_uncarried(self) -> None:
        """Raise if the VM has what libvirt does not carry to another name."""
        name, conn = self._request.name, self._conn
        if lifecycle.is_migrated(conn, name):
            raise StorageError(f"VM {name!r} has migrated away from here, as libvirt says")
        if names := snapshots.names(conn, name):
            raise StorageError(
                f"VM {name!r} has {len(names)} snapshots, which libvirt does not carry to another "
                f"name; delete them first: salt-run virt.delete_snapshots {name} all=True"
            )
        if name in lifecycle.list_domains_with_checkpoints(conn):
            raise StorageError(
                f"VM {name!r} has checkpoints, of incremental backups mostly, which libvirt does "
                "not carry to another name; delete them first (virsh checkpoint-delete)"
            )
        if name in lifecycle.saved(conn):
            raise StorageError(
                f"VM {name!r} has a saved state (managed save), which libvirt does not carry to "
                "another name; start the VM and shut it down"
            )
        variables, new_variables = self._variables(name)
        is_taken = variables != new_variables and os.path.lexists(str(new_variables))
        if is_taken and not secondname.is_same(variables, new_variables):
            raise StorageError(
                f"the firmware's variables of VM {name!r} would be {new_variables}, which is "
                "there already; see whose it is, and move it away"
            )

    def _variables(self, name: str) -> tuple[str | None, str | None]:
        """Return the file of the firmware's variables, and the file that the new name demands."""
        request = self._request
        root = readdomain.domain(lifecycle.inactive_xml(self._conn, name))
        path = readdomain.firmware_variables(root)
        if path is None or domainfiles.has_shared_variables(self._conn, name):
            return path, path
        return path, renamed.variables_after(path, request.name, request.new_name)

    def run(self) -> None:
        """Rename the VM; raise RenameRefused if nothing was changed."""
        steps = renameprotocol.rename_on_host(
            has_new_name=self._has_new_name, seeds=self.system is not None
        )
        try:
            effects.run(steps, self)
        except Exception as error:
            if self._is_changed:
                raise
            raise RenameRefused(str(error)) from error

    # The effects.

    def identify(self, is_forward: bool) -> None:
        """Give the guest's minion the new id, or the former one again."""
        request, system = self._request, self.system
        assert system is not None
        names = (request.name, request.new_name)
        former_id, minion_id = names if is_forward else names[::-1]
        self._context.progress("Seeding", detail=f"the minion's id, by {system.via}")
        was_changed, self._is_changed = self._is_changed, True
        try:
            write.rename_minion(
                self._context,
                system.path,
                system.format,
                former_id,
                minion_id,
                public_key=request.public_key,
                via=system.via,
                use_kvm=system.use_kvm,
            )
        except DiskRefused as error:
            self._is_changed = was_changed
            raise StorageError(f"{error}; {guestdisk.WITHOUT_GUEST}") from error
        if not is_forward:
            self._is_changed = False

    def rename(self) -> None:
        """Rename the domain, with a second name of the firmware's variables."""
        request, conn = self._request, self._conn
        with reservations.host_lock(self._settings):
            # Another command may have begun while the guest was written to.
            self._refuse_busy()
            self._refuse_uncarried()
            variables, new_variables = self._variables(request.name)
            secondname.add(variables, new_variables)
            try:
                naming.set_name(conn, request.name, request.new_name)
            except BaseException:
                secondname.drop(new_variables, variables)
                raise
            self._is_changed = True

    def settle(self) -> None:
        """Name all else after the VM, and sync it: logs, firmware's variables, owner marks."""
        request, conn = self._request, self._conn
        self._is_changed = True
        name = request.new_name
        variables, new_variables = self._variables(name)
        secondname.add(variables, new_variables)
        logs = (console_log(request.name), console_log(name))
        text = renamed.definition(lifecycle.secure_xml(conn, name), request.name, name, logs)
        if text is not None:
            lifecycle.define(conn, text)
        definitionfiles.settle_definitions()
        old_variables = renamed.variables_after(new_variables, name, request.name)
        secondname.drop(old_variables, new_variables)
        secondname.move_logs(*map(Path, logs))
        for path in self._own_files():
            ownermark.mark(path, name, request.uuid)
        departedvms.forget_target(self._settings, name)
        submission.forget_token(self._settings, request.name)

    def _own_files(self) -> Iterator[str]:
        """Yield the files of the VM that were made for it on this host."""
        root = readdomain.domain(lifecycle.inactive_xml(self._conn, self._request.new_name))
        for disk in readdomain.disk_sources(root):
            path = lifecycle.find_disk_file(self._conn, disk["path"] or "")
            # A guest may have written an overlay's header into its raw disk.
            paths = diskpaths.chain(path) if disk["format"] == "qcow2" and path else [path]
            for own_path in paths:
                owner = ownermark.read_owner(own_path) if own_path else None
                is_own = owner is not None and owner.uuid == self._request.uuid
                if is_own and owner is not None and owner.is_of_this_host:
                    yield own_path
