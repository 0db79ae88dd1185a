"""<metadata>: this project's notes in a VM's definition, in a namespace of its own."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from saltvirt.core.model import Vm
from saltvirt.xml import METADATA_NS, parse, tag, yes_no

_OURS = f"{{{METADATA_NS}}}"
_GROUPS = ("affinity", "anti_affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """
    The notes of this project in a VM's definition.

    ``disk_mib`` is the disk space promised to it, ``seed`` the seed's file, ``stay`` whether it
    stays when load is evened out, ``cpu_qemu`` the QEMU that gave the running guest its CPU,
    ``moved_to`` the host that has the VM while only its definition was kept here, ``ssh_user`` the
    guest's user for logins by SSH. ``made`` has the files, and volumes as ``POOL/VOLUME``, that the
    VM's build made, None if that is unknown; ``made_variables`` tells whether the build made the
    firmware's variables.
    """

    disk_mib: int = 0
    seed: str | None = None
    stay: bool = False
    cpu_qemu: str | None = None
    moved_to: str | None = None
    ssh_user: str | None = None
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    made: tuple[str, ...] | None = None
    made_variables: bool = False


def from_call(vm: Vm) -> Notes:
    """Return the notes of a VM when it is defined."""
    return Notes(
        disk_mib=sum(disk.size_mib or 0 for disk in vm.disks),
        seed=vm.seed_path,
        ssh_user=vm.ssh_user,
        affinity=vm.affinity,
        anti_affinity=vm.anti_affinity,
    )


def build(notes: Notes) -> ET.Element:
    """Return the <metadata>."""
    members = [tag(_OURS + name, text=group) for name in _GROUPS for group in getattr(notes, name)]
    members += [tag(f"{_OURS}made", text=path) for path in notes.made or ()]
    attributes = {
        "disk_mib": notes.disk_mib,
        "seed": notes.seed,
        "stay": yes_no(notes.stay or None),
        "cpu_qemu": notes.cpu_qemu,
        "moved_to": notes.moved_to,
        "ssh_user": notes.ssh_user,
        # A build may have made no disk: then only the number is written.
        "made": None if notes.made is None else len(notes.made),
        "made_variables": yes_no(notes.made_variables or None),
    }
    return tag("metadata", None, tag(f"{_OURS}vm", attributes, *members))


def read(element: ET.Element | None) -> Notes:
    """Return the notes in a <metadata>, empty ones if it is missing or has none of ours."""
    vm_element = element.find(f"{_OURS}vm") if element is not None else None
    if vm_element is None:
        return Notes()
    disk_mib = vm_element.get("disk_mib", "")
    groups = {
        name: tuple(child.text for child in vm_element.iterfind(_OURS + name) if child.text)
        for name in _GROUPS
    }
    return Notes(
        # An operator who edits the XML may write anything here.
        disk_mib=int(disk_mib) if disk_mib.isascii() and disk_mib.isdigit() else 0,
        seed=vm_element.get("seed"),
        stay=vm_element.get("stay") == "yes",
        cpu_qemu=vm_element.get("cpu_qemu"),
        moved_to=vm_element.get("moved_to"),
        ssh_user=vm_element.get("ssh_user"),
        made=_read_made(vm_element),
        made_variables=vm_element.get("made_variables") == "yes",
        **groups,
    )


def _read_made(vm_element: ET.Element) -> tuple[str, ...] | None:
    if vm_element.get("made") is None:
        return None
    return tuple(child.text for child in vm_element.iterfind(f"{_OURS}made") if child.text)


def describe(notes: Notes) -> dict[str, Any]:
    """Return ``{affinity, anti_affinity, disk_mib, seed, stay, ..., ssh_user}``."""
    return {
        "affinity": list(notes.affinity),
        "anti_affinity": list(notes.anti_affinity),
        "disk_mib": notes.disk_mib,
        "seed": notes.seed,
        "stay": notes.stay,
        "cpu_qemu": notes.cpu_qemu,
        "moved_to": notes.moved_to,
        "ssh_user": notes.ssh_user,
    }


def build_with_note(text: str, key: str, value: str | None) -> ET.Element:
    """
    Return the element with this project's notes of a domain's XML, with one note set or removed.

    All else in it is kept, of any origin. Our names are without their namespace, which libvirt's
    virDomainSetMetadata adds itself.
    """
    element = parse(text).find(f"metadata/{_OURS}vm")
    if element is None:
        element = tag("vm")
    for child in element.iter():
        child.tag = child.tag.removeprefix(_OURS)
    element.attrib.pop(key, None)
    if value is not None:
        element.set(key, value)
    return element


def promise_more(root: ET.Element, disk_mib: int) -> None:
    """Raise the MiB that a domain's disks may take; do nothing in a domain without our notes."""
    vm_element = root.find(f"metadata/{_OURS}vm")
    if vm_element is not None and disk_mib:
        vm_element.set("disk_mib", str(max(read(root.find("metadata")).disk_mib + disk_mib, 0)))
