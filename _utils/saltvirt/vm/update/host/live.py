"""Decide which changes apply to the running VM, and which wait for its next start."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.core import diskbus
from saltvirt.vm.update.host import listed
from saltvirt.vm.update.host.listed import DeviceKind
from saltvirt.vm.update.host.plan import Plan
from saltvirt.vm.update.host.request import Request
from saltvirt.xml.domain import controller, disk, memory, nic, vcpu
from saltvirt.xml.edit import amend, devicematch

ATTACH, DETACH, UPDATE = "attached", "detached", "updated"
# The keys of a call's `cpu` that give a count.
_COUNTS = {"current", "maximum", "vcpus"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    A device to be attached, detached or updated.

    device
        ``disk``, ``interface``, ``hostdev`` or ``controller``.
    name
        Its name in the VM, see :class:`saltvirt.vm.update.host.listed.DeviceKind`.
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
    Changes to the running VM.

    controllers
        Controllers for new disks, attached before these.
    vcpus, memory_kib
        New values, None to leave them.
    waits
        Arguments of the call that take effect, in part or in whole, only at the next start.
    """

    steps: tuple[Step, ...] = ()
    controllers: tuple[Step, ...] = ()
    vcpus: int | None = None
    memory_kib: int | None = None
    waits: tuple[str, ...] = ()


def decide(
    running: ET.Element, plan: Plan, request: Request, names: Collection[str] | None = None
) -> Live:
    """
    Return the changes to the running VM.

    running
        The running <domain>.
    names
        The names of the only devices that may change. Defaults to all.
    """
    if not request.live:
        return Live(waits=plan.changed)
    waits = {name for name in plan.changed if name not in _LISTS}
    vcpus, memory_kib = _vcpus(running, plan, request.cpu), _memory(running, plan)
    if vcpus is not None and _is_count_alone(running, plan, request.cpu):
        waits.discard("cpu")
    if memory_kib is not None and _is_size_alone(running, plan, request.mem):
        waits.discard("mem")
    steps, waiting_lists = _find_steps(running, plan.root, request, names)
    order = [DETACH, ATTACH, UPDATE]
    return Live(
        steps=tuple(sorted(steps, key=lambda step: order.index(step.how))),
        controllers=tuple(_controllers(running, steps)),
        vcpus=vcpus,
        memory_kib=memory_kib,
        waits=tuple(sorted(waits | waiting_lists)),
    )


def _find_steps(
    running: ET.Element,
    new_root: ET.Element,
    request: Request,
    only_names: Collection[str] | None,
) -> tuple[list[Step], set[str]]:
    """Return the steps for the devices of a call, and the arguments of those that must wait."""
    steps, waits = list[Step](), set[str]()
    for kind, find in _STEPS.items():
        if getattr(request, kind.argument) is None:
            continue
        running_devices, new_devices = kind.by_name(running), kind.by_name(new_root)
        for name in dict.fromkeys([*running_devices, *new_devices]):
            if only_names is not None and name not in only_names:
                continue
            device_steps = find(name, running_devices.get(name), new_devices.get(name))
            steps += device_steps or ()
            waits |= {kind.argument} if device_steps is None else set()
    return steps, waits


