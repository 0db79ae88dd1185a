"""
Move a disk of a VM into another file on its host, while the VM runs or not.

The disk of a running VM is copied by QEMU, which writes to both files until it is switched; that of
a stopped VM is copied as a file, and compared. The order of the steps is in
:mod:`saltvirt.core.protocol.diskprotocol`.
"""

import os
import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from saltvirt.core import filecontent, files, undo, wire, writelimit
from saltvirt.core.errors import BadArgument, LibvirtRefused, StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import DiskMoveFacts
from saltvirt.core.model import Disk
from saltvirt.core.protocol import diskprotocol, effects
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB, human
from saltvirt.libvirt import connect, hostfacts, reservations
from saltvirt.libvirt.domains import blockcopy, lifecycle, snapshots
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.placement import fit, resources
from saltvirt.storage import claims, diskpaths, ownermark, putaway
from saltvirt.storage.images import clone, qcow2, tool
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.diskmove.host import diskplan, settling
from saltvirt.vm.power.host import startlock
from saltvirt.vm.show.host import inspect
from saltvirt.vm.update.host import listed, live, single
from saltvirt.vm.update.host.single import Answer, Call
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import disk
from saltvirt.xml.edit import devicematch, readdomain
from saltvirt.xml.storage import pooldisk

# How often libvirt is asked how far its copy is, and how often that is reported.
_LOOK_S, _REPORT_S = 0.5, 5.0
# A copy of which nothing is written for so long is given up.
STALL_S = 600
_ENDLESS_S = 10 * 365 * 86400
_DRIVER = ("name", "type", "cache", "io", "discard", "detect_zeroes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """
    A disk's move, as it is planned.

    facts
        Those for the record; the disk's own file is ``facts.old``.
    is_live
        Whether the VM runs, so that libvirt makes the copy.
    driver
        The attributes of the disk's <driver>.
    backing_format
        The format of the file that the disk is based on.
    pool
        The pool of the new file, if its folder is one.
    allocated_bytes
        What the file takes now, and so what is copied at most.
    """

    facts: DiskMoveFacts
    is_live: bool
    driver: dict[str, str]
    backing_format: str
    pool: str | None
    allocated_bytes: int

    @property
    def is_there(self) -> bool:
        """Whether the disk lies in the pool already."""
        folders = [os.path.realpath(Path(path).parent) for path in (self.facts.old, self.facts.new)]
        return folders[0] == folders[1]

    @property
    def size_text(self) -> str:
        """What is copied, of the size of the disk."""
        return f"{human(self.allocated_bytes)} of {human(self.facts.size_bytes)}"


def move_disk(
    context: Context,
    call: Call,
    name: str,
    pool: str,
    *,
    other_hosts: OtherHostsUsage | None = None,
) -> Answer:
    """
    Move a disk into a pool, or into a folder.

    The answer is ``{"outcome", "device", "restart", "file", "old", "live", "bytes", "trash"}``.
    An interrupted move of the VM is settled first.

    name
        The disk's target, its file, or its name.
    pool
        A pool of files, or a folder.
    other_hosts
        The other hosts' answers about the disk's file. Defaults to no answers.
    """
    settings = context.settings
    with undo.on_signals(), connect.open_connection(settings, readonly=False) as conn:
        if not call.test:
            with reservations.host_lock(settings):
                settling.settle_one(conn, settings, call.vm)
        with ExitStack() as stack:
            lock = stack.enter_context(ExitStack())
            lock.enter_context(startlock.hold_definition_lock(conn, settings, call.vm))
            plan = _make_plan(context, conn, call.vm, name, pool)
            if plan.is_there:
                return _answer(
                    plan, f"is in {pool} already; nothing was moved", file=plan.facts.old
                )
            _refuse_needed(context, conn, call.vm, plan, other_hosts)
            commitments = inspect.read_timed_commitments(conn, settings)
            if call.test:
                _refuse_room(context, conn, plan, inspect.host_info(conn, settings, commitments))
                reservations.refuse_taken(settings, call.vm, [plan.facts.new])
                state_text = "while the VM runs" if plan.is_live else "while the VM is off"
                text = f"would be moved {_way(plan)}: {plan.size_text}, {state_text}"
                return _answer(plan, text, file=plan.facts.new)
            with reservations.host_lock(settings):
                _refuse_room(context, conn, plan, inspect.host_info(conn, settings, commitments))
                locked_record = stack.enter_context(_begin(context, call.vm, plan))
            lock.close()
            mover = _Mover(context, conn, call.vm, plan, locked_record, other_hosts)
            effects.run(diskprotocol.move(), mover)
        diskvolumes.refresh_folders(conn, [plan.facts.old, plan.facts.new])
    return _report(plan, mover)


def _way(plan: _Plan) -> str:
    return f"from {plan.facts.old} to {plan.facts.new}"


def _report(plan: _Plan, mover: "_Mover") -> Answer:
    """Return the answer of a move that is over."""
    state_text = "while the VM ran" if plan.is_live else "while the VM was off"
    text = f"moved {_way(plan)} {state_text}"
    if mover.kept_reason is not None:
        text += f"; its old file stays: {mover.kept_reason}"
    elif mover.entry is None:
        text += "; its old file was empty, and is removed"
    else:
        text += f"; its old file is in the trash ({mover.entry})"
    return _answer(plan, text, file=plan.facts.new, trash=mover.entry)


def _answer(plan: _Plan, text: str, *, file: str, trash: str | None = None) -> Answer:
    return {
        "outcome": f"disk {plan.facts.target} {text}",
        "device": plan.facts.target,
        "restart": False,
        "file": file,
        "old": plan.facts.old,
        "live": plan.is_live,
        "bytes": plan.allocated_bytes,
        "trash": trash,
    }


# The plan.


def _make_plan(context: Context, conn: Any, vm_name: str, name: str, pool: str) -> _Plan:
    """Return the plan of a move; raise if the disk cannot be moved."""
    vm = single.Vm.read(context, conn, vm_name)
    element = single.find_disk(vm, name, listed.DISK.list(vm.root))
    vm_disk, target = disk.read(element), listed.target_of(element)
    old = lifecycle.find_disk_file(conn, vm_disk.path or "")
    state = _read_state(vm, element, old)
    for reason in diskplan.find_obstacles(state):
        raise LibvirtRefused(
            f"{listed.DISK.describe(element)} of VM {vm_name!r} is not moved: {reason}"
        )
    folder, pool_name = _find_folder(context, conn, pool)
    sizes = diskpaths.measure(old, vm_disk.format)
    if sizes is None:
        raise StorageError(f"{old} cannot be read, so disk {target} is not moved")
    facts = DiskMoveFacts(
        uuid=lifecycle.uuid(conn, vm_name),
        paths=[str(folder / Path(old).name)],
        old=old,
        old_inode=os.stat(old).st_ino,
        target=target,
        format=vm_disk.format,
        size_bytes=int(sizes["virtual"]),
        pool=pool,
        backing=state.backing,
    )
    if pool_name is not None and not _is_on_same_file_system(folder, old):
        size_mib = diskplan.needed_mib(facts.size_bytes)
        facts = replace(facts, stocks={resources.pool(pool_name): size_mib})
    driver = vm_disk.driver or {}
    return _Plan(
        facts=facts,
        is_live=vm.running is not None,
        driver={key: value for key, value in driver.items() if key in _DRIVER},
        backing_format=state.backing_format or "",
        pool=pool_name,
        allocated_bytes=int(sizes["actual"]),
    )


def _read_state(vm: single.Vm, element: Any, path: str) -> diskplan.DiskState:
    """Return a disk as it is, by its definition and by the header of its file."""
    vm_disk, conn, name = disk.read(element), vm.conn, vm.name
    is_file = os.path.isfile(path) and not Path(path).is_symlink()
    header = qcow2.read(path) if is_file and vm_disk.format == "qcow2" else None
    return diskplan.DiskState(
        device=vm_disk.device,
        type=vm_disk.type,
        format=vm_disk.format,
        is_file=is_file,
        is_encrypted=readdomain.is_encrypted(element) or bool(header and header.is_encrypted),
        has_data_file=bool(header and header.has_data_file),
        has_snapshots=bool(header and header.has_snapshots),
        backing=header.backing_file if header else None,
        backing_format=header.backing_format if header else None,
        is_running=vm.running is not None,
        has_other_live=_has_other_live(vm, element),
        snapshots=snapshots.names(conn, name),
        checkpoints=name in lifecycle.list_domains_with_checkpoints(conn),
        is_saved=name in lifecycle.saved(conn),
        busy_targets=_find_busy(conn, vm),
    )


def _has_other_live(vm: single.Vm, element: Any) -> bool:
    """Return whether the running VM has another disk at the target of a disk."""
    if vm.running is None:
        return False
    running_disk = live.find_disk(vm.running, listed.target_of(element))
    return running_disk is None or (
        devicematch.content(running_disk) != devicematch.content(disk.read(element))
    )


def _find_busy(conn: Any, vm: single.Vm) -> list[str]:
    """Return the targets of the disks of a running VM that libvirt works on."""
    if vm.running is None:
        return []
    targets = [vm_disk.target["dev"] for vm_disk in readdomain.disks(vm.running) if vm_disk.source]
    return [target for target in targets if blockcopy.has_job(conn, vm.name, target)]


def _find_folder(context: Context, conn: Any, pool: str) -> tuple[Path, str | None]:
    """Return the folder that a disk is to go to, and its pool if that is one."""
    pools = hostfacts.pools(conn)
    kind = pools[pool]["type"] if pool in pools else pooldisk.FILES[0]
    if kind not in pooldisk.FILES:
        raise BadArgument(
            "pool",
            f"{pool!r} is of type {kind}, and a disk is moved into a pool of files: "
            f"{', '.join(pooldisk.FILES)}",
        )
    place = diskpaths.find_place(context.settings, pools, Disk(name=pool, target="", pool=pool))
    if not place.folder.is_dir():
        raise StorageError(f"pool {pool!r} has no folder {place.folder} on this host")
    return place.folder, place.pool


def _is_on_same_file_system(folder: Path, path: str) -> bool:
    return folder.stat().st_dev == os.stat(path).st_dev


def _refuse_needed(
    context: Context,
    conn: Any,
    vm_name: str,
    plan: _Plan,
    other_hosts: OtherHostsUsage | None,
) -> None:
    """Raise an error, before any change, if anything else needs the disk's file where it is."""
    facts = plan.facts
    words = shlex.join([vm_name, facts.target, facts.pool])
    ask_all = f"salt-run virt.move_disk {words}"
    putaway.refuse_needed(conn, context.settings, facts.old, vm_name, ask_all, other_hosts)


def _refuse_room(context: Context, conn: Any, plan: _Plan, info: Any) -> None:
    """Raise StorageError if there is no room for the disk; call it under the host's lock."""
    settings, facts = context.settings, plan.facts
    folder = Path(facts.new).parent
    left_mib_by_stock = fit.stocks_left(info)
    stock = next(iter(facts.stocks), None)
    left_mib = left_mib_by_stock.get(stock, 0) if stock else 0
    is_in_images = diskpaths.is_below(str(folder), [settings.images])
    if stock is None and is_in_images and not _is_on_same_file_system(folder, facts.old):
        stock, left_mib = "the image folder", fit.free(info)["disk_mib"]
    state = diskplan.RoomState(
        folder=str(folder),
        stock=stock,
        left_mib=left_mib,
        size_bytes=facts.size_bytes,
        allocated_bytes=plan.allocated_bytes,
        free_bytes=writelimit.read_space(folder)[1],
        reserve_bytes=settings.disk_reserve_mib * MIB,
    )
    reason = diskplan.find_lack_of_room(state)
    if reason is not None:
        raise StorageError(f"disk {facts.target} is not moved: {reason}")


@contextmanager
def _begin(context: Context, vm_name: str, plan: _Plan) -> Iterator[records.LockedRecord]:
    """Yield the place of the record; call it under the host's lock, which checks all paths."""
    settings, facts = context.settings, plan.facts
    busy_message = f"a disk of VM {vm_name!r} is being moved by another job"
    purpose = diskprotocol.PURPOSE
    with reservations.open_record(settings, purpose, vm_name, busy_message) as locked_record:
        if locked_record.record is not None:
            raise StorageError(
                f"an interrupted move of a disk of VM {vm_name!r} cannot be settled; the minion's "
                f"log says why: {facts.old}"
            )
        reservations.refuse_taken(settings, vm_name, facts.paths)
        token = uuid.uuid4().hex
        # The mark first: a file that another host makes there is not removed by the record.
        claims.announce(facts.new, token)
        try:
            locked_record.begin(token, diskprotocol.COPYING, **wire.plain(facts))
        except BaseException:
            claims.complete(facts.new, token)
            raise
        yield locked_record


class _CopyMeter(writelimit.Meter):
    """Limits of a copy by room alone; each check reports how far the copy is."""

    def __init__(self, room: writelimit.Room, path: str, tell: Callable[[int], None]) -> None:
        super().__init__(room, path, Path(path).parent)
        self._tell = tell

    def check(self, written_bytes: int) -> None:
        """Stop a copy that leaves VMs too little room."""
        super().check(written_bytes)
        self._tell(written_bytes)


class _Mover(settling.DiskSettler):
    """Performs the effects by which a disk is moved, and those by which a failure is settled."""

    def __init__(
        self,
        context: Context,
        conn: Any,
        vm_name: str,
        plan: _Plan,
        locked_record: records.LockedRecord,
        other_hosts: OtherHostsUsage | None,
    ) -> None:
        super().__init__(
            conn,
            context.settings,
            locked_record,
            plan.facts,
            host_lock=partial(reservations.host_lock, context.settings),
            other_hosts=other_hosts,
        )
        self._context, self._vm, self._plan = context, vm_name, plan
        self._signature: list[int] = []
        self._reported_at = 0.0

    def begin(self, phase: str) -> None:
        """Check that the record has begun: that was done under the locks of the plan."""
        if self._held.now.phase != phase:
            raise StorageError(f"the move of a disk of VM {self._vm!r} is not on record")

    def make(self) -> None:
        """Make the new file: for libvirt's copy an empty disk, which only it writes to."""
        facts, token = self._facts, self._held.now.token
        claims.take(facts.new, token)
        if self._plan.is_live:
            backing = (facts.backing, self._plan.backing_format) if facts.backing else ()
            tool.create(facts.new, facts.size_bytes, facts.format, *backing)
            files.restrict(facts.new)
        ownermark.mark(facts.new, self._vm, facts.uuid)
        claims.complete(facts.new, token)

    def copy(self) -> None:
        """Copy the disk, until both files are the same."""
        self._tell(0, self._plan.allocated_bytes)
        if self._plan.is_live:
            self._copy_live()
        else:
            self._copy_file()

    def _tell(self, done_bytes: int, total_bytes: int) -> None:
        """Report how far the copy is, now and then."""
        now = time.monotonic()
        if self._reported_at and now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        percent = f"{100 * done_bytes // total_bytes} % of " if total_bytes else ""
        text = f"disk {self._facts.target}: {percent}{human(total_bytes)}"
        self._context.progress("Copying", detail=text)

    def _copy_live(self) -> None:
        """Have libvirt copy the disk of the running VM, until QEMU writes to both files at once."""
        conn, facts = self._conn, self._facts
        driver = {"name": "qemu", **self._plan.driver, "type": facts.format}
        target, source = {"dev": facts.target}, {"file": facts.new}
        copied_disk = disk.Disk(type="file", driver=driver, source=source, target=target)
        xml = to_text(disk.build(copied_disk))
        is_shallow = facts.backing is not None
        blockcopy.begin(conn, self._vm, facts.target, xml, is_shallow=is_shallow)
        progressed_at, last_done_bytes = time.monotonic(), -1
        while True:
            copy = blockcopy.read_copy(conn, self._vm, facts.target)
            if copy is None:
                raise LibvirtRefused(self._ended_message())
            if copy.is_ready:
                return
            if copy.done_bytes != last_done_bytes:
                progressed_at, last_done_bytes = time.monotonic(), copy.done_bytes
            if time.monotonic() - progressed_at > STALL_S:
                raise LibvirtRefused(
                    f"nothing of disk {facts.target} was copied for {STALL_S} s; look at the "
                    f"storage of {facts.new}"
                )
            self._refuse_full()
            self._tell(copy.done_bytes, copy.total_bytes)
            time.sleep(_LOOK_S)

    def _ended_message(self) -> str:
        """Return why there is no copy of a disk any more."""
        if not lifecycle.is_active(self._conn, self._vm):
            return f"VM {self._vm!r} has stopped, so its disk was not moved; run it again"
        return (
            f"libvirt's copy of disk {self._facts.target} has ended before it was complete; see "
            f"its log, and the room in {Path(self._facts.new).parent}"
        )

    def _refuse_full(self) -> None:
        """Raise StorageError if the copy leaves other VMs too little room."""
        folder = Path(self._facts.new).parent
        free_bytes, reserve_bytes = writelimit.read_space(folder)[1], self._reserve_bytes
        if free_bytes < reserve_bytes:
            raise StorageError(
                f"no room for disk {self._facts.target} in {folder}: {human(free_bytes)} are free, "
                f"and {human(reserve_bytes)} are kept for VMs (virt:disk_reserve_mib)"
            )

    @property
    def _reserve_bytes(self) -> int:
        return self._settings.disk_reserve_mib * MIB

    def _copy_file(self) -> None:
        """Copy the file of a stopped VM without its holes, and compare the two files."""
        facts = self._facts
        self._refuse_open(facts.old)
        self._signature = filecontent.signature(facts.old)
        room = writelimit.Room(
            max_bytes=1 << 62, reserve_bytes=self._reserve_bytes, limit_s=_ENDLESS_S
        )
        meter = _CopyMeter(
            room, facts.new, lambda done_bytes: self._tell(done_bytes, self._plan.allocated_bytes)
        )
        try:
            clone.copy(facts.old, facts.new, meter, files.open_by_trusted_links)
            files.sync_files([facts.new])
            self._context.progress("Checking", detail=f"disk {facts.target}")
            is_same = filecontent.digest(facts.old) == filecontent.digest(facts.new)
        except OSError as exc:
            raise files.write_error(f"cannot copy {facts.old} to {facts.new}", exc) from exc
        if not is_same:
            raise StorageError(f"{facts.new} differs from {facts.old} after the copy")
        self._refuse_used()

    def _refuse_used(self) -> None:
        """Raise LibvirtRefused if the VM, or its file, was used since the copy began."""
        if lifecycle.is_active(self._conn, self._vm):
            raise LibvirtRefused(f"VM {self._vm!r} was started while its disk was copied")
        self._refuse_open(self._facts.old)
        if filecontent.signature(self._facts.old) != self._signature:
            raise LibvirtRefused(f"disk {self._facts.target} was used while it was copied")

    def switch(self) -> None:
        """Have the VM go on in the new file: the running one, and its definition."""
        with startlock.hold_start_lock(self._settings, self._vm):
            if self._plan.is_live:
                self._context.progress("Switching")
                blockcopy.pivot(self._conn, self._vm, self._facts.target)
            else:
                self._refuse_used()
                self._refuse_redefined()
            self.define()

    def _refuse_redefined(self) -> None:
        """Raise LibvirtRefused if the definition names another file by now."""
        root = parse(lifecycle.inactive_xml(self._conn, self._vm))
        if self._which(to_text(root)) != diskprotocol.OLD:
            raise LibvirtRefused(f"disk {self._facts.target} was changed while it was copied")
