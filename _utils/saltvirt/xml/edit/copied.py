"""The definition of a copy of a VM, with values of its own where two VMs must differ."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt.xml import METADATA_NS, parse, set_first, tag, to_text
from saltvirt.xml.domain import chardev, disk, metadata
from saltvirt.xml.edit import amend, readdomain
from saltvirt.xml.edit.clone import (
    clear_source,
    exclusive_disks,
    find_host_chardevs,
    replace_by_ptys,
)

# The types of disks that are copied, with the attribute that identifies their <source>.
TYPES = {"file": "file", "block": "dev", "volume": "volume", "network": "name"}
_NICS_OF_HOST = ("hostdev", "vdpa", "vhostuser")
_INPUTS_OF_HOST = ("passthrough", "evdev")
_MEMORY_OF_HOST = ("nvdimm", "virtio-pmem")
_QEMU_NS = "http://libvirt.org/schemas/domain/qemu/1.0"
# Arguments that give QEMU a disk behind libvirt's back.
_DISK_ARGUMENT = re.compile(r"-?-(drive|blockdev|hd[a-d]|sd|pflash|mtdblock|virtfs|fsdev)")
_PATH = re.compile(r"(?:^|[=,:\"\s])(/[^,\"\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """
    The values of a copy that are not its original's.

    sources
        What the <source> of its disks name, by their targets.
    dropped
        The targets of disks that it does not get.
    macs
        The MACs of its NICs, in their order.
    variables
        The file of its firmware's variables; None to have libvirt make it.
    seed
        The disk of its seed, if it has one.
    console_log
        The console logs of this project, the original's and the copy's.
    """

    name: str
    uuid: str
    notes: metadata.Notes
    macs: tuple[str, ...]
    console_log: tuple[str, str]
    sources: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    variables: str | None = None
    seed: disk.Disk | None = None


def disks(root: ET.Element) -> list[disk.Disk]:
    """Return the disks that only one VM may have, without those that several may share."""
    return list(map(disk.read, exclusive_disks(root)))


def seed(root: ET.Element) -> str | None:
    """Return the target of a VM's seed disk, None if it has none."""
    noted_path = metadata.read(root).seed
    seed_serial = disk.seed("", "").serial
    for vm_disk in disks(root):
        if vm_disk.serial == seed_serial or (noted_path and vm_disk.path == noted_path):
            return vm_disk.target.get("dev")
    return None


def find_boot_target(root: ET.Element) -> str | None:
    """Return the target of the disk that a VM boots from, as far as its definition tells."""
    orders = {
        target.get("dev"): int(boot.get("order", "0"))
        for element in exclusive_disks(root)
        if (boot := element.find("boot")) is not None
        and (target := element.find("target")) is not None
    }
    seed_target = seed(root)
    targets = [
        vm_disk.target.get("dev")
        for vm_disk in disks(root)
        if vm_disk.target.get("dev") != seed_target
    ]
    return min(targets, key=lambda name: orders.get(name, 1 << 16), default=None)


def obstacles(root: ET.Element) -> Iterator[str]:
    """Yield the reasons why a VM cannot be copied."""
    if readdomain.has_host_device(root) or _has_device_type(root, "interface", _NICS_OF_HOST):
        yield "it has a device of this host, which only one VM can have; detach it first"
    if _has_device_type(root, "input", _INPUTS_OF_HOST):
        yield "it has an input device of this host, which only one VM can have; detach it first"
    if any(memory.get("model") in _MEMORY_OF_HOST for memory in root.iterfind("devices/memory")):
        yield "it has persistent memory, whose file is not copied; detach it first"
    if root.find("devices/tpm") is not None:
        yield (
            "it has a TPM, whose state is not copied: the copy could not open what the guest has "
            "sealed with the TPM"
        )
    if any(map(_DISK_ARGUMENT.fullmatch, arguments(root))):
        yield (
            "<qemu:commandline> gives QEMU a disk or a folder, which is not copied: both VMs would "
            "write to it; make it a <disk>, or remove it"
        )
    yield from _find_disk_obstacles(root)


def _find_disk_obstacles(root: ET.Element) -> Iterator[str]:
    if any(element.find("source/snapshot") is not None for element in exclusive_disks(root)):
        yield "one of its disks is a snapshot of a network disk, which is not copied; detach it"
    for vm_disk in disks(root):
        if vm_disk.type not in TYPES:
            yield (
                f"its disk {vm_disk.target.get('dev')} is of type {vm_disk.type}, which is not "
                "copied"
            )


def _has_device_type(root: ET.Element, name: str, types: tuple[str, ...]) -> bool:
    return any(device.get("type") in types for device in root.iterfind(f"devices/{name}"))


def arguments(root: ET.Element) -> list[str]:
    """Return the arguments that QEMU gets past libvirt."""
    return [
        argument.get("value", "")
        for argument in root.iterfind(f"{{{_QEMU_NS}}}commandline/{{{_QEMU_NS}}}arg")
    ]


def find_argument_files(root: ET.Element) -> list[str]:
    """Return the files and folders that QEMU may be given as disks behind libvirt's back."""
    qemu_arguments = arguments(root)
    is_given = any(map(_DISK_ARGUMENT.fullmatch, qemu_arguments))
    paths = (
        (path for argument in qemu_arguments for path in _PATH.findall(argument))
        if is_given
        else ()
    )
    return list(dict.fromkeys(paths))


