"""The definition of a VM that is a copy of another one: what must not be there twice is its own."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from saltvirt.xml import METADATA_NS, chardev, disk, metadata, parse, read, set_first, tag, to_text
from saltvirt.xml.clone import end_in_ptys, ends_of_host, own_disks, unsay

# The types of disks that are copied: which attribute of their <source> says what they are.
TYPES = {"file": "file", "block": "dev", "volume": "volume", "network": "name"}
_NICS_OF_HOST = ("hostdev", "vdpa", "vhostuser")
_INPUTS_OF_HOST = ("passthrough", "evdev")
_MEMORY_OF_HOST = ("nvdimm", "virtio-pmem")
_QEMU_NS = "http://libvirt.org/schemas/domain/qemu/1.0"
# What gives QEMU a disk behind libvirt's back.
_DISK_ARGUMENT = re.compile(r"-?-(drive|blockdev|hd[a-d]|sd|pflash|mtdblock|virtfs|fsdev)")
_PATH = re.compile(r"(?:^|[=,:\"\s])(/[^,\"\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """
    What a copy has of its own.

    sources
        What its disks' <source> name, by their targets.
    dropped
        The targets of disks that it has not.
    macs
        Those of its NICs, in their order.
    variables
        The file of its firmware's variables; None to have libvirt make it.
    seed
        The disk of its seed, if it has one.
    console_log
        Where this project has the other one's console logged, and where the copy's.
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
    """Return the disks that only one VM may have; those that several may share are left out."""
    return list(map(disk.read, own_disks(root)))


def seed(root: ET.Element) -> str | None:
    """Return the target of the seed that a VM has as a disk, None if it has none."""
    noted = metadata.read(root.find("metadata")).seed
    mine = disk.seed("", "").serial
    for one in disks(root):
        if one.serial == mine or (noted and one.path == noted):
            return one.target.get("dev")
    return None


def first(root: ET.Element) -> str | None:
    """Return the target of the disk that a VM boots from, as far as its definition says."""
    orders = {
        target.get("dev"): int(boot.get("order", "0"))
        for one in own_disks(root)
        if (boot := one.find("boot")) is not None and (target := one.find("target")) is not None
    }
    other = seed(root)
    found = [one.target.get("dev") for one in disks(root) if one.target.get("dev") != other]
    return min(found, key=lambda name: orders.get(name, 1 << 16), default=None)


def obstacles(root: ET.Element) -> Iterator[str]:
    """Yield what a VM has that no other one can have too."""
    if read.has_host_device(root) or _of_types(root, "interface", _NICS_OF_HOST):
        yield "it has a device of this host, which only one VM can have; detach it first"
    if _of_types(root, "input", _INPUTS_OF_HOST):
        yield "it has an input device of this host, which only one VM can have; detach it first"
    if any(one.get("model") in _MEMORY_OF_HOST for one in root.iterfind("devices/memory")):
        yield "it has persistent memory, whose file is not copied; detach it first"
    if root.find("devices/tpm") is not None:
        yield (
            "it has a TPM, whose state is not copied, and what its guest has sealed with that "
            "could not be opened in another VM"
        )
    if any(map(_DISK_ARGUMENT.fullmatch, arguments(root))):
        yield (
            "QEMU is given a disk or a folder by <qemu:commandline>, which is not copied, and to "
            "which both would write; make it a <disk>, or take it out"
        )
    yield from _of_disks(root)


def _of_disks(root: ET.Element) -> Iterator[str]:
    if any(one.find("source/snapshot") is not None for one in own_disks(root)):
        yield "it has a snapshot of a network disk as a disk, which is not copied; detach it"
    for one in disks(root):
        if one.type not in TYPES:
            yield f"its disk {one.target.get('dev')} is of type {one.type}, which is not copied"


def _of_types(root: ET.Element, name: str, types: tuple[str, ...]) -> bool:
    return any(one.get("type") in types for one in root.iterfind(f"devices/{name}"))


def arguments(root: ET.Element) -> list[str]:
    """Return what QEMU is given that libvirt knows nothing of."""
    return [
        one.get("value", "")
        for one in root.iterfind(f"{{{_QEMU_NS}}}commandline/{{{_QEMU_NS}}}arg")
    ]


def given_files(root: ET.Element) -> list[str]:
    """Return the files and folders that QEMU may be given as disks behind libvirt's back."""
    found = arguments(root)
    is_given = any(map(_DISK_ARGUMENT.fullmatch, found))
    paths = (path for one in found for path in _PATH.findall(one)) if is_given else ()
    return list(dict.fromkeys(paths))


def ended(root: ET.Element) -> Iterator[str]:
    """Yield what a copy has in place of what its original has at a file or device of the host."""
    for path in dict.fromkeys(path for _device, path in ends_of_host(root)):
        yield f"a serial port, console or channel has a pty, not {path}, which only one VM can have"


