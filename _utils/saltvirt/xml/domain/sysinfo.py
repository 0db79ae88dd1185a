"""<sysinfo>: the host's data for the guest's firmware."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import tag

# The name of the credential that gives a guest its identity.
CREDENTIAL = "opt/io.systemd.credentials/tmpfiles.extra"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An <entry>: a text, or a file of the host that QEMU reads when it starts."""

    name: str | None
    text: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysinfo:
    """The content of a <sysinfo>; of SMBIOS, with entries in tables, only the type is read."""

    type: str | None
    entries: tuple[Entry, ...] = ()


def is_credential(entry: Entry) -> bool:
    """Return whether an entry is a seed's credential; its file is gone once QEMU has read it."""
    return entry.name == CREDENTIAL and (entry.file or "").endswith(".credentials")


def for_file(name: str, path: object) -> Sysinfo:
    """Return the sysinfo that passes a file to the guest through QEMU's fw_cfg."""
    return Sysinfo(type="fwcfg", entries=(Entry(name=name, file=str(path)),))


def build(info: Sysinfo) -> ET.Element:
    """Return the <sysinfo>."""
    entries = [
        tag("entry", {"name": entry.name, "file": entry.file}, text=entry.text)
        for entry in info.entries
    ]
    return tag("sysinfo", {"type": info.type}, *entries)


def add(root: ET.Element, info: Sysinfo) -> None:
    """Add the sysinfo to a domain of any origin, at its place in libvirt's schema."""
    place = next(index for index, element in enumerate(root) if element.tag == "os")
    root.insert(place, build(info))


def read(element: ET.Element) -> Sysinfo:
    """Return the content of a <sysinfo>."""
    entries = [
        Entry(name=child.get("name"), text=child.text or None, file=child.get("file"))
        for child in element.iterfind("entry")
    ]
    return Sysinfo(type=element.get("type"), entries=tuple(entries))
