"""
Settle the moves of disks that died on this host.

A move is undone as long as the VM has the old file, and finished once it has the new one; see
:mod:`saltvirt.core.protocol.diskprotocol`.
"""

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import DiskMoveFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import diskprotocol, effects
from saltvirt.core.protocol.diskprotocol import NEW, OLD, OTHER, DiskPlace
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import blockcopy, changing, lifecycle
from saltvirt.storage import claims, definitionfiles, diskpaths, door, policies, trash, usage
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import disk
from saltvirt.xml.edit import amend, devicematch

log = logging.getLogger(__name__)
_REASON = "virt.move_disk"


def settle_one(conn: Any, settings: HostSettings, name: str) -> bool:
    """Settle the dead move of a VM's disk under the host's lock; return whether there was one."""
    records_folder = reservations.folder(settings)
    if records.read_record(records_folder, diskprotocol.PURPOSE, name) is None:
        return False
    with records.hold_record(records_folder, diskprotocol.PURPOSE, name) as locked_record:
        if locked_record is None or locked_record.record is None:
            return False
        # A crash must not revert a definition after a file went by it.
        definitionfiles.settle_definitions()
        facts = locked_record.now.read(DiskMoveFacts)
        settler = DiskSettler(conn, settings, locked_record, facts, host_lock=nullcontext)
        step = effects.run(diskprotocol.settle(locked_record.now.phase), settler)
        log.warning("the move of disk %s of VM %s was cut off: %s", facts.target, name, step)
        if step == diskprotocol.FORGET:
            log.warning("these files stay, as the disk was changed since: %s", settler.both_files)
    return True


def find_disk(root: ET.Element, target: str) -> ET.Element | None:
    """Return the <disk> at a target of a <domain>; None if there is none."""
    elements = amend.devices(root, "disk")
    matches = (item for item in elements if disk.read(item).target.get("dev") == target)
    return next(matches, None)


def with_file(element: ET.Element, path: str) -> ET.Element:
    """Return a copy of a <disk> that lies in another file."""
    vm_disk = disk.read(element)
    old_source = vm_disk.source or {}
    policy = {key: value for key, value in old_source.items() if key == "startupPolicy"}
    source = {"file": path, **policy}
    return devicematch.amend_disk_copy(element, replace(vm_disk, type="file", source=source))


