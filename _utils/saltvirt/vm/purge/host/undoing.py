"""Bring the last purged VM of a name back from the trash: its files, then what libvirt knew."""

import os
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core.errors import NameTaken, StorageError
from saltvirt.core.model import Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.placement import cures, fit, resources
from saltvirt.storage import definitionfiles, diskpaths, trash
from saltvirt.vm.purge.purgeanswers import Undone
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect
from saltvirt.xml import to_text
from saltvirt.xml.domain import disk
from saltvirt.xml.edit import amend, devicematch, readdomain

_DRIVES = ("cdrom", "floppy")


def undo(
    conn: Any,
    settings: HostSettings,
    name: str,
    *,
    uuid: str | None = None,
    is_dry: bool = False,
) -> Undone:
    """
    Define the last purged VM of a name again, and bring its files back; go on with what was begun.

    uuid
        The UUID of the purged VM. Defaults to that of the last one.
    is_dry
        Change nothing. Defaults to False.

    The definition comes first: libvirt may refuse it, and nothing has changed then. An interrupted
    undo leaves a VM whose files are partly in the trash; no sweep removes these. Raises
    StorageError, with nothing changed, if a file is gone, or if the host cannot take the VM.
    """
    with reservations.host_lock(settings):
        if not is_dry:
            unfinished.settle_one(conn, settings, name)
        reservations.refuse_building(settings, name)
        reservations.refuse_moving(settings, name, uuid)
        defined_uuid = lifecycle.uuid_if_defined(conn, name)
        with trash.TrashedVm.opened(settings, name, uuid) as trashed:
            if trashed is not None:
                return _bring_back(conn, settings, name, trashed, defined_uuid, is_dry=is_dry)
        if defined_uuid is not None and defined_uuid == uuid:
            # An interrupted undo had done all here.
            return Undone(uuid=defined_uuid, autostart=_starts_with_host(conn, name))
        raise StorageError(
            f"the trash of this host has no purged VM called {name!r}; salt-run virt.trash shows "
            "what there is"
        )


def _bring_back(
    conn: Any,
    settings: HostSettings,
    name: str,
    trashed: trash.TrashedVm,
    defined_uuid: str | None,
    *,
    is_dry: bool,
) -> Undone:
    facts = trashed.facts
    _refuse_another(conn, name, facts.uuid or "", defined_uuid)
    places, root = trashed.find_places(), readdomain.domain(facts.definition or "")
    lost = [*(facts.lost or []), *_drop_seed(root)]
    _refuse_gone(trashed, root, places)
    if defined_uuid is None:
        _refuse_unfit(conn, settings, name, root)
    if not is_dry:
        trashed.begin()
        if defined_uuid is None:
            lifecycle.define(conn, to_text(root))
        lifecycle.set_autostart(conn, name, "on" if facts.autostart else "off")
        definitionfiles.settle_definitions()
        trashed.bring_back(places)
    return Undone(
        uuid=facts.uuid or "", files=sorted(places), autostart=bool(facts.autostart), lost=lost
    )


def _starts_with_host(conn: Any, name: str) -> bool:
    return name in lifecycle.list_autostarted_domains(conn)


def _refuse_another(conn: Any, name: str, uuid: str, defined_uuid: str | None) -> None:
    """Raise NameTaken if this host has another VM of that name, or the VM by another name."""
    if defined_uuid not in (None, uuid):
        raise NameTaken(f"this host has another VM called {name!r}; nothing is brought back")
    other_name = lifecycle.name_of(conn, uuid)
    if other_name not in (None, name):
        raise NameTaken(
            f"this host has VM {other_name!r} with the UUID of {name!r}; nothing is brought back"
        )


def _drop_seed(root: ET.Element) -> list[str]:
    """Take the seed out of a definition, if its file is gone; return what is not as it was."""
    elements = amend.devices(root, "disk")
    gone_seeds = [
        element
        for element in elements
        if devicematch.is_seed(element) and _missing_file(disk.read(element), ()) is not None
    ]
    kept_elements = [element for element in elements if element not in gone_seeds]
    if gone_seeds:
        amend.put_devices(root, "disk", kept_elements)
    sentence = (
        "its seed is not kept, as it may hold a key: the guest has its identity only if it has "
        "booted before"
    )
    return [sentence] if gone_seeds else []


def _missing_file(vm_disk: disk.Disk, places: Collection[str]) -> str | None:
    """Return the file of a disk if it is neither there nor in the trash."""
    source = vm_disk.source or {}
    path = source.get("file") or source.get("dev")
    return None if path is None or path in places or os.path.exists(path) else path


def _refuse_gone(trashed: trash.TrashedVm, root: ET.Element, places: Mapping[str, Path]) -> None:
    """Raise StorageError if a part of a VM is gone."""
    gone_volumes = trashed.facts.gone or []
    reasons = [f"volume {volume} was removed for good" for volume in gone_volumes]
    for vm_disk in readdomain.disks(root):
        path = _missing_file(vm_disk, places)
        if path is not None and vm_disk.device not in _DRIVES:
            reasons.append(f"its disk {path} is gone")
    for described in readdomain.disk_sources(root):
        # A guest may have written an overlay's header into its raw disk.
        if described["path"] in places and described["format"] != "raw":
            reasons += [
                f"{base}, which {described['path']} is based on, is gone"
                for base in _missing_bases(described["path"], places)
            ]
    if reasons:
        raise StorageError(
            f"VM {readdomain.name(root)!r} is not brought back: {'; '.join(reasons)}; to have its "
            f"files alone: virt.trash_restore {shlex.quote(trashed.entry)}"
        )


def _missing_bases(path: str, places: Mapping[str, Path]) -> Iterator[str]:
    """Yield the files that a disk in the trash is based on, and that are gone."""
    # Relative names in its header are relative to where it was.
    for base in diskpaths.chain_below(str(places[path]), Path(path).parent):
        if base in places:
            yield from _missing_bases(base, places)
        elif not os.path.exists(base):
            yield base


def _refuse_unfit(conn: Any, settings: HostSettings, name: str, root: ET.Element) -> None:
    """Raise StorageError if this host cannot take a VM, with the reasons."""
    emulator = readdomain.emulator(root)
    reasons = fit.reasons(inspect.host_info(conn, settings), _requirements(name, root))
    if emulator and not os.path.exists(emulator):
        reasons.append(f"its emulator {emulator} is not there")
    if reasons:
        raise StorageError(
            f"VM {name!r} is not brought back: {'; '.join(reasons)}"
            f"{cures.format_cures(reasons, 'virt.undo', name)}"
        )


def _requirements(name: str, root: ET.Element) -> Requirements:
    """Return what a definition needs of this host; its files have their room already."""
    vcpus, memory_mib = readdomain.sizes(root)
    notes, links = readdomain.describe_notes(root), readdomain.links(root)
    pages, tune = readdomain.memory_from(root)
    system = readdomain.system(root)
    return Requirements(
        name=name,
        vcpus=vcpus,
        memory_mib=memory_mib,
        bridges=tuple(links["bridges"]),
        networks=tuple(links["networks"]),
        links=tuple(links["links"]),
        bridge_vlans=links["bridge_vlans"],
        domain_type=root.get("type"),
        arch=system.arch,
        machine=system.machine,
        affinity=tuple(notes["affinity"]),
        anti_affinity=tuple(notes["anti_affinity"]),
        stocks=tuple(sorted(resources.for_memory(memory_mib, pages, tune).items())),
    )
