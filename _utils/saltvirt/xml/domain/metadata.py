"""<metadata>: this project's notes in a VM's definition, in a namespace of its own."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.core.model import Vm
from saltvirt.xml import METADATA_NS, element, fields, parse, tag

_OURS = f"{{{METADATA_NS}}}"
# An operator who edits the XML may write anything here.
_MIB = fields.Codec(
    lambda text: int(text) if text and text.isascii() and text.isdigit() else 0, str
)


_SECONDS = fields.Codec(
    lambda text: int(text)
    if text and text.isascii() and text.isdigit() and len(text) < 12
    else None,
    str,
)


def _read_made(notes: ET.Element) -> tuple[str, ...] | None:
    if notes.get("made") is None:
        return None
    return tuple(child.text for child in notes.iterfind(f"{_OURS}made") if child.text)


def _write_made(notes: ET.Element, paths: tuple[str, ...]) -> None:
    # A build may have made no disk: then only the number is written.
    notes.set("made", str(len(paths)))
    notes.extend(tag(f"{_OURS}made", text=path) for path in paths)


@element.declare(f"{_OURS}vm")
class Notes:
    """
    The notes of this project in a VM's definition.

    ``disk_mib`` is the disk space promised to it, ``seed`` the seed's file, ``stay`` whether it
    stays when load is evened out, ``cpu_qemu`` the QEMU that gave the running guest its CPU,
    ``moved_to`` the host that has the VM while only its definition was kept here, ``ssh_user`` the
    guest's user for logins by SSH, ``created`` when it was built, in seconds since 1970. ``former``
    has names that the VM had, and that its disks' files and volumes still have. ``made``
    has the files, and volumes as ``POOL/VOLUME``, that the VM's build made, None if that is
    unknown; ``made_variables`` tells whether the build made the firmware's variables.
    """

    disk_mib: int = fields.attribute("@disk_mib", _MIB, missing=0, default=0)
    seed: str | None = fields.attribute("@seed", default=None)
    stay: bool = fields.attribute("@stay", fields.YES, missing=False, default=False)
    cpu_qemu: str | None = fields.attribute("@cpu_qemu", default=None)
    moved_to: str | None = fields.attribute("@moved_to", default=None)
    ssh_user: str | None = fields.attribute("@ssh_user", default=None)
    created: int | None = fields.attribute("@created", _SECONDS, default=None)
    affinity: tuple[str, ...] = fields.values(f"{_OURS}affinity", fields.TEXT, default=())
    anti_affinity: tuple[str, ...] = fields.values(f"{_OURS}anti_affinity", fields.TEXT, default=())
    former: tuple[str, ...] = fields.values(f"{_OURS}former", fields.TEXT, default=())
    made: tuple[str, ...] | None = fields.value(
        ".", fields.Form(_read_made, _write_made), default=None
    )
    made_variables: bool = fields.attribute(
        "@made_variables", fields.YES, missing=False, default=False
    )


build = element.build


def from_call(vm: Vm) -> Notes:
    """Return the notes of a VM when it is defined."""
    return Notes(
        disk_mib=sum(disk.size_mib or 0 for disk in vm.disks),
        seed=vm.seed_path,
        ssh_user=vm.ssh_user,
        affinity=vm.affinity,
        anti_affinity=vm.anti_affinity,
    )


def read(root: ET.Element) -> Notes:
    """Return the notes of a domain, empty ones if it has none of ours."""
    return element.read(Notes, root.find(f"metadata/{_OURS}vm"))


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


def note_creation(root: ET.Element, epoch_s: int) -> None:
    """Set when a domain was built; do nothing in a domain without our notes."""
    vm_element = root.find(f"metadata/{_OURS}vm")
    if vm_element is not None:
        vm_element.set("created", str(epoch_s))


def promise_more(root: ET.Element, disk_mib: int) -> None:
    """Raise the MiB that a domain's disks may take; do nothing in a domain without our notes."""
    vm_element = root.find(f"metadata/{_OURS}vm")
    if vm_element is not None and disk_mib:
        vm_element.set("disk_mib", str(max(read(root).disk_mib + disk_mib, 0)))
