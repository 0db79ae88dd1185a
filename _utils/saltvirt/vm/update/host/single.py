"""
Change one disk, drive or NIC of a VM, by the machinery of ``virt.update``; all others stay.

Each function reads the VM under its lock, and has :mod:`saltvirt.vm.update.host.apply` make the
change. All of them return ``{"outcome": one line, "device": a disk's target or a NIC's MAC,
"restart": whether the change waits for the VM's next start}``, and in a test ``diff``. Those of
disks have ``file``, too: a path, ``POOL/VOLUME``, or None.
"""

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.core import nics
from saltvirt.core.errors import BadArgument, LibvirtRefused, StorageError
from saltvirt.core.model import Disk, Nic, host_need
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB, human, size_bytes
from saltvirt.libvirt import connect, hostfacts
from saltvirt.libvirt.domains import changing, lifecycle, snapshots
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.storage import putaway, trash
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.show.host import inspect
from saltvirt.vm.update.host import apply, content, disks, listed, live, request
from saltvirt.vm.update.host.request import Request, Single
from saltvirt.xml import parse
from saltvirt.xml.domain import disk
from saltvirt.xml.edit import devicematch

Answer = dict[str, Any]
_Decide = Callable[["Vm"], Request]
_RESTART = "; it takes effect at the VM's next start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    What all these commands have.

    live
        Whether to change the running VM, too.
    test
        Whether to change nothing, and say what would be done.
    """

    vm: str
    live: bool = True
    test: bool = False

    def done(self, word: str) -> str:
        """Return a participle, or in a test what would be done."""
        return f"would be {word}" if self.test else word


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """A VM as it is, under its lock; ``running`` is None if it is stopped."""

    context: Context
    conn: Any
    name: str
    root: ET.Element
    running: ET.Element | None

    @classmethod
    def read(cls, context: Context, conn: Any, name: str) -> "Vm":
        """Return a VM as libvirt has it; raise LibvirtRefused if it has no definition."""
        root = parse(changing.definition(conn, name))
        running_xml = changing.running(conn, name)
        running_root = None if running_xml is None else parse(running_xml)
        return cls(context=context, conn=conn, name=name, root=root, running=running_root)

    @property
    def disk_elements(self) -> list[ET.Element]:
        """The disks and drives of the definition and of the running VM, without the seed."""
        return [
            element
            for element in content.list_candidates(self.root, self.running)
            if not devicematch.is_seed(element)
        ]

    @property
    def nics_by_mac(self) -> dict[str, ET.Element]:
        """``{MAC: <interface>}`` of the definition and of the running VM."""
        running_nics = {} if self.running is None else listed.NIC.by_name(self.running)
        return {**running_nics, **listed.NIC.by_name(self.root)}

    @property
    def matcher(self) -> disks.Matcher:
        """What tells which disk a name means."""
        return content.make_matcher(self.context, self.conn, self.root, self.disk_elements)

    def request(self, call: Call, **options: Any) -> Request:
        """Return a request of ``virt.update`` with some lists."""
        return request.from_call(
            self.context.settings, self.name, {**options, "live": call.live, "test": call.test}
        )


def disk_add(context: Context, call: Call, name: str, options: Mapping[str, Any]) -> Answer:
    """
    Give a VM one disk or drive more; the answer's ``made`` tells whether its content is new.

    options
        The keys of a disk in ``virt.update``, except the name.
    """

    def decide(vm: Vm) -> Request:
        out = vm.request(call, disks=[{**options, "name": name}])
        (requested,) = out.disks or ()
        element = vm.matcher.find_same(requested, vm.disk_elements)
        if element is not None:
            raise BadArgument("disk", f"VM {call.vm!r} has {listed.DISK.describe(element)} already")
        return replace(out, single=Single())

    outcome = _run(context, call, decide)
    new_disks = listed.DISK.by_name(outcome.root)
    (target,) = set(new_disks).difference(listed.DISK.by_name(outcome.old_root))
    vm_disk = disk.read(new_disks[target])
    _refuse_failed(outcome, f"{vm_disk.device} {target} is in the definition of VM {call.vm!r}; ")
    is_made = bool(outcome.disks.files or any(new.size_bytes for new in outcome.disks.volumes))
    is_drive = vm_disk.device in devicematch.DRIVES
    text = f"{vm_disk.device} {target} {call.done('added')}"
    if vm_disk.path is not None:
        text += f": {vm_disk.path}{'' if is_made or is_drive else ' (it was there already)'}"
    return _answer(call, outcome, text, target, file=vm_disk.path, made=is_made)


def disk_grow(context: Context, call: Call, name: str, size: object) -> Answer:
    """
    Grow a disk of a VM; the answer's ``bytes_before`` and ``bytes`` are its sizes.

    size
        The new size, or what is added: ``+10G``.
    """
    sizes: list[int] = []
    targets: list[tuple[str, str | None]] = []

    def decide(vm: Vm) -> Request:
        element = find_disk(vm, name, listed.DISK.list(vm.root))
        vm_disk, label = disk.read(element), listed.DISK.describe(element)
        target = listed.target_of(element)
        before = content.measure_disk(vm.conn, vm.name, element, vm.matcher.pools, vm.running)
        if vm_disk.device != "disk" or before is None:
            raise BadArgument("disk", f"the size of {label} cannot be changed on this host")
        after = _parse_size(size, before)
        if after < before:
            raise BadArgument("size", f"{label} has {human(before)}: a disk is never made smaller")
        sizes[:], targets[:] = [before, after], [(target, vm_disk.path)]
        requested = Disk(
            name=name,
            target=target,
            size_mib=max(1, -(-after // MIB)) if after > before else None,
            bus=vm_disk.target.get("bus", ""),
            is_sized_by_user=True,
        )
        return replace(
            vm.request(call),
            disks=(requested,),
            with_size=frozenset([name]),
            single=Single(name=target),
        )

    outcome = _run(context, call, decide)
    _refuse_failed(outcome, "")
    (before, after), ((target, path),) = sizes, targets
    if after > before and target not in outcome.disks.growth:
        raise LibvirtRefused(
            f"disk {target} ({path}) is a volume, and stays as it is; grow it by virt.volume_resize"
        )
    after = -(-after // MIB) * MIB if after > before else before
    text = (
        f"disk {target} {call.done('grown')} from {human(before)} to {human(after)}; the guest "
        "must then grow its partition and its file system"
        if after > before
        else f"disk {target} has {human(before)} already; nothing was changed"
    )
    return _answer(call, outcome, text, target, file=path, bytes_before=before, bytes=after)


def _parse_size(size: object, before: int) -> int:
    """Return the new bytes of a disk; a size with a plus is added to those before."""
    text = str(size).strip()
    is_more = text.startswith("+")
    amount = size_bytes(text[1:] if is_more else size)
    if is_more and not amount:
        raise BadArgument("size", f"{size!r} adds nothing")
    return before + amount if is_more else amount


def disk_remove(
    context: Context,
    call: Call,
    name: str,
    *,
    file: bool = False,
    other_hosts: OtherHostsUsage | None = None,
) -> Answer:
    """
    Detach a disk or a drive; its content stays.

    The answer's ``remove`` is the command that removes the content, None if this host knows none;
    ``trash`` is the entry of the trash, None if the content stays.

    file
        Whether the disk's file goes into the trash.
    other_hosts
        The other hosts' answers about the file. Defaults to no answers.
    """
    removed: list[ET.Element] = []

    def decide(vm: Vm) -> Request:
        element = find_disk(vm, name, vm.disk_elements)
        _refuse_another_at_target(vm, element)
        removed[:] = [element]
        if file:
            _refuse_unremovable(vm, call, element, other_hosts)
        single = Single(name=listed.target_of(element))
        return replace(vm.request(call), disks=(), single=single, detach=True)

    outcome = _run(context, call, decide)
    vm_disk, target = disk.read(removed[0]), listed.target_of(removed[0])
    device = f"{vm_disk.device} {target}"
    _refuse_failed(outcome, f"{device} is out of the definition of VM {call.vm!r}; ")
    text, entry, remove = f"{device} {call.done('removed')}", None, None
    if file and call.test:
        text += f"; its file {vm_disk.path} would go into the trash"
    elif file:
        entry = _put_away(context, device, str(vm_disk.path), other_hosts)
        text += (
            f"; its file {vm_disk.path} is in the trash; undo: salt-run virt.trash_restore "
            f"{_host(context)} {shlex.quote(entry)}"
            if entry
            else f"; its file {vm_disk.path} was empty, and is removed"
        )
    else:
        remove = _removal(context, vm_disk)
        text += f"; {vm_disk.path} stays" if vm_disk.path else ""
        text += f"; to remove that: {remove}" if remove else ""
    more = {"file": vm_disk.path, "trash": entry, "remove": remove}
    return _answer(call, outcome, text, target, **more)


def _refuse_another_at_target(vm: Vm, element: ET.Element) -> None:
    """Raise LibvirtRefused if the running VM has another disk at the target of a disk."""
    target, vm_disk = listed.target_of(element), disk.read(element)
    running_disk = None if vm.running is None else live.find_disk(vm.running, target)
    if running_disk is None or vm_disk.device in devicematch.DRIVES:
        return
    if devicematch.content(running_disk) != devicematch.content(vm_disk):
        raise LibvirtRefused(
            f"the running VM {vm.name!r} has another disk at {target} ({running_disk.path}) than "
            "its definition; stop the VM first"
        )


def _refuse_unremovable(
    vm: Vm, call: Call, element: ET.Element, other_hosts: OtherHostsUsage | None
) -> None:
    """Raise an error, before any change, if a disk's file cannot go into the trash now."""
    vm_disk, label = disk.read(element), listed.DISK.describe(element)
    if vm_disk.device != "disk" or vm_disk.type not in ("file", "volume"):
        raise BadArgument("file", f"{label} is no file of the VM; leave out file=True")
    if vm_disk.type == "volume":
        raise BadArgument(
            "file", f"{label} is a volume: leave out file=True, then delete it by its pool"
        )
    has_it = vm.running is not None and live.find_target(vm.running, vm_disk) is not None
    if has_it and not (call.live and live.is_hotpluggable(vm_disk)):
        raise BadArgument(
            "file", f"the running VM {vm.name!r} keeps {label} until it stops; stop it first"
        )
    if snapshots.names(vm.conn, vm.name):
        raise BadArgument(
            "file",
            f"VM {vm.name!r} has snapshots, which may need {label}; delete them first "
            "(virt.delete_snapshots), or leave out file=True",
        )
    if vm.name in lifecycle.saved(vm.conn):
        raise BadArgument(
            "file",
            f"VM {vm.name!r} has a saved state, which needs {label}; start the VM first, or leave "
            "out file=True",
        )
    target = shlex.quote(listed.target_of(element))
    command = f"salt-run virt.disk_remove {shlex.quote(vm.name)} {target} file=True"
    putaway.refuse_needed(vm.conn, vm.context.settings, vm_disk.path, vm.name, command, other_hosts)