def describe_replaced_chardevs(root: ET.Element) -> Iterator[str]:
    """Yield a message for each pty that a copy gets instead of a file or device of the host."""
    for path in dict.fromkeys(path for _device, path in find_host_chardevs(root)):
        yield (
            f"a serial port, console or channel gets a pty instead of {path}, which only one VM "
            "can use"
        )


def describe_shared(root: ET.Element) -> Iterator[str]:
    """Yield a message for each resource that a copy shares with its original."""
    for element in root.iterfind("devices/disk"):
        if element.find("shareable") is not None and element.find("readonly") is None:
            vm_disk = disk.read(element)
            yield (
                f"disk {vm_disk.target.get('dev')} ({vm_disk.path}), which is shareable, is not "
                "copied"
            )
    for filesystem in root.iterfind("devices/filesystem"):
        target = filesystem.find("target")
        yield f"file system {target.get('dir') if target is not None else '?'} is not copied"
    yield from _describe_uncopied(root)
    for service in sorted(
        {listener["service"] for listener in readdomain.listeners(root) if listener.get("service")}
    ):
        yield f"a serial port or console listens on port {service}: only one of the VMs can run"


def _describe_uncopied(root: ET.Element) -> Iterator[str]:
    for memory in root.iterfind("devices/shmem"):
        yield f"shared memory {memory.get('name')} is not copied"
    for path in dict.fromkeys(
        path for argument in arguments(root) for path in _PATH.findall(argument)
    ):
        yield f"<qemu:commandline> gives QEMU {path}, which is not copied"


def definition(text: str, settings: CopySettings) -> str:
    """
    Return the definition of a copy.

    text
        The original's persistent definition, with its secrets.
    """
    root = parse(text)
    for name in ("name", "uuid"):
        set_first(root, name, getattr(settings, name))
    for entry in root.findall("sysinfo/system/entry[@name='uuid']"):
        entry.text = settings.uuid
    for genid in root.findall("genid"):
        genid.text = None
    _replace_notes(root, settings.notes)
    _set_sources(root, settings)
    _set_nics(root, settings.macs)
    _set_chardevs(root, settings.console_log)
    _set_firmware(root, settings.variables)
    return to_text(root)


def _replace_notes(root: ET.Element, notes: metadata.Notes) -> None:
    """Replace our notes by the copy's; other metadata stays."""
    metadata_element = root.find("metadata")
    if metadata_element is None:
        metadata_element = tag("metadata")
        root.append(metadata_element)
    for child in metadata_element.findall(f"{{{METADATA_NS}}}vm"):
        metadata_element.remove(child)
    metadata_element.append(metadata.build(notes))


def _set_sources(root: ET.Element, settings: CopySettings) -> None:
    devices = root.find("devices")
    if devices is None:
        return
    for element in exclusive_disks(root):
        target = (disk.read(element).target or {}).get("dev", "")
        source = element.find("source")
        if target in settings.dropped:
            devices.remove(element)
        elif source is not None and target in settings.sources:
            source.set(TYPES[element.get("type", "file")], settings.sources[target])
            # The copy has the content of the original's backing chain.
            amend.remove_children(element, "backingStore")
    if settings.seed is not None:
        disk_indexes = [index for index, child in enumerate(devices) if child.tag == "disk"]
        devices.insert(disk_indexes[-1] + 1 if disk_indexes else 0, disk.build(settings.seed))


def _set_nics(root: ET.Element, macs: tuple[str, ...]) -> None:
    for nic, mac in zip(root.findall("devices/interface"), macs, strict=True):
        amend.remove_children(nic, "mac")
        nic.insert(0, tag("mac", {"address": mac}))
        # Names of host links and of switch ports, which must be unique.
        amend.remove_children(nic, "target")
        for filter_ in nic.findall("filterref"):
            # The original's address, which the copy cannot use.
            for parameter in filter_.findall("parameter[@name='IP']"):
                filter_.remove(parameter)
        for parameters in nic.findall("virtualport[@type='openvswitch']/parameters"):
            parameters.attrib.pop("interfaceid", None)


def _set_chardevs(root: ET.Element, console_log: tuple[str, str]) -> None:
    """Give the copy sockets, ports and logs of its own."""
    for channel in root.findall("devices/channel[@type='unix']"):
        for source in channel.findall("source[@mode='bind']"):
            channel.remove(source)
    replace_by_ptys(root)
    for device in filter(
        lambda element: element.tag in chardev.ELEMENTS, root.findall("devices/*")
    ):
        _set_log(device, console_log)
    for display in root.findall("devices/graphics"):
        _reset_display(display)
    for cid in root.findall("devices/vsock/cid"):
        cid.attrib.pop("address", None)
        cid.set("auto", "yes")


def _reset_display(display: ET.Element) -> None:
    if display.get("port") or display.get("tlsPort"):
        display.set("autoport", "yes")
    for name in ("port", "tlsPort", "websocket", "socket"):
        display.attrib.pop(name, None)
    for listener in display.findall("listen[@type='socket']"):
        listener.attrib.pop("socket", None)


def _set_log(device: ET.Element, console_log: tuple[str, str]) -> None:
    # Drop a log that this project did not set up: both VMs would write to it.
    log, (old, new) = device.find("log"), console_log
    if log is not None and log.get("file") == old:
        log.set("file", new)
    elif log is not None:
        device.remove(log)


def _set_firmware(root: ET.Element, variables: str | None) -> None:
    os, nvram = root.find("os"), root.find("os/nvram")
    if nvram is not None:
        clear_source(nvram)
    if os is None or variables is None:
        return
    if nvram is None:
        nvram = tag("nvram")
        os.append(nvram)
    nvram.text = variables
