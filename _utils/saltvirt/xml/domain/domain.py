"""<domain>: the sum of its elements."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Vm
from saltvirt.xml import leaf, tag, to_text
from saltvirt.xml.domain import (
    chardev,
    clock,
    controller,
    cpu,
    cputune,
    disk,
    features,
    graphics,
    hostdev,
    hotplug,
    memory,
    metadata,
    nic,
    numatune,
    osboot,
    rng,
    vcpu,
    video,
)
from saltvirt.xml.domain.chardev import Chardev
from saltvirt.xml.domain.clock import Clock
from saltvirt.xml.domain.controller import Controller
from saltvirt.xml.domain.cpu import Cpu
from saltvirt.xml.domain.cputune import Cputune
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.domain.features import Features
from saltvirt.xml.domain.graphics import Graphics
from saltvirt.xml.domain.hostdev import Hostdev
from saltvirt.xml.domain.memory import Memory
from saltvirt.xml.domain.metadata import Notes
from saltvirt.xml.domain.nic import Interface
from saltvirt.xml.domain.numatune import Numatune
from saltvirt.xml.domain.osboot import Os
from saltvirt.xml.domain.rng import Rng
from saltvirt.xml.domain.vcpu import Vcpus
from saltvirt.xml.domain.video import Video

_EVENTS = ("on_poweroff", "on_reboot", "on_crash")

_Element = TypeVar("_Element")


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The content of a <domain>, as far as this project can write it."""

    type: str | None
    name: str | None
    uuid: str | None = None
    notes: Notes
    memory: Memory
    vcpus: Vcpus
    cputune: Cputune | None = None
    numatune: Numatune | None = None
    os: Os
    features: Features
    cpu: Cpu | None
    clock: Clock
    on_poweroff: str | None = "destroy"
    on_reboot: str | None = "restart"
    on_crash: str | None = "destroy"
    controllers: tuple[Controller, ...] = ()
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    chardevs: tuple[Chardev, ...] = ()
    graphics: tuple[Graphics, ...] = ()
    videos: tuple[Video, ...] = ()
    hostdevs: tuple[Hostdev, ...] = ()
    rngs: tuple[Rng, ...] = ()


def build(
    vm: Vm,
    host_devices: Iterable[Mapping[str, str]] = (),
    created_storage: Iterable[str] | None = None,
) -> str:
    """
    Return the domain XML of a VM.

    vm
        A :class:`saltvirt.core.model.Vm` with a type, and with paths of its disks.
    host_devices
        The descriptions of ``vm.host_devices``.
    created_storage
        The files and volumes that are made for the VM, for its notes; None for no notes of them.
    """
    domain = from_call(vm, host_devices)
    if created_storage is not None:
        domain = replace(domain, notes=replace(domain.notes, made=tuple(created_storage)))
    return to_text(element(domain))


def from_call(vm: Vm, host_devices: Iterable[Mapping[str, str]] = ()) -> Domain:
    """Return the domain of a VM; the arguments are those of :func:`build`."""
    display = _shaped("graphics", graphics.from_call, vm.graphics)
    card = video.for_display(display)
    memory_ = _shaped("mem", memory.from_call, vm.memory)
    vcpus = _shaped("cpu", vcpu.from_call, vm.cpu)
    cpu_ = _cpu(vm)
    if hotplug.has_rules(vm.domain_type):
        memory_, cpu_ = hotplug.add_hotplug(memory_, cpu_, int(vcpus.maximum))
    domain = Domain(
        type=vm.domain_type,
        name=vm.name,
        uuid=vm.uuid,
        notes=metadata.from_call(vm),
        memory=memory_,
        vcpus=vcpus,
        cputune=_shaped("cpu:tuning", cputune.from_call, vm.cpu.get("tuning"))
        if isinstance(vm.cpu, Mapping)
        else None,
        numatune=_shaped("numatune", numatune.from_call, vm.numatune),
        os=osboot.from_call(vm),
        features=features.from_call(vm.hypervisor_features, vm.arch),
        cpu=cpu_,
        clock=_shaped("clock", clock.from_call, vm.clock),
        on_reboot="destroy" if vm.stop_on_reboot else "restart",
        interfaces=tuple(map(nic.from_call, vm.nics)),
        chardevs=(
            *chardev.from_call(vm.serials, vm.consoles, vm.console_log),
            *(
                [chardev.spice_agent()]
                if vm.is_3006 and display and display.type == "spice"
                else []
            ),
            chardev.guest_agent(),
        ),
        graphics=(display,) if display else (),
        videos=(card,) if card else (),
        hostdevs=tuple(map(hostdev.from_call, host_devices)),
        rngs=(rng.for_vm(),),
    )
    # Last, as disks need paths: an error in another argument's shape is reported first.
    disks = (*map(disk.from_call, vm.disks), *seeds(vm, {vm_disk.target for vm_disk in vm.disks}))
    controllers = (*controller.ports(vm), *controller.scsi(map(disk.build, disks)))
    return replace(domain, disks=disks, controllers=controllers)