def _put_away(
    context: Context, device: str, path: str, other_hosts: OtherHostsUsage | None
) -> str | None:
    """Move a detached disk's file into the trash; return the entry, None for an empty file."""
    settings = context.settings
    try:
        with connect.open_connection(settings, readonly=True) as conn:
            entry = str(putaway.put(conn, settings, path, other_hosts)["entry"])
    except (BadArgument, StorageError) as error:
        # Not AskAll itself: the next call would find no such disk any more.
        raise StorageError(f"{device} is removed, but its file stays: {error}") from None
    # The trash keeps no file that is a single hole.
    return entry if any(record.name == entry for record in trash.read_entries(settings)) else None


def _removal(context: Context, vm_disk: disk.Disk) -> str | None:
    """Return the command that removes a detached disk's content; None if there is none."""
    if vm_disk.path is None or vm_disk.device in devicematch.DRIVES:
        return None
    if vm_disk.type == "file":
        return f"salt-run virt.trash_put {_host(context)} {shlex.quote(vm_disk.path)}"
    try:
        with connect.open_connection(context.settings, readonly=True) as conn:
            volume = diskvolumes.find(conn, vm_disk)
    except StorageError:
        return None
    if volume is None:
        return None
    names = f"{shlex.quote(volume.pool)} {shlex.quote(volume.volume)}"
    return f"salt-run virt.volume_delete {_host(context)} {names}"


