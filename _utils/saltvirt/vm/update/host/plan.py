"""Decide a call's changes of a VM's definition; pure functions."""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.core import arguments
from saltvirt.vm.update.host import devices
from saltvirt.vm.update.host.request import Request
from saltvirt.xml import leaf
from saltvirt.xml.domain import (
    clock,
    controller,
    cpu,
    cputune,
    domain,
    features,
    hostdev,
    hotplug,
    memory,
    metadata,
    numatune,
    osboot,
    vcpu,
)
from saltvirt.xml.edit import amend, devicematch

_Change = Callable[[ET.Element, Request], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The new definition.

    changed
        The names of the arguments that change it.
    """

    root: ET.Element
    changed: tuple[str, ...] = ()


def decide(
    definition: ET.Element,
    request: Request,
    *,
    disks: Sequence[ET.Element] | None = None,
    host_devices: Sequence[hostdev.Hostdev] | None = None,
    disk_mib: int = 0,
) -> Plan:
    """
    Return the new definition.

    disks
        The new <disk> elements beside the seed; None leaves them.
    host_devices
        The new host devices; None leaves them.
    disk_mib
        The MiB that the disks may take in addition.
    """
    root, changed_arguments = copy.deepcopy(definition), []
    for name, change in _find_changes(request, disks, host_devices).items():
        root_before = copy.deepcopy(root)
        with arguments.shape_errors(name):
            change(root, request)
        if amend.is_identical(root_before, root):
            # Another notation of the same content is no change.
            root = root_before
        else:
            changed_arguments.append(name)
    if disk_mib:
        root_before = copy.deepcopy(root)
        metadata.promise_more(root, disk_mib)
        if "disks" not in changed_arguments and not amend.is_identical(root_before, root):
            changed_arguments.append("disks")
    return Plan(
        root=root, changed=() if amend.is_identical(definition, root) else tuple(changed_arguments)
    )


def _find_changes(
    request: Request,
    disks: Sequence[ET.Element] | None,
    host_devices: Sequence[hostdev.Hostdev] | None,
) -> dict[str, _Change]:
    """Return the changes that a call asks for, by its arguments."""

    def put_disks(root: ET.Element, _request: Request) -> None:
        seeds = [element for element in amend.devices(root, "disk") if devicematch.is_seed(element)]
        amend.put_devices(root, "disk", [*copy.deepcopy(list(disks or ())), *seeds])
        controller.complete(root)

    def put_host_devices(root: ET.Element, _request: Request) -> None:
        devices.host_devices(root, host_devices or ())

    return {
        **{name: change for name, change in _CHANGES.items() if getattr(request, name) is not None},
        **({} if disks is None else {"disks": put_disks}),
        **({} if host_devices is None else {"host_devices": put_host_devices}),
    }


def _memory(root: ET.Element, request: Request) -> None:
    old_memory, model = memory.read(root), domain.read(root).cpu
    new_memory, new_model = memory.apply_changes(old_memory, request.mem or {}), model
    if model is not None and model.cells:
        cpu_options = request.cpu if isinstance(request.cpu, dict) else {}
        new_memory, new_model = hotplug.resize_cells(
            old_memory, new_memory, model, has_cells="numa" in cpu_options
        )
    if hotplug.has_rules(root.get("type")) and _memory_sizes(old_memory) != _memory_sizes(
        new_memory
    ):
        new_memory, new_model = hotplug.add_hotplug(
            new_memory,
            new_model,
            int(vcpu.read(root).maximum),
            # A maximum without slots, which libvirt 11 accepts, stays without.
            slots=hotplug.SLOTS if old_memory.maximum_kib is None else old_memory.slots,
        )
    amend.change_children(root, memory.build(old_memory), memory.build(new_memory))
    amend.change_children(root, [cpu.build(model)], [cpu.build(new_model)])


def _memory_sizes(vm_memory: memory.Memory) -> tuple[object, ...]:
    return vm_memory.size_kib, vm_memory.maximum_kib, vm_memory.slots


def _cpu(root: ET.Element, request: Request) -> None:
    options = request.cpu or {}
    old_vcpu = vcpu.read(root)
    amend.change_children(
        root, vcpu.build(old_vcpu), vcpu.build(vcpu.apply_changes(old_vcpu, options))
    )
    if not isinstance(options, dict):
        return
    model, max_vcpus = domain.read(root).cpu, int(vcpu.read(root).maximum)
    new_model = cpu.fill_first_cell(cpu.apply_changes(model, options), model, max_vcpus)
    amend.change_children(root, [cpu.build(model)], [cpu.build(new_model)])
    if "tuning" in options:
        tuning = domain.read(root).cputune
        new_tuning = cputune.apply_changes(tuning, options["tuning"], max_vcpus)
        amend.change_children(root, [cputune.build(tuning)], [cputune.build(new_tuning)])


def _element(field: str, argument: str, module: Any) -> _Change:
    """Return the change of an element that a mapping of the call describes."""

    def change(root: ET.Element, request: Request) -> None:
        old_element = getattr(domain.read(root), field)
        new_element = module.apply_changes(old_element, getattr(request, argument) or {})
        amend.change_children(root, [module.build(old_element)], [module.build(new_element)])

    return change


def _boot(root: ET.Element, request: Request) -> None:
    old_os = domain.read(root).os
    osboot.amend_domain(root, osboot.apply_changes(old_os, request.boot or {}))


def _boot_dev(root: ET.Element, request: Request) -> None:
    old_os = domain.read(root).os
    osboot.amend_domain(root, osboot.apply_changes(old_os, {}, request.boot_dev))


def _on_reboot(root: ET.Element, request: Request) -> None:
    old_action = domain.read(root).on_reboot
    new_action = (
        "destroy"
        if request.stop_on_reboot
        else ("restart" if old_action == "destroy" else old_action)
    )
    amend.change_children(root, [leaf("on_reboot", old_action)], [leaf("on_reboot", new_action)])


def _interfaces(root: ET.Element, request: Request) -> None:
    if request.single is not None:
        devices.single_interface(
            root,
            request.name,
            request.single.name,
            request.interfaces or (),
            is_3006=request.is_3006,
        )
        return
    devices.interfaces(root, request.name, request.interfaces or (), is_3006=request.is_3006)


def _graphics(root: ET.Element, request: Request) -> None:
    devices.displays(root, request.graphics or {}, is_3006=request.is_3006)


def _ports(root: ET.Element, request: Request) -> None:
    devices.ports(root, request.serials, request.consoles)


_CHANGES: dict[str, _Change] = {
    "cpu": _cpu,
    "mem": _memory,
    "numatune": _element("numatune", "numatune", numatune),
    "boot": _boot,
    "boot_dev": _boot_dev,
    "hypervisor_features": _element("features", "hypervisor_features", features),
    "clock": _element("clock", "clock", clock),
    "stop_on_reboot": _on_reboot,
    "interfaces": _interfaces,
    "graphics": _graphics,
    "serials": _ports,
    "consoles": _ports,
}
