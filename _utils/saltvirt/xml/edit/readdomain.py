"""Read the XML of a whole domain: its names, NICs, disks, displays, firmware and notes."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.core.errors import VirtError
from saltvirt.core.nics import host_needs
from saltvirt.xml import element, parse, to_text
from saltvirt.xml.domain import (
    chardev,
    disk,
    memory,
    metadata,
    nic,
    numatune,
    osboot,
    sysinfo,
    tpm,
    vcpu,
)
from saltvirt.xml.domain import graphics as graphics_
from saltvirt.xml.domain.cpu import Cpu


def domain(text: str) -> ET.Element:
    """Return the parsed domain, for the other functions here."""
    return parse(text)


def _devices(root: ET.Element, kind: str) -> list[ET.Element]:
    """Return a VM's devices of a kind, ``*`` for all; a path expression would be slower."""
    devices = root.find("devices")
    return [] if devices is None else devices.findall(kind)


def name(root: ET.Element) -> str:
    """Return a VM's name, empty if the XML has none."""
    return root.findtext("name", "")


def uuid(root: ET.Element) -> str:
    """Return a VM's UUID, empty if the XML has none."""
    return root.findtext("uuid", "")


def nics(root: ET.Element) -> dict[str, dict[str, Any]]:
    """Return ``{mac: {type, mac, source, model, ...}}``."""
    descriptions = map(nic.describe, _devices(root, "interface"))
    return {
        description["mac"]: description for description in descriptions if description.get("mac")
    }


def nics_from_text(text: str) -> dict[str, dict[str, Any]]:
    """Return :func:`nics` of a domain's text, of which only the NICs are parsed."""
    begin = text.find("<interface ", text.rfind("<devices>"))
    end = text.rfind("</interface>")
    if -1 not in (begin, end):
        interfaces_xml = f"{text[begin:end]}</interface>"
        try:
            return nics(domain(f"<domain><devices>{interfaces_xml}</devices></domain>"))
        except VirtError:
            # Another device may have an element of that name within it.
            pass
    return nics(domain(text))


def interfaces(root: ET.Element) -> list[nic.Interface]:
    """Return the contents of a VM's NICs."""
    return [nic.read(device) for device in _devices(root, "interface")]


def macs(root: ET.Element) -> list[str]:
    """Return the MAC addresses of a VM's NICs."""
    return [interface.mac for interface in interfaces(root) if interface.mac]


def links(root: ET.Element) -> dict[str, Any]:
    """Return what a VM's NICs need of a host, as :func:`saltvirt.core.nics.host_needs` does."""
    needed_links = host_needs(interfaces(root))
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in needed_links.items()
    }


def graphics(root: ET.Element) -> dict[str, str]:
    """Return the attributes of the VM's displays, ``"None"`` for usual ones that are missing."""
    return graphics_.describe(_devices(root, "graphics"))


def displays(root: ET.Element) -> list[graphics_.Graphics]:
    """Return all displays of a VM; with a password only if the XML was read with its secrets."""
    return [graphics_.read(device) for device in _devices(root, "graphics")]


def listeners(root: ET.Element) -> list[dict[str, str]]:
    """Return ``host``, ``service`` and ``tls`` of each device that others can connect to."""
    return [
        source for device in _devices(root, "*") for source in chardev.find_bound_sources(device)
    ]


def system(root: ET.Element) -> osboot.Os:
    """Return the <os> of a VM: its machine, processor, firmware and kernel."""
    return element.read(osboot.Os, root.find("os"))


def loader(root: ET.Element) -> dict[str, str]:
    """Return ``{path: ...}`` of the VM's firmware, with its attributes."""
    vm_loader = system(root).loader or osboot.Loader()
    return {"path": vm_loader.path or "None", **vm_loader.attributes}


def boot_files(root: ET.Element) -> list[str]:
    """Return the files of the host that a VM boots from: kernel, initial RAM disk, firmware."""
    return osboot.files(system(root))


def firmware_variables(root: ET.Element) -> str | None:
    """Return the file of a VM's firmware variables; None if there is none on this host."""
    return osboot.variables(system(root), root.findtext("name"))


def is_filtered(root: ET.Element) -> bool:
    """Return whether a NIC of a VM has a network filter."""
    return any(device.find("filterref") is not None for device in _devices(root, "interface"))


def disks(root: ET.Element) -> list[disk.Disk]:
    """Return the contents of a VM's disks, without those that have no target."""
    return [
        vm_disk for vm_disk in map(disk.read, _devices(root, "disk")) if "dev" in vm_disk.target
    ]