def _host(context: Context) -> str:
    return shlex.quote(str(context.opts.get("id", "HOST")))


def nic_add(context: Context, call: Call, name: str | None, options: Mapping[str, Any]) -> Answer:
    """
    Give a VM one NIC more.

    name
        Its name, of which its MAC is made; None for the first free one of ``eth0``, ``eth1``, …
    options
        The keys of a NIC in ``virt.update``, except the name.
    """
    macs: list[str] = []

    def decide(vm: Vm) -> Request:
        nic_name = name or _free_nic_name(vm)
        out = vm.request(call, interfaces=[{**options, "name": nic_name}])
        (requested,) = out.interfaces or ()
        element = vm.nics_by_mac.get(requested.mac)
        if element is not None:
            raise BadArgument(
                "nic",
                f"VM {call.vm!r} has {listed.NIC.describe(element)} already; give another name or "
                "mac",
            )
        _refuse_unconnected(vm.conn, requested)
        macs[:] = [requested.mac]
        return replace(out, single=Single(name=requested.mac))

    outcome = _run(context, call, decide)
    (mac,) = macs
    label = listed.NIC.describe(listed.NIC.by_name(outcome.root)[mac])
    _refuse_failed(outcome, f"{label} is in the definition of VM {call.vm!r}; ")
    return _answer(call, outcome, f"{label} {call.done('added')}", mac)


