"""Rename a stopped VM on its host: the minion in its guest first, then the domain."""

import logging
import os
import posixpath
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import arguments, files, undo
from saltvirt.core.errors import BadArgument, DiskRefused, StorageError, VirtError
from saltvirt.core.protocol import effects, renameprotocol
from saltvirt.core.salt.context import Context
from saltvirt.core.seedmethods import GUESTFS, NBD
from saltvirt.libvirt import connect, departedvms, reservations
from saltvirt.libvirt.domains import domainfiles, lifecycle, snapshots
from saltvirt.seeding import inspection, submission, write
from saltvirt.seeding.offline import appliance
from saltvirt.storage import diskpaths, ownermark
from saltvirt.vm.power.host import startlock
from saltvirt.vm.spec import console_log
from saltvirt.xml.edit import copied, readdomain, renamed

log = logging.getLogger(__name__)
_FORMATS = ("qcow2", "raw")
_LOGS = 10
_WITHOUT = (
    "with seed=False the VM is renamed without its guest, in which you then rename the minion"
)


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
        The VM's UUID, by which it is known under either name.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """The disk with the guest's minion, and how it is opened."""

    path: str
    format: str
    via: str
    use_kvm: bool


def parse(name: object, new_name: object, uuid: object, seed: object, key: object) -> Request:
    """Return the request of a call; raise BadArgument."""
    vm_name, vm_new_name = arguments.vm_name(name), arguments.vm_name(new_name)
    if vm_name == vm_new_name:
        raise BadArgument("new_name", f"{vm_name!r} is the VM's name already")
    return Request(
        name=vm_name,
        new_name=vm_new_name,
        uuid=arguments.uuid("uuid", uuid),
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
                for name in sorted((request.name, request.new_name)):
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
        self.system: _System | None = None

    def check(self) -> None:
        """Raise if the VM cannot be renamed; nothing is changed."""
        request, conn = self._request, self._conn
        current_name = lifecycle.name_of(conn, request.uuid)
        if current_name not in (request.name, request.new_name):
            raise StorageError(f"this host has no VM {request.name!r} (UUID {request.uuid})")
        self._has_new_name = current_name == request.new_name
        self._refuse_busy()
        if not self._has_new_name:
            self._refuse_uncarried()
        root = readdomain.domain(lifecycle.inactive_xml(conn, current_name))
        self.system = self._find_system(root) if request.seed else None

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
        if variables != new_variables and os.path.lexists(str(new_variables)):
            if not _is_same(variables, new_variables):
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

    def _find_system(self, root: Any) -> _System:
        """Return the disk with the guest's minion; raise if it cannot be written to."""
        target = copied.find_boot_target(root)
        disks = (disk for disk in readdomain.disks(root) if disk.target.get("dev") == target)
        disk = next(disks, None)
        path = lifecycle.find_disk_file(self._conn, disk.path or "") if disk is not None else ""
        if disk is None or disk.format not in _FORMATS or not os.path.isfile(path):
            shown_path = path or "none"
            raise StorageError(
                "the guest's minion cannot be renamed while the VM is off: its disk "
                f"({shown_path}) is no qcow2 or raw file; {_WITHOUT}"
            )
        if diskpaths.is_open(path):
            raise StorageError(f"{path} is open in another program; stop that first")
        missing_reason = appliance.why_missing(inspection.python(self._settings))
        if missing_reason and self._settings.seed.get("allow_host_mount") is not True:
            raise StorageError(
                f"the guest's minion cannot be renamed while the VM is off: {missing_reason}; "
                f"{_WITHOUT}"
            )
        via = NBD.name if missing_reason else GUESTFS.name
        use_kvm = root.get("type") == "kvm"
        return _System(path=path, format=disk.format, via=via, use_kvm=use_kvm)

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
            raise StorageError(f"{error}; {_WITHOUT}") from error
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
            _link(variables, new_variables)
            try:
                lifecycle.rename(conn, request.name, request.new_name)
            except BaseException:
                _unlink_second(new_variables, variables)
                raise
            self._is_changed = True

    def settle(self) -> None:
        """Name all else after the VM, and sync it: logs, firmware's variables, owner marks."""
        request, conn = self._request, self._conn
        self._is_changed = True
        name = request.new_name
        variables, new_variables = self._variables(name)
        _link(variables, new_variables)
        logs = (console_log(request.name), console_log(name))
        text = renamed.definition(lifecycle.secure_xml(conn, name), request.name, name, logs)
        if text is not None:
            lifecycle.define(conn, text)
        diskpaths.settle_definitions()
        old_variables = renamed.variables_after(new_variables, name, request.name)
        _unlink_second(old_variables, new_variables)
        _rename_logs(*map(Path, logs))
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


def _is_same(path: str | None, other_path: str | None) -> bool:
    """Return whether two names are those of one file."""
    try:
        return bool(path and other_path) and os.path.samefile(str(path), str(other_path))
    except OSError:
        return False


def _link(path: str | None, new_path: str | None) -> None:
    """Give a file a second name beside the first, if it exists."""
    if not path or not new_path or path == new_path or _is_same(path, new_path):
        return
    try:
        os.link(path, new_path, follow_symlinks=False)
        files.sync_folder(posixpath.dirname(new_path))
    except FileNotFoundError:
        return  # libvirt makes it at the first start
    except OSError as exc:
        raise StorageError(
            f"the firmware's variables {path} cannot be called {new_path}: {exc.strerror}"
        ) from exc


def _unlink_second(path: str | None, kept_path: str | None) -> None:
    """Remove the second name of a file that keeps its other one."""
    if path != kept_path and _is_same(path, kept_path):
        files.unlink(str(path))


def _rename_logs(old_log: Path, new_log: Path) -> None:
    """Let the console logs have the VM's new name; the guest's next start writes a new one else."""
    for end in ("", *(f".{number}" for number in range(_LOGS))):
        old_path, new_path = Path(f"{old_log}{end}"), Path(f"{new_log}{end}")
        try:
            old_path.rename(new_path)
        except FileNotFoundError:
            continue
        except OSError as exc:
            log.warning("%s keeps its name: %s", old_path, exc.strerror)