class DiskSettler:
    """Performs the effects by which the move of a disk is settled."""

    def __init__(
        self,
        conn: Any,
        settings: HostSettings,
        locked_record: records.LockedRecord | None,
        facts: DiskMoveFacts,
        *,
        host_lock: Callable[[], AbstractContextManager[Any]],
        other_hosts: OtherHostsUsage | None = None,
    ) -> None:
        self._conn, self._settings = conn, settings
        self._record, self._facts = locked_record, facts
        self._host_lock, self._other_hosts = host_lock, other_hosts
        # The entry of the trash with the old file, and why the old file stays where it is.
        self.entry: str | None = None
        self.kept_reason: str | None = None

    @property
    def both_files(self) -> str:
        """The two files, for messages."""
        return f"{self._facts.old}, {self._facts.new}"

    @property
    def _held(self) -> records.LockedRecord:
        if self._record is None:
            raise StorageError("the move of the disk is not on record")
        return self._record

    def _name(self) -> str | None:
        """Return the name that the VM has now; None if it is gone."""
        return lifecycle.name_of(self._conn, self._facts.uuid)

    def _existing_name(self) -> str:
        name = self._name()
        if name is None:
            raise StorageError(f"VM {self._held.name!r} is not on this host any more")
        return name

    # The effects.

    def look(self) -> DiskPlace:
        """Return what libvirt says of the VM's disk."""
        name, conn = self._name(), self._conn
        if name is None:
            return DiskPlace(live=None, definition=None)
        copy = blockcopy.read_copy(conn, name, self._facts.target)
        live = lifecycle.xml(conn, name) if lifecycle.is_active(conn, name) else None
        return DiskPlace(
            live=None if live is None else self._which(live),
            definition=self._which(lifecycle.inactive_xml(conn, name)),
            is_mirrored=copy is not None and _is_same(copy.file, self._facts.new),
        )

    def _which(self, xml: str) -> str:
        """Return which file a <domain> has at the disk's target."""
        element = find_disk(parse(xml), self._facts.target)
        location = None if element is None else disk.read(element).path
        file = lifecycle.find_disk_file(self._conn, location or "")
        paths_by_name = {OLD: self._facts.old, NEW: self._facts.new}
        names = (name for name, path in paths_by_name.items() if _is_same(file, path))
        return next(names, OTHER)

    def abort(self) -> None:
        """Give up libvirt's copy."""
        blockcopy.abort(self._conn, self._existing_name(), self._facts.target)

    def restore(self) -> None:
        """Have the definition name the old file, as the running VM does."""
        self._define(self._facts.old)

    def define(self) -> None:
        """Have the definition name the new file."""
        self._define(self._facts.new)

    def _define(self, path: str) -> None:
        conn, name, target = self._conn, self._existing_name(), self._facts.target
        root = parse(changing.definition(conn, name))
        element = find_disk(root, target)
        if element is None:
            raise StorageError(f"VM {name!r} has no disk {target} any more")
        if not _is_same(lifecycle.find_disk_file(conn, disk.read(element).path or ""), path):
            elements = amend.devices(root, "disk")
            elements[elements.index(element)] = with_file(element, path)
            amend.put_devices(root, "disk", elements)
            lifecycle.define(conn, to_text(root))
        definitionfiles.settle_definitions()

    def check(self) -> None:
        """Read the new file back, and what names it; raise StorageError if anything is wrong."""
        facts, place = self._facts, self.look()
        if place.definition != NEW or place.live not in (None, NEW):
            raise StorageError(
                f"VM {self._held.name!r} does not have {facts.new} as disk {facts.target}, in its "
                f"definition or while it runs; {facts.old} stays"
            )
        try:
            files.sync_files([facts.new])
        except OSError as exc:
            raise files.write_error(f"cannot write {facts.new}", exc) from exc
        for reason in self._find_flaws(is_live=place.live is not None):
            raise StorageError(f"{facts.new} {reason}; {facts.old} stays")

    def _find_flaws(self, *, is_live: bool) -> list[str]:
        """Return what is wrong with the new file."""
        facts = self._facts
        sizes = diskpaths.measure(facts.new, facts.format)
        size_bytes = 0 if sizes is None else int(sizes["virtual"])
        if is_live:
            target_bytes = changing.disk_size(self._conn, self._existing_name(), facts.target)
            size_bytes = min(size_bytes, target_bytes)
        if size_bytes < facts.size_bytes:
            return [f"has {size_bytes:,} bytes, and the disk had {facts.size_bytes:,}"]
        # A guest can write an overlay's header into a raw disk.
        chain = diskpaths.chain_below(facts.new) if facts.format != "raw" else []
        backing = chain[0] if chain else None
        if backing != facts.backing:
            return [f"is based on {backing or 'nothing'}, and not on {facts.backing or 'nothing'}"]
        return []

    def enter(self, phase: str) -> None:
        """Record the next phase."""
        self._held.enter(phase)

    def put_away(self) -> None:
        """Move the old file into the trash; if anything needs it, it stays, and that is noted."""
        path = self._facts.old
        with self._host_lock():
            if not self._is_old_there():
                return
            verdict = self._index(path).verdict(policies.DELETE, path)
            try:
                self._refuse_open(path)
                self.entry = self._put(verdict)
            except (StorageError, OSError) as error:
                self.kept_reason = str(error)
                log.warning("%s stays: %s", path, error)

    def _is_old_there(self) -> bool:
        """Return whether the old file is still there; another one may have its path by now."""
        try:
            return os.lstat(self._facts.old).st_ino == self._facts.old_inode
        except FileNotFoundError:
            return False

    def remove(self, is_kept: bool) -> None:
        """
        Remove the new file; raise StorageError if anything uses it.

        is_kept
            Whether it goes into the trash.
        """
        path, token = self._facts.new, self._held.now.token
        with self._host_lock():
            if claims.is_own(path, token) and os.path.lexists(path):
                self._refuse_open(path)
                verdict = self._index(path).verdict(policies.UNDO, path)
                # Another host may make a file of that name before the record ends.
                claims.retake(path, token)
                if is_kept:
                    self._put(verdict)
                else:
                    door.remove(verdict)

    def end(self) -> None:
        """End the record."""
        token = self._held.now.token
        with self._host_lock():
            reservations.end(self._settings, self._held)
            claims.complete(self._facts.new, token)

    def _index(self, path: str) -> usage.Index:
        return usage.index(
            self._conn,
            self._settings,
            record_exempt=[self._held.name],
            removed_files=[path],
            beside_files=[path],
            other_hosts=self._other_hosts,
        )

    def _put(self, verdict: Verdict) -> str | None:
        """Move a file into the trash; return the entry, None for an empty file."""
        settings, facts = self._settings, self._facts
        name, days = self._held.name, trash.settled_days(settings)
        with trash.fill_trash(settings, name, reason=_REASON, uuid=facts.uuid, days=days) as put:
            put(verdict)
        return put.entry if verdict.path in put.files else None

    @staticmethod
    def _refuse_open(path: str) -> None:
        if diskpaths.is_open(path):
            raise StorageError(f"a program has {path} open, a VM mostly; stop that first")


def _is_same(first: str, second: str) -> bool:
    """Return whether two paths lead to one place."""
    return os.path.realpath(first) == os.path.realpath(second)