def _refuse_unconnected(conn: Any, nic: Nic) -> None:
    """Raise BadArgument if the host lacks what a NIC is on: the VM could not start with it."""
    need = host_need(nic.type, is_switched=nic.is_switched)
    if need is None or nic.on is None:
        return
    readers: dict[str, Callable[[], list[str]]] = {
        "bridges": inspect.bridges,
        "links": inspect.links,
        "networks": lambda: list(hostfacts.networks(conn)),
    }
    names = readers[need]()
    if nic.on not in names:
        kind = need.removesuffix("s")
        raise BadArgument(
            "nic",
            f"this host has no {kind} {nic.on}, and the VM could not start; it has: "
            f"{', '.join(sorted(names)) or 'none'}",
        )


def _free_nic_name(vm: Vm) -> str:
    count = len(vm.nics_by_mac)
    names = (f"eth{number}" for number in range(count + 1))
    return next(name for name in names if nics.mac_for(vm.name, name) not in vm.nics_by_mac)


def nic_remove(context: Context, call: Call, name: str) -> Answer:
    """
    Remove a NIC of a VM.

    name
        Its MAC; or its name, if its MAC was made of that.
    """
    labels: list[tuple[str, str]] = []

    def decide(vm: Vm) -> Request:
        macs = (name.lower(), nics.mac_for(vm.name, name))
        mac = next((mac for mac in macs if mac in vm.nics_by_mac), None)
        if mac is None:
            nic_texts = ", ".join(map(listed.NIC.describe, vm.nics_by_mac.values()))
            raise BadArgument(
                "nic", f"VM {vm.name!r} has no {name!r}; it has {nic_texts or 'none'}"
            )
        labels[:] = [(mac, listed.NIC.describe(vm.nics_by_mac[mac]))]
        return replace(vm.request(call), interfaces=(), single=Single(name=mac), detach=True)

    outcome = _run(context, call, decide)
    ((mac, label),) = labels
    _refuse_failed(outcome, f"{label} is out of the definition of VM {call.vm!r}; ")
    return _answer(call, outcome, f"{label} {call.done('removed')}", mac)


def eject(context: Context, call: Call, drive: str | None) -> Answer:
    """
    Take the medium out of a drive; the answer's ``file`` is the medium that was in it.

    drive
        As for :func:`insert`. Defaults to the only drive with a medium.
    """
    return _change_medium(context, call, drive, None)


def insert(context: Context, call: Call, medium: str, drive: str | None) -> Answer:
    """
    Put a medium into a drive, in the place of the present one.

    medium
        A path on the host, or a URL, as ``source_file`` of a drive in ``virt.update``.
    drive
        The drive's target, or its medium. Defaults to the only drive, or the only empty one.
    """
    return _change_medium(context, call, drive, medium)