def mirror(root: ET.Element, target: str) -> tuple[str, bool] | None:
    """Return ``(file, whether it is complete)`` of the copy of a running disk; None if none is."""
    for device in _devices(root, "disk"):
        copy = device.find("mirror")
        if copy is not None and disk.read(device).target.get("dev") == target:
            source = copy.find("source")
            file = None if source is None else source.get("file")
            return file or copy.get("file") or "", copy.get("ready") == "yes"
    return None


def is_encrypted(device: ET.Element) -> bool:
    """Return whether a <disk> is encrypted by QEMU."""
    return next(device.iter("encryption"), None) is not None


def disk_sources(root: ET.Element) -> list[dict[str, Any]]:
    """Return ``[{target, device, type, path, format, backing, is_readonly}]`` of a VM's disks."""
    return [disk.describe(vm_disk) for vm_disk in disks(root)]


def lifecycle_actions(root: ET.Element) -> dict[str, str]:
    """Return the actions for a guest that powers off, reboots or crashes."""
    return {key: root.findtext(key, "") for key in ("on_crash", "on_reboot", "on_poweroff")}


def notes(root: ET.Element) -> metadata.Notes:
    """Return this project's notes in the VM's metadata."""
    return metadata.read(root)


def describe_notes(root: ET.Element) -> dict[str, Any]:
    """Return this project's notes in the VM's metadata: groups, promised disk, seed, ..."""
    return metadata.describe(metadata.read(root))


def cpu(root: ET.Element) -> tuple[str | None, str | None]:
    """Return ``(mode, XML)`` of a domain's CPU."""
    cpu_element = root.find("cpu")
    return (None, None) if cpu_element is None else (cpu_element.get("mode"), to_text(cpu_element))


def memory_from(
    root: ET.Element,
) -> tuple[tuple[memory.Page, ...] | None, numatune.Numatune | None]:
    """Return a VM's huge pages, and the NUMA nodes of its memory."""
    is_plain = root.find("memoryBacking") is None
    pages = None if is_plain else memory.read(root).backing.hugepages
    tune = root.find("numatune")
    return pages, None if tune is None else element.read(numatune.Numatune, tune)


def sizes(root: ET.Element) -> tuple[int, int]:
    """Return the number of virtual CPUs that a VM can have, and its memory in MiB."""
    return vcpu.most(root), memory.most_kib(root) // 1024


def is_cpu_checked(root: ET.Element) -> bool:
    """Return whether libvirt starts a VM only where QEMU has all features of its CPU."""
    return element.read(Cpu, root.find("cpu")).attributes.get("check") != "none"


def has_host_device(root: ET.Element) -> bool:
    """Return whether a VM has a device of its host, also as a NIC."""
    return bool(_devices(root, "hostdev")) or any(
        interface.type == "hostdev" for interface in interfaces(root)
    )


def sends_as_host(root: ET.Element) -> bool:
    """Return whether QEMU, or passt, sends for a NIC of a VM by sockets of the host."""
    return any(interface.type == "user" for interface in interfaces(root))


def has_seed_credential(root: ET.Element) -> bool:
    """Return whether a VM runs with the credential of its seed; QEMU has read the file."""
    sysinfos = map(sysinfo.read, root.iterfind("sysinfo"))
    return any(sysinfo.is_credential(entry) for info in sysinfos for entry in info.entries)


def has_agent_channel(root: ET.Element) -> bool:
    """Return whether a VM has a channel to the agent in its guest."""
    return bool(_agents(root))


def has_agent(root: ET.Element) -> bool:
    """Return whether the agent of a running guest listens on its channel."""
    return any(target.get("state") == "connected" for target in _agents(root))


def _agents(root: ET.Element) -> list[dict[str, str]]:
    targets = [chardev.read(device).target or {} for device in _devices(root, "channel")]
    agent_name = (chardev.guest_agent().target or {}).get("name")
    return [target for target in targets if target.get("name") == agent_name]


def tpm_state(root: ET.Element) -> str | None:
    """Return the place of the state of a VM's emulated TPM; None without one."""
    paths = [tpm.state(tpm.read(device), root.findtext("uuid")) for device in _devices(root, "tpm")]
    return next((path for path in paths if path), None)


def emulator(root: ET.Element) -> str:
    """Return the program that a VM runs in; "" if libvirt does not name it."""
    return root.findtext("devices/emulator", "")
