"""What a call changes in a VM's definition; nothing is read or done here."""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from saltvirt import arguments
from saltvirt.ops.update import devices
from saltvirt.ops.update.request import Request
from saltvirt.xml import (
    amend,
    clock,
    controller,
    cpu,
    cputune,
    disk,
    features,
    held,
    hostdev,
    hotplug,
    leaf,
    memory,
    metadata,
    numatune,
    osboot,
    vcpu,
)
from saltvirt.xml import domain as domain_xml

_Change = Callable[[ET.Element, Request], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The definition that a call leads to.

    root
        The <domain>.
    changed
        The names of the arguments that change anything of it.
    """

    root: ET.Element
    changed: tuple[str, ...] = ()


def decide(
    now: ET.Element,
    request: Request,
    *,
    disks: Sequence[ET.Element] | None = None,
    host_devices: Sequence[hostdev.Hostdev] | None = None,
    disk_mib: int = 0,
) -> Plan:
    """
    Return the definition that a call leads to.

    now
        The VM's definition.
    disks
        The <disk> elements that it is to have beside its seed; None leaves them.
    host_devices
        The devices of the host that it is to have; None leaves them.
    disk_mib
        How much more its disks may take then.
    """
    root, changed = copy.deepcopy(now), []

    def put_disks(root: ET.Element, _request: Request) -> None:
        seeds = [one for one in amend.devices(root, "disk") if held.is_seed(one)]
        amend.put_devices(root, "disk", [*copy.deepcopy(list(disks or ())), *seeds])
        controller.complete(root)

    def put_host_devices(root: ET.Element, _request: Request) -> None:
        devices.host_devices(root, host_devices or ())

    steps = {
        **_ELEMENTS,
        "disks": (disks, put_disks),
        "host_devices": (host_devices, put_host_devices),
    }
    for name, (given, change) in steps.items():
        if (getattr(request, name) if given is _OF_REQUEST else given) is None:
            continue
        before = copy.deepcopy(root)
        with arguments.shaped(name):
            change(root, request)
        if amend.same(before, root):
            # What was only written in another way is no change.
            root = before
        else:
            changed.append(name)
    if disk_mib:
        before = copy.deepcopy(root)
        metadata.promise_more(root, disk_mib)
        if "disks" not in changed and not amend.same(before, root):
            changed.append("disks")
    return Plan(root=root, changed=() if amend.same(now, root) else tuple(changed))


def _memory(root: ET.Element, request: Request) -> None:
    now, model = memory.read(root), domain_xml.read(root).cpu
    wanted, asked = memory.changed(now, request.mem or {}), model
    if model is not None and model.cells:
        given = request.cpu if isinstance(request.cpu, dict) else {}
        wanted, asked = hotplug.resized(now, wanted, model, has_cells="numa" in given)
    if hotplug.has_rules(root.get("type")) and _sizes(now) != _sizes(wanted):
        wanted, asked = hotplug.filled(
            wanted,
            asked,
            int(vcpu.read(root).maximum),
            # One without slots, as libvirt 11 takes it, stays without.
            slots=hotplug.SLOTS if now.maximum_kib is None else now.slots,
        )
    amend.changed(root, memory.build(now), memory.build(wanted))
    amend.changed(root, [cpu.build(model)], [cpu.build(asked)])


def _sizes(found: memory.Memory) -> tuple[object, ...]:
    return found.size_kib, found.maximum_kib, found.slots


def _cpu(root: ET.Element, request: Request) -> None:
    given = request.cpu or {}
    now = vcpu.read(root)
    amend.changed(root, vcpu.build(now), vcpu.build(vcpu.changed(now, given)))
    if not isinstance(given, dict):
        return
    model, most = domain_xml.read(root).cpu, int(vcpu.read(root).maximum)
    asked = cpu.as_filled(cpu.changed(model, given), model, most)
    amend.changed(root, [cpu.build(model)], [cpu.build(asked)])
    if "tuning" in given:
        tuning = domain_xml.read(root).cputune
        wanted = cputune.changed(tuning, given["tuning"], most)
        amend.changed(root, [cputune.build(tuning)], [cputune.build(wanted)])


def _numatune(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).numatune
    wanted = numatune.changed(now, request.numatune or {})
    amend.changed(root, [numatune.build(now)], [numatune.build(wanted)])


def _boot(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).os
    osboot.amended(root, osboot.changed(now, request.boot or {}))


def _boot_dev(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).os
    osboot.amended(root, osboot.changed(now, {}, request.boot_dev))


def _features(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).features
    wanted = features.changed(now, request.hypervisor_features or {})
    amend.changed(root, [features.build(now)], [features.build(wanted)])


def _clock(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).clock
    wanted = clock.changed(now, request.clock or {})
    amend.changed(root, [clock.build(now)], [clock.build(wanted)])


def _on_reboot(root: ET.Element, request: Request) -> None:
    now = domain_xml.read(root).on_reboot
    wanted = "destroy" if request.stop_on_reboot else ("restart" if now == "destroy" else now)
    amend.changed(root, [leaf("on_reboot", now)], [leaf("on_reboot", wanted)])


def _interfaces(root: ET.Element, request: Request) -> None:
    devices.interfaces(root, request.name, request.interfaces or (), is_3006=request.is_3006)


def _graphics(root: ET.Element, request: Request) -> None:
    devices.displays(root, request.graphics or {}, is_3006=request.is_3006)


def _ports(root: ET.Element, request: Request) -> None:
    devices.ports(root, request.serials, request.consoles)


def _seed(root: ET.Element, request: Request) -> None:
    is_readonly = bool(request.seed_readonly)
    disks = [
        held.amended_disk(one, replace(disk.read(one), is_readonly=is_readonly))
        if held.is_seed(one)
        else one
        for one in amend.devices(root, "disk")
    ]
    amend.put_devices(root, "disk", disks)


_OF_REQUEST = object()
_ELEMENTS: dict[str, tuple[object, _Change]] = {
    "cpu": (_OF_REQUEST, _cpu),
    "mem": (_OF_REQUEST, _memory),
    "numatune": (_OF_REQUEST, _numatune),
    "boot": (_OF_REQUEST, _boot),
    "boot_dev": (_OF_REQUEST, _boot_dev),
    "hypervisor_features": (_OF_REQUEST, _features),
    "clock": (_OF_REQUEST, _clock),
    "stop_on_reboot": (_OF_REQUEST, _on_reboot),
    "interfaces": (_OF_REQUEST, _interfaces),
    "graphics": (_OF_REQUEST, _graphics),
    "serials": (_OF_REQUEST, _ports),
    "consoles": (_OF_REQUEST, _ports),
    "seed_readonly": (_OF_REQUEST, _seed),
}
