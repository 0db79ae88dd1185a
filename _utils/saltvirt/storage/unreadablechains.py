"""Find unreadable backing chains of VMs and of the trash: any file may be in them."""

import os
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from saltvirt.core.errors import VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import TrashFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.storage import definitionfiles, diskpaths, trash
from saltvirt.storage.images import cache
from saltvirt.xml.edit import readdomain

# A network location in a header, after it was taken for a path.
_NETWORK = re.compile("/([a-z][a-z+]*:/|(nbd|rbd|sheepdog):)")


def reasons(conn: Any, settings: HostSettings) -> dict[str, str]:
    """
    Return ``{VM: reason and remedy}`` of the VMs with unreadable backing chains.

    A definition that this host kept after a move uses nothing here.
    """
    definitions = query.definitions(conn, with_next=True)
    skipped_vms = set(_kept_definitions(conn, definitions))
    # Later entries win: a VM that libvirt has not loaded is the most urgent reason.
    reasons_by_vm = {
        **{
            name: _pool_reason(name, volume)
            for name, volume in _find_volumes_without_pool(conn, definitions)
        },
        **{
            name: _file_reason(name, path, reason)
            for name, path, reason in _find_missing_files(conn, settings)
        },
    }
    return {
        **{name: reason for name, reason in reasons_by_vm.items() if name not in skipped_vms},
        **definitionfiles.find_not_loaded(conn),
    }


def _file_reason(name: str, path: str, reason: str) -> str:
    return (
        f"this host cannot tell what disk {path} of VM {name!r} is based on, as it {reason}; or if "
        "it is gone for good, remove that VM (virt.purge), or the disk from it (virt.update)"
    )


def _pool_reason(name: str, volume: str) -> str:
    return (
        f"this host cannot tell what volume {volume} of VM {name!r} is based on, as it has no such "
        "pool: define it again (virt.pool_running); or if it is gone for good, remove that VM "
        "(virt.purge), or the disk from it (virt.update)"
    )


def _kept_definitions(conn: Any, definitions: Iterable[query.Definition]) -> Iterator[str]:
    for definition in definitions:
        # An operator may have started the VM from its kept definition.
        is_noted = readdomain.describe_notes(definition.root)["moved_to"] is not None
        if is_noted and not lifecycle.is_active(conn, definition.name):
            yield definition.name


def _find_missing_files(conn: Any, settings: HostSettings) -> Iterator[tuple[str, str, str]]:
    """Yield ``(VM, file, reason and remedy)`` per unreachable file in a disk's backing chain."""
    overlays = lifecycle.overlays(conn)
    for name, paths in sorted(lifecycle.disks(conn).items()):
        for path in (
            candidate for candidate in sorted(paths & overlays) if candidate.startswith("/")
        ):
            yield from (
                (name, file, reason) for file, reason in find_unreachable_files(settings, path)
            )


def find_unreachable_files(
    settings: HostSettings, path: str, home: Path | None = None
) -> Iterator[tuple[str, str]]:
    """
    Yield ``(file, reason and remedy)`` per unreachable file of a disk's chain, disk included.

    home
        The folder at which relative names in the disk's header start, if not the disk's own.
    """
    for file, reason in diskpaths.walk_chain(path, home):
        # A cached image has no backing file, and a network location is no file.
        if cache.digest_of(settings, file) is not None or _NETWORK.search(file):
            continue
        if not os.path.exists(file):
            yield file, "is not there: mount its file system"
        elif reason is not None:
            yield file, f"cannot be read ({reason}): let root of this host read it, or mend it"


def _find_volumes_without_pool(
    conn: Any, definitions: Iterable[query.Definition]
) -> Iterator[tuple[str, str]]:
    """Yield ``(VM, volume)`` per volume of an undefined pool that may have backing files."""
    pools = hostfacts.pools(conn)
    for definition in definitions:
        for disk in (
            disk for root in (definition.root, definition.next_root) for disk in _volumes(root)
        ):
            if disk["path"].partition("/")[0] not in pools:
                yield definition.name, disk["path"]


def _volumes(root: ET.Element | None) -> Iterator[dict[str, Any]]:
    for disk in [] if root is None else readdomain.disk_sources(root):
        if disk["type"] == "volume" and disk["path"] and disk["format"] != "raw":
            yield disk


REMEDY = "bring that disk back, or remove it for good (virt.trash_empty)"


def find_unreadable_entries(settings: HostSettings) -> dict[str, str]:
    """Return ``{entry: reason and remedy}`` of the entries with unknown backing files."""
    entries = trash.read_entries(settings)
    missing_files = {
        record.name: reason for record in entries for reason in trash.find_out_of_reach(record)
    }
    return {
        **dict(_find_unreadable_files(settings, entries)),
        **missing_files,
        **trash.unreadable(settings),
    }


def _find_unreadable_files(
    settings: HostSettings, entries: Iterable[records.Record]
) -> Iterator[tuple[str, str]]:
    """Yield ``(entry, reason and remedy)`` per unreadable file in a disk's backing chain."""
    places = {record.name: trash.files_of(record) for record in entries}
    # A disk's backing file may be in the trash too.
    trashed_paths = {path for paths_of_entry in places.values() for path in paths_of_entry}
    for record in entries:
        raw = _find_raw_disks(record)
        for path, place in places[record.name].items():
            # A guest can write an overlay's header into a raw disk.
            home = Path(path).parent
            is_raw = path.endswith(".raw") or not raw.isdisjoint((path, Path(path).name))
            chain = () if is_raw else find_unreachable_files(settings, str(place), home)
            for file, reason in chain:
                if diskpaths.find_known_path(file, trashed_paths) is None:
                    entry = shlex.quote(record.name)
                    yield (
                        record.name,
                        f"{file} {reason}; or if it is gone for good: virt.trash_empty {entry}",
                    )


def _find_raw_disks(record: records.Record) -> set[str]:
    """
    Return an entry's raw files by its VM's definition: paths, and names of volumes.

    These are its raw disks, the firmware's variables and the state of its TPM.
    """
    facts = record.read(TrashFacts)
    text, variables = facts.definition, None
    disks = []
    # An unreadable definition marks no disk as raw.
    with suppress(VirtError):
        if text is not None:
            root = readdomain.domain(text)
            disks, variables = readdomain.disk_sources(root), readdomain.firmware_variables(root)
    paths = [disk["path"] for disk in disks if disk["path"] and disk["format"] == "raw"]
    paths += [variables] if variables else []
    if facts.tpm_state:
        paths += [path for path in facts.files if Path(path).is_relative_to(facts.tpm_state)]
    # A volume's file has the volume's name.
    return {path if path.startswith("/") else path.partition("/")[2] for path in paths}


def backing_files(settings: HostSettings) -> dict[str, str]:
    """Return ``{path: entry}`` of the backing files of disks in this host's trash."""
    out: dict[str, str] = {}
    for record in trash.read_entries(settings):
        for path, place in trash.files_of(record).items():
            # Relative names in a header start at the disk's former folder.
            for file in diskpaths.chain_below(str(place), home=Path(path).parent):
                out |= {file: record.name, os.path.realpath(file): record.name}
    return out


def backing_files_beside(settings: HostSettings, folders: Iterable[Path]) -> set[str]:
    """Return the backing files of disks in other hosts' trash in some folders."""
    own_entries = {record.name for record in trash.read_entries(settings)}
    return {
        name
        for folder in folders
        for place in (folder / trash.FOLDER).glob("*/*")
        if place.parent.name not in own_entries
        for file in diskpaths.chain_below(str(place), home=folder)
        for name in (file, os.path.realpath(file))
    }
