"""What of a changed definition is done to the running VM, and what waits for its next start."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.ops.update.plan import Plan
from saltvirt.ops.update.request import Request
from saltvirt.xml import amend, controller, disk, held, hostdev, memory, nic, vcpu

ATTACH, DETACH, UPDATE = "attached", "detached", "updated"
# The buses on which a disk comes and goes while the VM runs.
_PLUGGED = ("virtio", "scsi", "usb")
# What of a call's `cpu` says how many there are.
_COUNTS = {"current", "maximum", "vcpus"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    A device that is attached, detached or updated.

    device
        ``disk``, ``interface`` or ``hostdev``.
    name
        What it is known by in the VM: a disk's target, a NIC's MAC, a host device.
    """

    how: str
    device: str
    name: str
    element: ET.Element

    @property
    def xml(self) -> str:
        """The device as text."""
        return amend.text_of(self.element)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """
    What is done to the running VM.

    controllers
        What disks are attached to; the VM gets them before the disks.
    vcpus, memory_kib
        What it is to have, None to leave it.
    waits
        The arguments of the call, some or all of which the VM has from its next start on.
    """

    steps: tuple[Step, ...] = ()
    controllers: tuple[Step, ...] = ()
    vcpus: int | None = None
    memory_kib: int | None = None
    waits: tuple[str, ...] = ()


def decide(running: ET.Element, plan: Plan, request: Request) -> Live:
    """
    Return what is done to the running VM.

    running
        The <domain> as it runs.
    """
    if not request.live:
        return Live(waits=plan.changed)
    waits = {one for one in plan.changed if one not in _DEVICES}
    vcpus, memory_kib = _vcpus(running, plan, request.cpu), _memory(running, plan)
    if vcpus is not None and _is_count_alone(running, plan, request.cpu):
        waits.discard("cpu")
    if memory_kib is not None and _is_size_alone(running, plan, request.mem):
        waits.discard("mem")
    steps: list[Step] = []
    for argument, (device, find) in _DEVICES.items():
        if getattr(request, argument) is None:
            continue
        found, has_rest = find(_of(running, device), _of(plan.root, device))
        steps += found
        if has_rest:
            waits.add(argument)
    order = [DETACH, ATTACH, UPDATE]
    return Live(
        steps=tuple(sorted(steps, key=lambda step: order.index(step.how))),
        controllers=tuple(_controllers(running, steps)),
        vcpus=vcpus,
        memory_kib=memory_kib,
        waits=tuple(sorted(waits)),
    )