def shared(root: ET.Element) -> Iterator[str]:
    """Yield what a copy has in common with its original."""
    for one in root.iterfind("devices/disk"):
        if one.find("shareable") is not None and one.find("readonly") is None:
            says = disk.read(one)
            yield f"disk {says.target.get('dev')} ({says.path}), which is shareable, is not copied"
    for one in root.iterfind("devices/filesystem"):
        target = one.find("target")
        yield f"file system {target.get('dir') if target is not None else '?'} is not copied"
    yield from _beside_disks(root)
    for service in sorted({one["service"] for one in read.listeners(root) if _is_fixed(one)}):
        yield f"a serial port or console listens on port {service}: one of them runs at a time"


def _beside_disks(root: ET.Element) -> Iterator[str]:
    for memory in root.iterfind("devices/shmem"):
        yield f"shared memory {memory.get('name')} is not copied"
    for path in dict.fromkeys(path for one in arguments(root) for path in _PATH.findall(one)):
        yield f"QEMU is given {path} by <qemu:commandline>, which is not copied"


def _is_fixed(listener: Mapping[str, str]) -> bool:
    return bool(listener.get("service"))


def definition(text: str, own: Own) -> str:
    """
    Return the definition of a copy.

    text
        The other one's own definition, as it is when it does not run, with its secrets.
    """
    root = parse(text)
    for name in ("name", "uuid"):
        set_first(root, name, getattr(own, name))
    for entry in root.findall("sysinfo/system/entry[@name='uuid']"):
        entry.text = own.uuid
    for one in root.findall("genid"):
        one.text = None
    _note(root, own.notes)
    _own_sources(root, own)
    _own_nics(root, own.macs)
    _own_ends(root, own.console_log)
    _own_firmware(root, own.variables)
    return to_text(root)


def _note(root: ET.Element, notes: metadata.Notes) -> None:
    """Have our notes be the copy's; what others have noted stays."""
    (ours,) = metadata.build(notes)
    there = root.find("metadata")
    if there is None:
        there = tag("metadata")
        root.append(there)
    for one in there.findall(f"{{{METADATA_NS}}}vm"):
        there.remove(one)
    there.append(ours)


def _own_sources(root: ET.Element, own: Own) -> None:
    devices = root.find("devices")
    if devices is None:
        return
    for one in own_disks(root):
        target = (disk.read(one).target or {}).get("dev", "")
        source = one.find("source")
        if target in own.dropped:
            devices.remove(one)
        elif source is not None and target in own.sources:
            source.set(TYPES[one.get("type", "file")], own.sources[target])
            # What was below the other one's is in the copy.
            _remove(one, "backingStore")
    if own.seed is not None:
        last = [at for at, one in enumerate(devices) if one.tag == "disk"]
        devices.insert(last[-1] + 1 if last else 0, disk.build(own.seed))


def _own_nics(root: ET.Element, macs: tuple[str, ...]) -> None:
    for nic, mac in zip(root.findall("devices/interface"), macs, strict=True):
        _remove(nic, "mac")
        nic.insert(0, tag("mac", {"address": mac}))
        # Names of links and ports of a switch, of which there is one each.
        _remove(nic, "target")
        for filter_ in nic.findall("filterref"):
            # Another guest's address, which this one could not use.
            for parameter in filter_.findall("parameter[@name='IP']"):
                filter_.remove(parameter)
        for parameters in nic.findall("virtualport[@type='openvswitch']/parameters"):
            parameters.attrib.pop("interfaceid", None)


def _own_ends(root: ET.Element, console_log: tuple[str, str]) -> None:
    """Have sockets, ports and logs be the copy's."""
    for channel in root.findall("devices/channel[@type='unix']"):
        for source in channel.findall("source[@mode='bind']"):
            channel.remove(source)
    end_in_ptys(root)
    for device in filter(lambda one: one.tag in chardev.ELEMENTS, root.findall("devices/*")):
        _own_log(device, console_log)
    for display in root.findall("devices/graphics"):
        _own_display(display)
    for cid in root.findall("devices/vsock/cid"):
        cid.attrib.pop("address", None)
        cid.set("auto", "yes")


def _own_display(display: ET.Element) -> None:
    if display.get("port") or display.get("tlsPort"):
        display.set("autoport", "yes")
    for name in ("port", "tlsPort", "websocket", "socket"):
        display.attrib.pop(name, None)
    for one in display.findall("listen[@type='socket']"):
        one.attrib.pop("socket", None)


def _own_log(device: ET.Element, console_log: tuple[str, str]) -> None:
    # Where somebody else has it logged, two would write.
    log, (old, new) = device.find("log"), console_log
    if log is not None and log.get("file") == old:
        log.set("file", new)
    elif log is not None:
        device.remove(log)


def _own_firmware(root: ET.Element, variables: str | None) -> None:
    os, found = root.find("os"), root.find("os/nvram")
    if found is not None:
        unsay(found)
    if os is None or variables is None:
        return
    if found is None:
        found = tag("nvram")
        os.append(found)
    found.text = variables


def _remove(parent: ET.Element, name: str) -> None:
    for child in parent.findall(name):
        parent.remove(child)
