"""<controller>: PCIe ports to attach devices while a VM runs, and controllers of SCSI disks."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator

from saltvirt.core.model import Vm
from saltvirt.xml import element, fields

# libvirt puts fifteen disks of a bus on each controller, by the letters of their targets.
_DISKS = 15
# How many devices can be attached to a new VM while it runs.
SPARE = 8
# Devices that libvirt adds, one port each: serial ports and channels, memory balloon, USB, SCSI,
# video.
_ADDED = 5


@element.declare("controller")
class Controller:
    """The content of a <controller>; libvirt adds a missing number and address."""

    type: str | None = fields.attribute("@type", default=None)
    index: str | None = fields.attribute("@index", default=None)
    model: str | None = fields.attribute("@model", default=None)


build, read = element.build, element.reader(Controller)


def ports(vm: Vm) -> Iterator[Controller]:
    """
    Yield the PCIe ports of a VM, each for one device; none for a machine without PCIe.

    libvirt itself makes as many as the devices of the definition need, and one more.
    """
    if not _has_pcie(vm):
        return
    device_count = len(vm.disks) + len(vm.nics) + len(vm.host_devices) + bool(vm.seed_path)
    # Where ports are listed, the root must be listed, too.
    yield Controller(type="pci", index="0", model="pcie-root")
    for _port in range(device_count + _ADDED + SPARE):
        yield Controller(type="pci", model="pcie-root-port")


def _has_pcie(vm: Vm) -> bool:
    """Return whether a machine is known to have PCIe: q35, and virt of ARM and RISC-V."""
    machine = vm.machine or ""
    is_q35 = machine == "q35" or machine.startswith("pc-q35-")
    is_virt = machine == "virt" or machine.startswith("virt-")
    # The default machine of ARM is virt.
    return is_q35 or is_virt or (not machine and vm.arch == "aarch64")


def scsi(disks: Iterable[ET.Element], present: Iterable[Controller] = ()) -> tuple[Controller, ...]:
    """
    Return the SCSI controllers that some <disk> elements need and a VM does not have.

    libvirt would add an LSI controller on x86; the kernels of most distributions' images have no
    driver for it.

    present
        The controllers of the VM. Defaults to none.
    """
    present_indexes = {controller.index for controller in present if controller.type == "scsi"}
    missing_indexes = sorted(
        set(_indexes(disks)) - {int(index) for index in present_indexes if index}
    )
    return tuple(
        Controller(type="scsi", index=str(number), model="virtio-scsi")
        for number in missing_indexes
    )


def _indexes(disks: Iterable[ET.Element]) -> Iterator[int]:
    """Yield the controllers of SCSI disks, by their addresses, or else by libvirt's rule."""
    for disk in disks:
        target, address = disk.find("target"), disk.find("address")
        if target is None or target.get("bus") != "scsi":
            continue
        if address is not None and address.get("controller", "").isdecimal():
            yield int(address.get("controller", ""))
        else:
            yield _number(target.get("dev", "")) // _DISKS


def _number(target: str) -> int:
    """Return the number of a target: 0 for sda, 26 for sdaa."""
    number = 0
    for letter in target.removeprefix("sd"):
        number = 26 * number + ord(letter) - ord("a") + 1
    return max(number - 1, 0)


def read_scsi(root: ET.Element) -> tuple[Controller, ...]:
    """Return the SCSI controllers of a <domain>; libvirt adds all others by itself."""
    return tuple(map(read, root.iterfind("devices/controller[@type='scsi']")))


def complete(root: ET.Element) -> None:
    """Add the SCSI controllers that the disks of a <domain> need; existing ones stay."""
    devices = root.find("devices")
    if devices is not None:
        disks = devices.findall("disk")
        devices.extend(map(build, scsi(disks, read_scsi(root))))