def _controllers(running: ET.Element, steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the controllers that the running VM gets for disks: libvirt would add another kind."""
    disks = [step.element for step in steps if (step.how, step.device) == (ATTACH, "disk")]
    for one in controller.scsi(disks, controller.read_scsi(running)):
        name = f"{one.type} {one.index}"
        yield Step(how=ATTACH, device="controller", name=name, element=controller.build(one))


def _of(root: ET.Element, device: str) -> list[ET.Element]:
    return amend.devices(root, device)


def _is_size_alone(running: ET.Element, plan: Plan, mem: Any) -> bool:
    """Return whether nothing is left of a call's memory when the running VM has its size."""
    if isinstance(mem, int) or (isinstance(mem, dict) and set(mem) == {"current"}):
        return True
    now, wanted = memory.read(running), memory.read(plan.root)
    return replace(now, current_kib=wanted.current_kib) == wanted


def _is_count_alone(running: ET.Element, plan: Plan, cpu: Any) -> bool:
    """Return whether nothing is left of a call's CPUs when the running VM has as many."""
    if isinstance(cpu, int) or (isinstance(cpu, dict) and set(cpu) == {"current"}):
        return True
    has_most = vcpu.read(running).maximum == vcpu.read(plan.root).maximum
    return has_most and set(cpu or ()) == {"current", "maximum"}


def _vcpus(running: ET.Element, plan: Plan, cpu: Any) -> int | None:
    """Return how many virtual CPUs the VM gets at once; None if that is not to, or cannot, be."""
    # Also where the definition has it already: libvirt may have refused it before.
    if not (isinstance(cpu, int) or (cpu and _COUNTS & set(cpu))):
        return None
    now, wanted = vcpu.read(running), vcpu.read(plan.root)
    count = int(wanted.attributes.get("current", wanted.maximum))
    has = int(now.attributes.get("current", now.maximum))
    can_be = vcpu.least(running) <= count <= int(now.maximum)
    return count if count != has and can_be else None


def _memory(running: ET.Element, plan: Plan) -> int | None:
    """Return the memory in KiB that the VM gets at once; None if that is not to, or cannot, be."""
    if "mem" not in plan.changed:
        return None
    now, wanted = memory.read(running), memory.read(plan.root).current_kib
    is_new = wanted != now.current_kib
    return wanted if is_new and wanted <= now.size_kib else None


_Found = tuple[list[Step], bool]


def _disks(running: Sequence[ET.Element], wanted: Sequence[ET.Element]) -> _Found:
    now = {disk.read(one).target.get("dev", ""): one for one in running if not held.is_seed(one)}
    then = {disk.read(one).target.get("dev", ""): one for one in wanted if not held.is_seed(one)}
    steps, has_rest = [], False
    for target in dict.fromkeys([*now, *then]):
        found = _disk(target, now.get(target), then.get(target))
        if found is None:
            has_rest = True
        else:
            steps += found
    return steps, has_rest


def _disk(target: str, now: ET.Element | None, then: ET.Element | None) -> list[Step] | None:
    """Return what is done to the disk of a name; None if it waits for the next start."""
    found = _changed_disk(target, now, then) if now is not None and then is not None else ()
    if found != ():
        return None if found is None else list(found)
    both = [disk.read(one) for one in (now, then) if one is not None]
    return _replugged("disk", target, now, then) if all(map(_is_plugged, both)) else None


def _changed_disk(target: str, now: ET.Element, then: ET.Element) -> list[Step] | tuple[()] | None:
    """Return what is done to a disk that stays, None if it waits, () if it is another disk."""
    has, wants = disk.read(now), disk.read(then)
    if has.device != wants.device:
        return ()
    if held.content(has) == held.content(wants):
        return [] if _is_driven_alike(has, wants) else None
    if has.device not in held.DRIVES:
        return ()
    element = held.amended_disk(now, held.with_medium(has, wants))
    return [Step(how=UPDATE, device="disk", name=target, element=element)]


def _replugged(
    device: str, name: str, now: ET.Element | None, then: ET.Element | None
) -> list[Step]:
    both = ((DETACH, now), (ATTACH, then))
    return [
        Step(how=how, device=device, name=name, element=element)
        for how, element in both
        if element is not None
    ]


def _is_plugged(one: disk.Disk) -> bool:
    return one.device not in held.DRIVES and one.target.get("bus") in _PLUGGED


def _is_driven_alike(has: disk.Disk, wants: disk.Disk) -> bool:
    keys = ("io", "iothread", "cache")
    said = {key: (wants.driver or {}).get(key) for key in keys}
    has_bus, wants_bus = has.target.get("bus"), wants.target.get("bus")
    return has_bus == wants_bus and all(
        value is None or (has.driver or {}).get(key) == value for key, value in said.items()
    )


def _interfaces(running: Sequence[ET.Element], wanted: Sequence[ET.Element]) -> _Found:
    now = {(nic.read(one).mac or "").lower(): one for one in running}
    then = {(nic.read(one).mac or "").lower(): one for one in wanted}
    steps: list[Step] = []
    for mac in dict.fromkeys([*now, *then]):
        steps += _interface(mac, now.get(mac), then.get(mac))
    return steps, False


def _interface(mac: str, now: ET.Element | None, then: ET.Element | None) -> list[Step]:
    if now is not None and then is not None:
        has, wants = nic.read(now), nic.read(then)
        is_there = has.model == wants.model and _is_at(has, wants)
        if is_there and not held.differs(has, wants):
            return []
        if has.model == wants.model and (is_there or has.type == wants.type):
            element = held.amended_nic(now, held.changed_nic(has, wants))
            return [Step(how=UPDATE, device="interface", name=mac, element=element)]
    return _replugged("interface", mac, now, then)


def _is_at(has: nic.Interface, wants: nic.Interface) -> bool:
    """Return whether a NIC is where it is to be."""
    # Of a network that hands out devices, or links, libvirt shows what it has handed out.
    is_handed_out = wants.type == "network" and has.type in ("hostdev", "direct")
    return is_handed_out or held.place(has) == held.place(wants)


def _host_devices(running: Sequence[ET.Element], wanted: Sequence[ET.Element]) -> _Found:
    now = {held.host_device(hostdev.read(one)): one for one in running}
    then = {held.host_device(hostdev.read(one)): one for one in wanted}
    steps = [
        Step(how=how, device="hostdev", name=" ".join(map(str, key)), element=one)
        for how, found, others in ((DETACH, now, then), (ATTACH, then, now))
        for key, one in found.items()
        if key is not None and key not in others
    ]
    return steps, False


_DEVICES: dict[str, tuple[str, Callable[[Sequence[ET.Element], Sequence[ET.Element]], _Found]]] = {
    "disks": ("disk", _disks),
    "interfaces": ("interface", _interfaces),
    "host_devices": ("hostdev", _host_devices),
}


def still_there(running: ET.Element, steps: Sequence[Step]) -> list[Step]:
    """
    Return the devices that the guest has not let go of.

    running
        The <domain> after they were detached.
    """
    names: dict[str, set[str | None]] = {
        "disk": {disk.read(one).target.get("dev") for one in _of(running, "disk")},
        "interface": {(nic.read(one).mac or "").lower() for one in _of(running, "interface")},
        "hostdev": {
            " ".join(map(str, held.host_device(hostdev.read(one)) or ()))
            for one in _of(running, "hostdev")
        },
    }
    return [one for one in steps if one.how == DETACH and one.name in names[one.device]]


def target_of(root: ET.Element | None, one: disk.Disk | None) -> str | None:
    """
    Return what a disk is called in a <domain>, None if that has not got it.

    It is known by its content: in the definition, or as soon as it is on another bus, its name may
    be another disk's.
    """
    if root is None or one is None:
        return None
    for found in map(disk.read, _of(root, "disk")):
        if found.device == one.device and held.content(found) == held.content(one):
            return found.target.get("dev")
    return None


def disk_at(root: ET.Element, target: str) -> disk.Disk | None:
    """Return the disk with a target, None if there is none."""
    found = map(disk.read, _of(root, "disk"))
    return next((one for one in found if one.target.get("dev") == target), None)


def disks_at(root: ET.Element, targets: Collection[str | None]) -> list[str]:
    """Return the disks with some targets as text."""
    return [
        amend.text_of(one)
        for one in _of(root, "disk")
        if disk.read(one).target.get("dev") in targets
    ]