def _change_medium(context: Context, call: Call, drive: str | None, medium: str | None) -> Answer:
    drives: list[tuple[str, str | None]] = []

    def decide(vm: Vm) -> Request:
        element = _find_drive(vm, drive, is_empty=medium is not None)
        vm_disk, target = disk.read(element), listed.target_of(element)
        drives[:] = [(target, vm_disk.path)]
        entry = {"name": target, "device": vm_disk.device, "source_file": medium}
        out = vm.request(call, disks=[entry])
        bus = vm_disk.target.get("bus", "")
        requested = tuple(replace(item, target=target, bus=bus) for item in out.disks or ())
        return replace(out, disks=requested, with_bus=frozenset(), single=Single(name=target))

    outcome = _run(context, call, decide)
    ((target, old_path),) = drives
    _refuse_failed(outcome, f"drive {target} is changed in the definition of VM {call.vm!r}; ")
    path = disk.read(listed.DISK.by_name(outcome.root)[target]).path
    if not apply.is_changed(outcome.answer):
        text = f"drive {target} has {path or 'no medium'} already; nothing was changed"
    elif medium is None:
        text = f"drive {target}: {old_path or 'its medium'} {call.done('ejected')}"
    else:
        replaced = f" in place of {old_path}" if old_path and old_path != path else ""
        text = f"drive {target}: {path} {call.done('inserted')}{replaced}"
    return _answer(call, outcome, text, target, file=old_path if medium is None else path)


def _find_drive(vm: Vm, drive: str | None, *, is_empty: bool) -> ET.Element:
    """
    Return the drive that a call means.

    is_empty
        Whether to prefer an empty drive, or else one with a medium.
    """
    drives = [
        element
        for element in listed.DISK.list(vm.root)
        if disk.read(element).device in devicematch.DRIVES
    ]
    if not drives:
        raise BadArgument(
            "drive",
            f"VM {vm.name!r} has none; virt.disk_add {shlex.quote(vm.name)} cd device=cdrom adds "
            "one, for the VM's next start",
        )
    if drive is not None:
        return find_disk(vm, drive, drives)
    fitting_drives = [
        element for element in drives if (disk.read(element).path is None) == is_empty
    ]
    for choice in (drives, fitting_drives):
        if len(choice) == 1:
            return choice[0]
    texts = ", ".join(map(listed.DISK.describe, drives))
    raise BadArgument("drive", f"VM {vm.name!r} has {texts}; say which")


def find_disk(vm: Vm, name: str, elements: Sequence[ET.Element]) -> ET.Element:
    """Return the disk that a target, a path or a disk's name means."""
    matcher = vm.matcher
    matches = [
        element
        for element in elements
        if name in (listed.target_of(element), disk.read(element).path)
        or matcher.has_name(name, element)
    ]
    texts = ", ".join(map(listed.DISK.describe, matches or elements)) or "none"
    if not matches:
        raise BadArgument("disk", f"VM {vm.name!r} has no {name!r}; it has {texts}")
    if len(matches) > 1:
        raise BadArgument("disk", f"{name!r} may be {texts}; give the file")
    return matches[0]


def _run(context: Context, call: Call, decide: _Decide) -> apply.Outcome:
    """Have a change made that is decided under the VM's lock."""
    with connect.open_connection(context.settings, readonly=False) as conn:

        def read_and_decide() -> Request:
            return decide(Vm.read(context, conn, call.vm))

        return apply.update_decided(context, conn, call.vm, read_and_decide, test=call.test)


def _refuse_failed(outcome: apply.Outcome, done: str) -> None:
    """
    Raise LibvirtRefused if libvirt or the guest refused a change.

    done
        What was done all the same.
    """
    errors = outcome.answer.get("errors")
    if errors:
        raise LibvirtRefused(f"{done}{'; '.join(errors)}")


def _answer(call: Call, outcome: apply.Outcome, text: str, device: str, **more: Any) -> Answer:
    restarts = "restart" in outcome.answer
    out = {
        "outcome": f"{text}{_RESTART if restarts else ''}",
        "device": device,
        "restart": restarts,
        **more,
    }
    return {**out, "diff": outcome.answer["diff"]} if call.test else out
