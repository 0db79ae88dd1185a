"""<domain>, composed of its elements, each of which has its own file."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from string import ascii_lowercase
from typing import Any, TypeVar

from saltvirt.core import arguments
from saltvirt.core.diskbus import BUSES
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Vm
from saltvirt.xml import element, fields, to_text
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

_Element = TypeVar("_Element")


@element.declare("domain")
class Domain:
    """The content of a <domain>, as far as this project can write it."""

    type: str | None = fields.attribute("@type")
    name: str | None = fields.text("name")
    uuid: str | None = fields.text("uuid", default=None)
    notes: Notes = fields.child("metadata")
    memory: Memory = fields.child()
    vcpus: Vcpus = fields.child()
    cputune: Cputune | None = fields.child(default=None)
    numatune: Numatune | None = fields.child(default=None)
    os: Os = fields.child()
    features: Features = fields.child()
    cpu: Cpu | None = fields.child(default=None)
    clock: Clock = fields.child()
    on_poweroff: str | None = fields.text("on_poweroff", default="destroy")
    on_reboot: str | None = fields.text("on_reboot", default="restart")
    on_crash: str | None = fields.text("on_crash", default="destroy")
    controllers: tuple[Controller, ...] = fields.children("devices", default=())
    disks: tuple[Disk, ...] = fields.children("devices", default=())
    interfaces: tuple[Interface, ...] = fields.children("devices", default=())
    chardevs: tuple[Chardev, ...] = fields.children("devices", default=())
    graphics: tuple[Graphics, ...] = fields.children("devices", default=())
    videos: tuple[Video, ...] = fields.children("devices", default=())
    hostdevs: tuple[Hostdev, ...] = fields.children("devices", default=())
    rngs: tuple[Rng, ...] = fields.children("devices", default=())


read = element.reader(Domain)


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
    return to_text(element.build(domain))


def from_call(vm: Vm, host_devices: Iterable[Mapping[str, str]] = ()) -> Domain:
    """Return the domain of a VM; the arguments are those of :func:`build`."""
    display = _shaped("graphics", graphics.from_call, vm.graphics)
    card = video.for_display(display)
    memory_ = _shaped("mem", memory.from_call, vm.memory)
    vcpus = _shaped("cpu", vcpu.from_call, vm.cpu)
    cpu_: Cpu | None = _shaped(
        "cpu", cpu.from_call, vm.cpu, vm.domain_type, has_default=not vm.is_3006
    )
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
    # The first target is for the disk that the guest boots from.
    prefix = BUSES[disk.SEED_BUS].prefix
    targets = [f"{prefix}{letter}" for letter in ascii_lowercase[1:]]
    free_target = next((target for target in targets if target not in used_targets), None)
    if free_target is None:
        raise BadArgument(
            "disks",
            f"{targets[0]} to {targets[-1]} are in use, so the seed has no target; use another bus "
            "for a disk",
        )
    yield disk.seed(vm.seed_path, free_target)
