"""The lock under which VMs start: no VM starts while it moves between two hosts."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

from saltvirt.core import arguments, files, locks
from saltvirt.core.errors import VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.xml.edit import readdomain

_AWAY = {moveprotocol.HANDING: "is handed over to", moveprotocol.LEAVING: "is gone to"}


class OnItsWay(VirtError):
    """The VM is on its way between two hosts; the message names the command that settles that."""


class BeingPurged(VirtError):
    """The VM is being purged; the message names the command that finishes that."""


class BeingUndone(VirtError):
    """The VM's failed build is being undone; the message names the command that finishes that."""


@contextmanager
def allow_start(conn: Any, settings: HostSettings, name: str) -> Iterator[None]:
    """Allow the start of a VM in the block, in which no move hands the VM over."""
    with hold_start_lock(settings, name):
        # Report a move before a missing VM: a VM on its way may not be defined here.
        uuid = lifecycle.uuid_if_defined(conn, name)
        refuse_moving(settings, name, uuid)
        reservations.refuse_copied(settings, name, uuid)
        # A purge, and the undoing of a build, is on record before it takes this lock.
        _refuse_removed(settings, name, uuid, is_here=uuid is not None)
        moved_to = lifecycle.moved_to(conn, name)
        if moved_to is not None:
            raise OnItsWay(f"VM {name!r} cannot be started here: {kept_message(moved_to, name)}")
        yield


def hold_definition_lock(
    conn: Any, settings: HostSettings, name: str
) -> AbstractContextManager[None]:
    """
    Return the lock under which a VM's definition is changed.

    Raises NameTaken for a moving VM, even before it is handed over: the move takes the definition
    as it was when the move began.
    """
    reservations.refuse_moving(settings, name, lifecycle.uuid(conn, name))
    return allow_start(conn, settings, name)


@contextmanager
def allow_creation(conn: Any, settings: HostSettings, xml: str) -> Iterator[None]:
    """Allow starting a VM from XML in the block; libvirt starts a defined VM by that, too."""
    root = readdomain.domain(xml)
    uuid = _as_libvirt_writes(readdomain.uuid(root))
    refuse_moving(settings, readdomain.name(root), uuid)
    defined_name = lifecycle.name_of(conn, uuid)
    _refuse_removed(settings, readdomain.name(root), uuid, is_here=defined_name is not None)
    with nullcontext() if defined_name is None else allow_start(conn, settings, defined_name):
        yield


def allow_defining(conn: Any, settings: HostSettings, xml: str) -> AbstractContextManager[None]:
    """
    Return the lock under which a VM is defined from XML; libvirt replaces an existing definition.

    Raises for a VM that moves or has moved: the mark in its old definition would be lost.
    """
    root = readdomain.domain(xml)
    uuid = _as_libvirt_writes(readdomain.uuid(root))
    reservations.refuse_moving(settings, readdomain.name(root), uuid)
    defined_name = lifecycle.name_of(conn, uuid)
    return (
        nullcontext()
        if defined_name is None
        else hold_definition_lock(conn, settings, defined_name)
    )


def _as_libvirt_writes(uuid: str) -> str:
    """Return a UUID in lower case with hyphens; other text, which libvirt refuses, unchanged."""
    try:
        return str(UUID(uuid.strip()))
    except ValueError:
        return uuid


def kept_message(moved_to: str, name: str) -> str:
    """Return why a VM belongs to another host though its definition is here, and the remedy."""
    return (
        f"it has moved to {moved_to}, and only its definition was kept here; remove that with "
        f"virt.undefine {name}, or if no other host has the VM any more, take moved_to out of it "
        f"with virsh edit {name}"
    )


def hold_start_lock(settings: HostSettings, name: str) -> AbstractContextManager[Any]:
    """Return the lock under which a VM is started, or checked and handed over."""
    vm_name = arguments.text("name", name)
    return locks.hold_lock(
        Path(settings.state_dir) / "locks" / f"start-{files.to_file_name(vm_name)}.lock"
    )


def refuse_moving(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise OnItsWay if a VM of this name, or UUID, belongs, or may belong, to another host."""
    for record in reservations.find_records(settings, "departure", name, uuid):
        if record.phase in _AWAY:
            target = record.read(DepartureFacts).target
            raise _error(record, name, f"{_AWAY[record.phase]} {target}")
    for record in reservations.find_records(settings, "arrival", name, uuid):
        if record.phase != moveprotocol.ARRIVED:
            source = record.read(ArrivalFacts).source
            raise _error(record, name, f"is still on its way here from {source}")


def _refuse_removed(settings: HostSettings, name: str, uuid: str | None, *, is_here: bool) -> None:
    """Raise if the purge of a VM of this name, or UUID, or the undoing of its build is not over."""
    for record in reservations.find_records(settings, "purge", name, uuid):
        if _is_in_progress(settings, record, is_here):
            raise BeingPurged(
                f"VM {reservations.display_name(record, name)} is being purged since "
                f"{record.since_text}; wait until that is over, or if it was interrupted, finish "
                f"it with virt.purge {name}"
            )
    for record in reservations.find_records(settings, "build", name, uuid):
        if record.phase == moveprotocol.UNDOING and _is_in_progress(settings, record, is_here):
            raise BeingUndone(
                f"the virt.init of VM {reservations.display_name(record, name)} that was begun at "
                f"{record.since_text} has failed and is being undone; wait until that is over, or "
                f"if it was interrupted, finish it with virt.purge {record.name}"
            )


def _is_in_progress(settings: HostSettings, record: records.Record, is_here: bool) -> bool:
    # If the VM is still here, an interrupted job has not removed anything yet.
    return not is_here or records.is_live(
        reservations.folder(settings), record.purpose, record.name
    )


def _error(record: records.Record, name: str, state_text: str) -> OnItsWay:
    return OnItsWay(
        f"VM {reservations.display_name(record, name)} {state_text}, in a move that was begun at "
        f"{record.since_text} and is not over; if it was interrupted, have both hosts asked: "
        f"salt-run virt.settle {record.name}"
    )
