"""<controller>: of those that a VM is given, PCIe ports for devices that come while it runs."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from saltvirt.model import Vm
from saltvirt.xml import tag

# So many devices can be attached to a new VM while it runs.
SPARE = 8
# What libvirt adds, one port each: serial ports and channels, memory balloon, USB, SCSI, video.
_ADDED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What a <controller> says; libvirt gives it its number and its address."""

    type: str | None = None
    index: str | None = None
    model: str | None = None


def of(vm: Vm) -> Iterator[Controller]:
    """
    Yield the PCIe ports of a VM, each of which takes one device; none of a machine without PCIe.

    libvirt itself makes as many as the devices of the definition need, and one more.
    """
    if not _has_pcie(vm):
        return
    used = len(vm.disks) + len(vm.nics) + len(vm.host_devices) + bool(vm.seed_path)
    # The root itself has to be named where ports are.
    yield Controller(type="pci", index="0", model="pcie-root")
    for _port in range(used + _ADDED + SPARE):
        yield Controller(type="pci", model="pcie-root-port")


def _has_pcie(vm: Vm) -> bool:
    """Return whether a machine is known to have PCIe: q35, and virt of ARM and RISC-V."""
    machine = vm.machine or ""
    is_q35 = machine == "q35" or machine.startswith("pc-q35-")
    is_virt = machine == "virt" or machine.startswith("virt-")
    # ARM's machine is virt where none is given.
    return is_q35 or is_virt or (not machine and vm.arch == "aarch64")


def build(controller: Controller) -> ET.Element:
    """Return the <controller>."""
    says = {"type": controller.type, "index": controller.index, "model": controller.model}
    return tag("controller", says)


def read(element: ET.Element) -> Controller:
    """Return what a <controller> says."""
    return Controller(
        type=element.get("type"), index=element.get("index"), model=element.get("model")
    )
