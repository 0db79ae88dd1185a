"""Read this host's facts for ``virt.doctor``; change nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from saltvirt.checks import installed
from saltvirt.checks.doctor.doctoranswer import DoctorFacts, MoveLeft
from saltvirt.checks.doctor.host import localleftovers, unusedfiles
from saltvirt.core import filecontent
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.storage import unreadablechains


def read_host_facts(conn: Any, opts: Mapping[str, Any], settings: HostSettings) -> DoctorFacts:
    """Return the facts of this host, with the files of VMs that nothing here uses."""
    trash_reasons, vm_reasons = (
        unreadablechains.find_unreadable_entries(settings),
        unusedfiles.unreadable(conn, settings),
    )
    unreadable_reasons = {**trash_reasons, **vm_reasons}
    # Records before domains: a VM that loses its record meanwhile is defined by then, or gone.
    moves = list(read_moves(settings))
    busy_vms = sorted({*_find_busy_vms(settings), *vm_reasons, *(move.name for move in moves)})
    vms = unusedfiles.find_seen_vms(conn)
    # An unreadable record may name any file.
    loose_files = [] if unreadable_reasons else list(unusedfiles.unused_files(conn, settings))
    shared_files = unusedfiles.find_shared_files(
        settings, unusedfiles.find_used_files(conn, settings)
    )
    return DoctorFacts(
        code=filecontent.of_code(),
        copies=installed.find_copies(opts),
        vms=vms,
        made_for=unusedfiles.find_owner_names(vms),
        shared=shared_files,
        files=loose_files,
        busy=busy_vms,
        left=localleftovers.find_leftovers(conn, settings),
        unreadable=unreadable_reasons,
        unreadable_trash=sorted(trash_reasons.keys() - vm_reasons.keys()),
        moves=moves,
        foreign_virt=installed.find_foreign_virt(),
    )


def _find_busy_vms(settings: HostSettings) -> Iterator[str]:
    yield from reservations.read_coming_vms(settings)
    yield from reservations.find_unfinished(settings)
    for purpose in reservations.SETTLED_HERE:
        yield from (
            record.name for record in records.read_records(reservations.folder(settings), purpose)
        )


def read_moves(settings: HostSettings) -> Iterator[MoveLeft]:
    """Yield the moves on record here."""
    records_folder = reservations.folder(settings)
    for purpose in ("departure", "arrival"):
        for record in records.read_records(records_folder, purpose):
            is_live = records.is_live(records_folder, purpose, record.name)
            yield MoveLeft(name=record.name, purpose=purpose, phase=record.phase, is_live=is_live)