def _controllers(running_root: ET.Element, steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the controllers to attach for new disks: libvirt would add another model."""
    disk_elements = [step.element for step in steps if (step.how, step.device) == (ATTACH, "disk")]
    for scsi_controller in controller.scsi(disk_elements, controller.read_scsi(running_root)):
        name = f"{scsi_controller.type} {scsi_controller.index}"
        yield Step(
            how=ATTACH, device="controller", name=name, element=controller.build(scsi_controller)
        )


def _is_size_alone(running_root: ET.Element, plan: Plan, mem: Any) -> bool:
    """Return whether resizing the running VM fulfils the call's memory argument."""
    if isinstance(mem, int) or (isinstance(mem, dict) and set(mem) == {"current"}):
        return True
    running_memory, new_memory = memory.read(running_root), memory.read(plan.root)
    return replace(running_memory, current_kib=new_memory.current_kib) == new_memory


def _is_count_alone(running_root: ET.Element, plan: Plan, cpu: Any) -> bool:
    """Return whether changing the running VM's CPU count fulfils the call's cpu argument."""
    if isinstance(cpu, int) or (isinstance(cpu, dict) and set(cpu) == {"current"}):
        return True
    has_most = vcpu.read(running_root).maximum == vcpu.read(plan.root).maximum
    return has_most and set(cpu or ()) == {"current", "maximum"}


def _vcpus(running_root: ET.Element, plan: Plan, cpu: Any) -> int | None:
    """Return the running VM's new count of virtual CPUs; None if it stays or must wait."""
    # Even if the definition has it already: libvirt may have refused an earlier live change.
    if not (isinstance(cpu, int) or (cpu and _COUNTS & set(cpu))):
        return None
    running_vcpu, new_vcpu = vcpu.read(running_root), vcpu.read(plan.root)
    count = int(new_vcpu.attributes.get("current", new_vcpu.maximum))
    running_count = int(running_vcpu.attributes.get("current", running_vcpu.maximum))
    can_change = vcpu.least(running_root) <= count <= int(running_vcpu.maximum)
    return count if count != running_count and can_change else None


def _memory(running_root: ET.Element, plan: Plan) -> int | None:
    """Return the running VM's new memory in KiB; None if it stays or must wait."""
    if "mem" not in plan.changed:
        return None
    running_memory, new_kib = memory.read(running_root), memory.read(plan.root).current_kib
    is_new = new_kib != running_memory.current_kib
    return new_kib if is_new and new_kib <= running_memory.size_kib else None


def _disk_steps(
    target: str, running_element: ET.Element | None, new_element: ET.Element | None
) -> list[Step] | None:
    """Return the steps for the disk at a target; None if it waits for the next start."""
    changed_steps = (
        _changed_disk_steps(target, running_element, new_element)
        if running_element is not None and new_element is not None
        else ()
    )
    if changed_steps != ():
        return None if changed_steps is None else list(changed_steps)
    present_disks = [
        disk.read(element) for element in (running_element, new_element) if element is not None
    ]
    return (
        _replug("disk", target, running_element, new_element)
        if all(map(is_hotpluggable, present_disks))
        else None
    )


def _changed_disk_steps(
    target: str, running_element: ET.Element, new_element: ET.Element
) -> list[Step] | tuple[()] | None:
    """Return the steps for a disk that stays, None if it waits, () if it is another disk."""
    running_disk, new_disk = disk.read(running_element), disk.read(new_element)
    if running_disk.device != new_disk.device:
        return ()
    if devicematch.content(running_disk) == devicematch.content(new_disk):
        return [] if _has_same_driver(running_disk, new_disk) else None
    if running_disk.device not in devicematch.DRIVES:
        return ()
    element = devicematch.amend_disk_copy(
        running_element, devicematch.with_medium(running_disk, new_disk)
    )
    return [Step(how=UPDATE, device="disk", name=target, element=element)]


def _replug(
    device: str, name: str, running_element: ET.Element | None, new_element: ET.Element | None
) -> list[Step]:
    step_elements = ((DETACH, running_element), (ATTACH, new_element))
    return [
        Step(how=how, device=device, name=name, element=element)
        for how, element in step_elements
        if element is not None
    ]


def is_hotpluggable(vm_disk: disk.Disk) -> bool:
    """Return whether a disk comes and goes while the VM runs."""
    bus = diskbus.BUSES.get(vm_disk.target.get("bus", ""))
    return vm_disk.device not in devicematch.DRIVES and bus is not None and bus.is_hotpluggable


def _has_same_driver(running_disk: disk.Disk, new_disk: disk.Disk) -> bool:
    keys = ("io", "iothread", "cache")
    new_values = {key: (new_disk.driver or {}).get(key) for key in keys}
    running_bus, new_bus = running_disk.target.get("bus"), new_disk.target.get("bus")
    return running_bus == new_bus and all(
        value is None or (running_disk.driver or {}).get(key) == value
        for key, value in new_values.items()
    )


def _interface_steps(
    mac: str, running_element: ET.Element | None, new_element: ET.Element | None
) -> list[Step]:
    if running_element is not None and new_element is not None:
        running_nic, new_nic = nic.read(running_element), nic.read(new_element)
        is_there = running_nic.model == new_nic.model and _is_in_place(running_nic, new_nic)
        if is_there and not devicematch.differs(running_nic, new_nic):
            return []
        if running_nic.model == new_nic.model and (is_there or running_nic.type == new_nic.type):
            element = devicematch.amend_nic_copy(
                running_element, devicematch.merge_nic(running_nic, new_nic)
            )
            return [Step(how=UPDATE, device="interface", name=mac, element=element)]
    return _replug("interface", mac, running_element, new_element)


def _is_in_place(running_nic: nic.Interface, new_nic: nic.Interface) -> bool:
    """Return whether a NIC is at its requested place."""
    # For a network that allots devices or links, the running <domain> shows the allotted one.
    is_handed_out = new_nic.type == "network" and running_nic.type in ("hostdev", "direct")
    return is_handed_out or devicematch.place(running_nic) == devicematch.place(new_nic)


def _host_device_steps(
    name: str, running_element: ET.Element | None, new_element: ET.Element | None
) -> list[Step]:
    if running_element is not None and new_element is not None:
        return []
    return _replug("hostdev", name, running_element, new_element)


_STEPS: dict[
    DeviceKind, Callable[[str, ET.Element | None, ET.Element | None], list[Step] | None]
] = {
    listed.DISK: _disk_steps,
    listed.NIC: _interface_steps,
    listed.HOST_DEVICE: _host_device_steps,
}
_LISTS = {kind.argument for kind in _STEPS}


def find_still_attached(running_root: ET.Element, steps: Sequence[Step]) -> list[Step]:
    """
    Return the detach steps for devices that the guest has not released.

    running_root
        The running <domain> after the detaching.
    """
    names = {element: kind.by_name(running_root) for element, kind in listed.KINDS.items()}
    return [step for step in steps if step.how == DETACH and step.name in names[step.device]]


def find_target(root: ET.Element | None, vm_disk: disk.Disk | None) -> str | None:
    """
    Return a disk's target in a <domain>, None if it is not there.

    The content identifies the disk: the same target may be another disk's in another <domain>.
    """
    if root is None or vm_disk is None:
        return None
    for candidate in map(disk.read, amend.devices(root, "disk")):
        if candidate.device == vm_disk.device and devicematch.content(
            candidate
        ) == devicematch.content(vm_disk):
            return candidate.target.get("dev")
    return None


def find_disk(root: ET.Element, target: str) -> disk.Disk | None:
    """Return the disk with a target, None if there is none."""
    vm_disks = map(disk.read, amend.devices(root, "disk"))
    return next((vm_disk for vm_disk in vm_disks if vm_disk.target.get("dev") == target), None)


def find_disk_texts(root: ET.Element, targets: Collection[str | None]) -> list[str]:
    """Return the disks with some targets as text."""
    return [
        amend.text_of(element)
        for element in amend.devices(root, "disk")
        if listed.target_of(element) in targets
    ]