def _cpu(vm: Vm) -> Cpu | None:
    cpu_: Cpu | None = _shaped(
        "cpu", cpu.from_call, vm.cpu, vm.domain_type, has_default=not vm.is_3006
    )
    return cpu_


def _shaped(
    argument: str, construct: Callable[..., _Element], *args: Any, **options: Any
) -> _Element:
    with arguments.shape_errors(argument):
        return construct(*args, **options)


def seeds(vm: Vm, used_targets: Container[str]) -> Iterator[Disk]:
    """
    Yield the disk of a VM's seed, if it has one.

    used_targets
        The targets of its other disks.
    """
    if not vm.seed_path:
        return
    free_targets = [
        f"vd{letter}" for letter in "bcdefghijklmnopqrstuvwxyz" if f"vd{letter}" not in used_targets
    ]
    if not free_targets:
        raise BadArgument("disks", "none of vdb to vdz is left for the seed; use another bus")
    yield disk.seed(vm.seed_path, free_targets[0])


def element(domain: Domain) -> ET.Element:
    """Return the <domain>, which :func:`read` reads."""
    events = [leaf(name, getattr(domain, name)) for name in _EVENTS]
    return tag(
        "domain",
        {"type": domain.type},
        leaf("name", domain.name),
        leaf("uuid", domain.uuid),
        metadata.build(domain.notes),
        *memory.build(domain.memory),
        *vcpu.build(domain.vcpus),
        cputune.build(domain.cputune),
        numatune.build(domain.numatune),
        osboot.build(domain.os),
        features.build(domain.features),
        cpu.build(domain.cpu),
        clock.build(domain.clock),
        *events,
        _devices(domain),
    )


def _devices(domain: Domain) -> ET.Element:
    return tag(
        "devices",
        None,
        *map(controller.build, domain.controllers),
        *map(disk.build, domain.disks),
        *map(nic.build, domain.interfaces),
        *map(chardev.build, domain.chardevs),
        *map(graphics.build, domain.graphics),
        *map(video.build, domain.videos),
        *map(hostdev.build, domain.hostdevs),
        *map(rng.build, domain.rngs),
    )


def read(root: ET.Element) -> Domain:
    """Return the content of a domain of any origin."""
    return Domain(
        type=root.get("type"),
        name=root.findtext("name") or None,
        uuid=root.findtext("uuid") or None,
        notes=metadata.read(root.find("metadata")),
        memory=memory.read(root),
        vcpus=vcpu.read(root),
        cputune=cputune.read(root.find("cputune")),
        numatune=numatune.read(root.find("numatune")),
        os=osboot.read(root.find("os")),
        features=features.read(root.find("features")),
        cpu=cpu.read(root.find("cpu")),
        clock=clock.read(root.find("clock")),
        **{name: root.findtext(name) or None for name in _EVENTS},
        controllers=tuple(map(controller.read, root.iterfind("devices/controller"))),
        disks=tuple(map(disk.read, root.iterfind("devices/disk"))),
        interfaces=tuple(map(nic.read, root.iterfind("devices/interface"))),
        chardevs=tuple(
            chardev.read(device)
            for device in root.iterfind("devices/*")
            if device.tag in chardev.ELEMENTS
        ),
        graphics=tuple(map(graphics.read, root.iterfind("devices/graphics"))),
        videos=tuple(map(video.read, root.iterfind("devices/video"))),
        hostdevs=tuple(map(hostdev.read, root.iterfind("devices/hostdev"))),
        rngs=tuple(map(rng.read, root.iterfind("devices/rng"))),
    )
